/** One uPlot canvas: lines, axes, cursor, brush, wheel and pan. */
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { formatTicks } from '../lib/number';
import type { Look, PlotModel } from './model';
import { alpha, drawAbove, drawBehind } from './overlay';
import type { Range } from './range';
import { type Line, sampleAt } from './shape';
import { formatLogTicks, logTicks, valueTicks, xTicks } from './ticks';

/** What the person does to a plot. */
export interface PlotEvents {
  zoom(range: Range): void;
  reset(): void;
  cursor(x: number | null): void;
  wheel(event: WheelEvent, at: number): void;
  pan(share: number, ended: boolean): void;
}

/** Room behind the end of the lines in a lane, CSS pixels. */
export const LANE_RIGHT = 8;
/** With more lines, the cursor has no dots on them: the legend reads them. */
const POINTED_LINES = 6;

/** A line that is not there any more: a plot that was taken down may be drawn once again. */
const UNSEEN: Look = { stroke: '#000000', dash: [], alpha: 0 };

type Drawn = (number | null | undefined)[];

/** A mounted plot. */
export class Plot {
  private u: uPlot | null = null;
  private model: PlotModel | null = null;
  private signature = '';
  private following = false;
  private markLine: HTMLElement | null = null;

  constructor(
    private readonly root: HTMLElement,
    private readonly events: PlotEvents,
  ) {}

  /** Shows a model; what was shown stays until it is drawn. */
  render(model: PlotModel): void {
    const dashes = model.looks.map((l) => l.dash.join(' '));
    const signature = [model.shape.lines.length, smoothed(model), model.log, ...dashes].join();
    this.model = model;
    if (!this.u || signature !== this.signature) {
      this.u?.destroy();
      this.signature = signature;
      this.u = new uPlot(this.options(model), this.data(model), this.root);
      this.u.over.addEventListener('mousedown', this.panStart, true);
      this.u.over.addEventListener('wheel', this.wheel, { passive: false });
      return;
    }
    const u = this.u;
    if (u.width !== model.width || u.height !== model.height)
      u.setSize({ width: model.width, height: model.height });
    u.batch(() => u.setData(this.data(model), true));
    u.redraw(true, true);
  }

  /** Puts the vertical line at `x`, or takes it away. */
  follow(x: number | null): void {
    const u = this.u;
    if (!u || !this.model) return;
    this.following = true;
    const inside = x !== null && x >= this.model.range.from && x <= this.model.range.to;
    u.setCursor(inside ? { left: u.valToPos(x, 'x'), top: 0 } : { left: -10, top: -10 }, false);
    this.following = false;
  }

  /** Puts a second line at `x`, or takes it away. */
  mark(x: number | null): void {
    this.markLine?.remove();
    this.markLine = null;
    const { u, model } = this;
    if (!u || !model || x === null || x < model.range.from || x > model.range.to) return;
    this.markLine = document.createElement('div');
    this.markLine.className = 'mark-line';
    this.markLine.style.left = `${u.valToPos(x, 'x')}px`;
    u.over.append(this.markLine);
  }

  /** The canvas, for an image. */
  get canvas(): HTMLCanvasElement | null {
    return this.u?.ctx.canvas ?? null;
  }

  /** Takes the plot down. */
  destroy(): void {
    this.u?.destroy();
    this.u = null;
  }

  private data(model: PlotModel): uPlot.AlignedData {
    const columns: Drawn[] = [];
    for (const line of model.shape.lines) {
      if (smoothed(model)) columns.push(drawn(line.raw, model.log));
      columns.push(drawn(line.y, model.log));
    }
    return [Array.from(model.shape.x), ...columns] as uPlot.AlignedData;
  }

  private options(model: PlotModel): uPlot.Options {
    return {
      width: model.width,
      height: model.height,
      legend: { show: false },
      padding: model.lane ? [6, LANE_RIGHT, 7, 0] : [6, () => (this.model!.axis === 'step' ? 20 : 28), 0, 0],
      cursor: {
        y: false,
        drag: { x: true, y: false, setScale: false, dist: 5 },
        bind: {
          dblclick: () => () => {
            this.events.reset();
            return null;
          },
        },
        dataIdx: (_u, index, _closest, at) => this.sample(index, at),
        points: {
          show: model.shape.lines.length <= POINTED_LINES,
          size: 6,
          width: 1.5,
          stroke: () => this.model!.ink.panel,
          fill: (_u, index) => this.look(index).stroke,
        },
      },
      scales: {
        x: { time: false, range: () => [this.model!.range.from, this.model!.range.to] },
        y: { distr: model.log ? 3 : 1, range: () => this.model!.y },
      },
      axes: [this.xAxis(), this.yAxis()],
      series: [{}, ...model.shape.lines.flatMap((_, at) => this.lineSeries(at))],
      hooks: {
        drawAxes: [
          (u) => {
            drawBehind(u, this.model!);
            this.model!.lane?.paint?.(u);
            this.model!.behind?.(u);
          },
        ],
        draw: [
          (u) => {
            drawAbove(u, this.model!);
            this.model!.above?.(u);
          },
        ],
        setSelect: [(u) => this.selected(u)],
        setCursor: [(u) => this.moved(u)],
      },
    };
  }

  private look(index: number): Look {
    const model = this.model!;
    return model.looks[Math.floor((index - 1) / (smoothed(model) ? 2 : 1))] ?? model.looks[0] ?? UNSEEN;
  }

  private line(index: number): Line {
    const model = this.model!;
    return model.shape.lines[Math.floor((index - 1) / (smoothed(model) ? 2 : 1))];
  }

  private sample(index: number, at: number): number | null {
    const model = this.model!;
    if (index === 0 || (smoothed(model) && index % 2 === 1)) return null as unknown as number;
    const found = sampleAt(model.shape.x, this.line(index), at);
    return found < 0 ? (null as unknown as number) : found;
  }

  private lineSeries(at: number): uPlot.Series[] {
    const double = smoothed(this.model!);
    const one = (index: number, faint: boolean): uPlot.Series => ({
      scale: 'y',
      width: 1.4,
      stroke: () => alpha(this.look(index).stroke, this.look(index).alpha * (faint ? 0.3 : 1)),
      dash: this.model!.looks[at].dash,
      gaps: (u, _at, _from, _to, unseen) => [...unseen, ...this.breaks(u, index)].sort((a, b) => a[0] - b[0]),
      points: {
        show: true,
        size: 4,
        filter: (u) => this.dots(u, index, faint),
        fill: () => this.look(index).stroke,
      },
    });
    const first = at * (double ? 2 : 1) + 1;
    return double ? [one(first, true), one(first + 1, false)] : [one(first, false)];
  }

  private breaks(u: uPlot, index: number): uPlot.Series.Gaps {
    const place = (x: number) => Math.round(u.valToPos(x, 'x', true));
    return (this.line(index)?.breaks ?? []).map(({ from, to }) => [place(from), place(to)]);
  }

  /** Dots: samples that no line reaches, and all of them where they stand far apart. */
  private dots(u: uPlot, index: number, faint: boolean): number[] | null {
    const line = this.line(index);
    if (!line || faint) return [];
    const { x } = this.model!.shape;
    const { from, to } = this.model!.range;
    const present: number[] = [];
    for (let at = 0; at < x.length; at++)
      if (Number.isFinite(line.y[at]) && x[at] >= from && x[at] <= to) present.push(at);
    if (present.length <= u.bbox.width / uPlot.pxRatio / 14) return present;
    const ends = new Set(line.breaks.map((b) => b.from));
    const starts = new Set(line.breaks.map((b) => b.to));
    return present.filter((at, place) => {
      const lonelyLeft = place === 0 || starts.has(x[at]);
      const lonelyRight = place === present.length - 1 || ends.has(x[at]);
      return lonelyLeft && lonelyRight;
    });
  }

  private xAxis(): uPlot.Axis {
    let labels: string[] = [];
    return {
      ...this.axisLook(),
      size: this.model!.lane ? 0 : 26,
      gap: 8,
      splits: (u, _at, low, high) => {
        const model = this.model!;
        const most = Math.max(
          2,
          Math.floor(u.bbox.width / uPlot.pxRatio / (model.axis === 'step' ? 72 : 64)),
        );
        const [ticks, texts] = xTicks(model.axis, low, high, most, model.zone);
        labels = texts;
        return ticks;
      },
      filter: (_u, splits) => splits,
      values: (_u, splits) => (this.model!.lane ? splits.map(() => '') : labels.slice(0, splits.length)),
    };
  }

  private yAxis(): uPlot.Axis {
    return {
      ...this.axisLook(),
      size: (u, values) => this.yWidth(u, values),
      gap: 6,
      splits: (u, _at, low, high) => {
        const most = Math.min(8, Math.max(2, Math.floor(u.bbox.height / uPlot.pxRatio / 30)));
        if (this.model!.lane?.bare) return [];
        return this.model!.log ? logTicks(low, high, most) : valueTicks(low, high, most, this.model!.unit);
      },
      filter: (_u, splits) => splits,
      values: (_u, splits) => this.yLabels(splits),
    };
  }

  private yLabels(splits: number[]): string[] {
    const { log, unit, factor } = this.model!;
    return (log ? formatLogTicks : formatTicks)(
      splits.map((v) => v * factor),
      unit,
    );
  }

  private yWidth(u: uPlot, values: string[] | null): number {
    if (this.model!.lane) return this.model!.lane.yWidth;
    u.ctx.font = this.model!.ink.font;
    const widest = Math.max(0, ...(values ?? []).map((v) => u.ctx.measureText(v).width));
    return Math.max(44, Math.ceil(widest) + 14);
  }

  private axisLook(): uPlot.Axis {
    return {
      stroke: () => this.model!.ink.text3,
      font: this.model!.ink.font,
      grid: { stroke: () => this.model!.ink.grid, width: 1 },
      ticks: { show: false },
    };
  }

  private selected(u: uPlot): void {
    const { left, width } = u.select;
    if (width < 5) return;
    const range = { from: u.posToVal(left, 'x'), to: u.posToVal(left + width, 'x') };
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.events.zoom(range);
  }

  private moved(u: uPlot): void {
    if (this.following || !u.cursor.event) return;
    const { left } = u.cursor;
    this.events.cursor(left === undefined || left === null || left < 0 ? null : u.posToVal(left, 'x'));
  }

  private readonly wheel = (event: WheelEvent): void => {
    const u = this.u!;
    this.events.wheel(event, u.posToVal(event.clientX - u.over.getBoundingClientRect().left, 'x'));
  };

  private readonly panStart = (event: MouseEvent): void => {
    if (!event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    event.stopPropagation();
    event.stopImmediatePropagation();
    const width = this.u!.over.clientWidth;
    let last = event.clientX;
    const move = (next: MouseEvent) => {
      this.events.pan((last - next.clientX) / width, false);
      last = next.clientX;
    };
    const up = () => {
      document.removeEventListener('mousemove', move);
      document.removeEventListener('mouseup', up);
      this.events.pan(0, true);
    };
    document.addEventListener('mousemove', move);
    document.addEventListener('mouseup', up);
  };
}

const smoothed = (model: PlotModel) => model.shape.lines.some((l) => l.y !== l.raw);

function drawn(values: Float64Array, log: boolean): Drawn {
  // Nothing there is skipped over, what a log axis can't show breaks the line.
  return Array.from(values, (v) => (Number.isFinite(v) ? (log && v <= 0 ? null : v) : undefined));
}
