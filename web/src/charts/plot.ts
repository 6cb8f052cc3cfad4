/** One uPlot canvas: lines, envelope, hatched gaps, marks on the frame, cursor, brush, wheel and pan. */
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { formatTicks } from '../lib/number';
import type { Axis } from '../lib/points';
import { formatSpan, type Zone } from '../lib/time';
import { hatch, type Ink } from './ink';
import type { Range } from './range';
import { type Line, type Shape, sampleAt } from './shape';
import { formatLogTicks, logTicks, valueTicks, xTicks } from './ticks';

/** How a line looks. */
export interface Look {
  slot: number;
  stroke: string;
  dash: number[];
  /** 1, or less for what steps back. */
  alpha: number;
}

/** Everything a plot shows. */
export interface PlotModel {
  shape: Shape;
  looks: Look[];
  range: Range;
  y: [low: number, high: number];
  log: boolean;
  envelope: boolean;
  axis: Axis;
  zone: Zone;
  unit: string;
  ink: Ink;
  width: number;
  height: number;
  /** How old the end of the line is, in words, when it should have gone on; else `null`. */
  stale: string | null;
  /** Whether what a restart threw away is named. */
  named: boolean;
}

/** What the person does to a plot. */
export interface PlotEvents {
  zoom(range: Range): void;
  reset(): void;
  cursor(x: number | null): void;
  wheel(event: WheelEvent, at: number): void;
  pan(share: number, ended: boolean): void;
}

type Drawn = (number | null | undefined)[];

/** A mounted plot. */
export class Plot {
  private u: uPlot | null = null;
  private model: PlotModel | null = null;
  private signature = '';
  private following = false;

  constructor(
    private readonly root: HTMLElement,
    private readonly events: PlotEvents,
  ) {}

  /** Shows a model; what was shown stays until it is drawn. */
  render(model: PlotModel): void {
    const signature = [model.shape.lines.length, smoothed(model), model.log].join();
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
    const ratio = () => uPlot.pxRatio;
    return {
      width: model.width,
      height: model.height,
      legend: { show: false },
      padding: [6, 8, 0, 0],
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
        drawAxes: [(u) => this.drawBehind(u, ratio())],
        draw: [(u) => this.drawAbove(u, ratio())],
        setSelect: [(u) => this.selected(u)],
        setCursor: [(u) => this.moved(u)],
      },
    };
  }

  private look(index: number): Look {
    const model = this.model!;
    return model.looks[Math.floor((index - 1) / (smoothed(model) ? 2 : 1))] ?? model.looks[0];
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
      gaps: (u) =>
        (this.line(index)?.breaks ?? []).map(({ from, to }) => [
          Math.round(u.valToPos(from, 'x', true)),
          Math.round(u.valToPos(to, 'x', true)),
        ]) as uPlot.Series.Gaps,
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
      size: 22,
      gap: 4,
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
      values: (_u, splits) => labels.slice(0, splits.length),
    };
  }

  private yAxis(): uPlot.Axis {
    return {
      ...this.axisLook(),
      size: (u, values) => this.yWidth(u, values),
      gap: 6,
      splits: (u, _at, low, high) => {
        const most = Math.max(2, Math.floor(u.bbox.height / uPlot.pxRatio / 30));
        return this.model!.log ? logTicks(low, high, most) : valueTicks(low, high, most, this.model!.unit);
      },
      filter: (_u, splits) => splits,
      values: (_u, splits) => (this.model!.log ? formatLogTicks : formatTicks)(splits, this.model!.unit),
    };
  }

  private yWidth(u: uPlot, values: string[] | null): number {
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

  private drawBehind(u: uPlot, ratio: number): void {
    const { shape, ink, envelope, looks, log } = this.model!;
    const { ctx, bbox } = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    for (const hole of shape.holes) this.drawHole(u, hole, ratio);
    if (envelope) {
      shape.lines.forEach((line, at) => {
        ctx.fillStyle = alpha(looks[at].stroke, 0.18 * looks[at].alpha);
        band(u, shape.x, line, log);
      });
    }
    ctx.restore();
    ctx.fillStyle = ink.text3;
  }

  private drawHole(u: uPlot, hole: Range, ratio: number): void {
    const { ink, axis } = this.model!;
    const { ctx, bbox } = u;
    const left = Math.max(bbox.left, u.valToPos(hole.from, 'x', true));
    const right = Math.min(bbox.left + bbox.width, u.valToPos(hole.to, 'x', true));
    if (right - left < 2 * ratio) return;
    hatch(ctx, { x: left, y: bbox.top, w: right - left, h: bbox.height }, ink.line2, ratio);
    if (right - left < 60 * ratio) return;
    const length = hole.to - hole.from;
    const text =
      axis === 'step'
        ? `no data for ${formatTicks([length])[0]} steps`
        : `no data ${formatSpan(axis === 'time' ? length / 1000 : length)}`;
    label(ctx, ink, text, (left + right) / 2, bbox.top + bbox.height / 2, right - left, ratio);
  }

  private drawAbove(u: uPlot, ratio: number): void {
    const model = this.model!;
    const { ctx } = u;
    ctx.save();
    this.drawMarks(u, ratio);
    if (model.shape.lost && model.named) this.drawLost(u, ratio);
    if (model.stale) this.drawStale(u, model.stale, ratio);
    ctx.restore();
  }

  private drawMarks(u: uPlot, ratio: number): void {
    const { shape, ink, range } = this.model!;
    const { ctx, bbox } = u;
    const groups: { at: number; x: number; kind: string; count: number }[] = [];
    for (const mark of shape.marks) {
      if (mark.x < range.from || mark.x > range.to) continue;
      const at = u.valToPos(mark.x, 'x', true);
      const near = groups.find((g) => g.kind === mark.kind && at - g.x < 44 * ratio);
      if (near) near.count += mark.count;
      else groups.push({ at, x: at, kind: mark.kind, count: mark.count });
    }
    for (const { at, kind, count } of groups) {
      const low = kind === '-Inf';
      const edge = low ? bbox.top + bbox.height : bbox.top;
      const way = low ? -1 : 1;
      ctx.strokeStyle = ink.crit;
      ctx.fillStyle = ink.crit;
      ctx.lineWidth = ratio;
      ctx.setLineDash([2 * ratio, 2 * ratio]);
      ctx.beginPath();
      ctx.moveTo(at, bbox.top);
      ctx.lineTo(at, bbox.top + bbox.height);
      ctx.stroke();
      ctx.beginPath();
      ctx.moveTo(at - 4 * ratio, edge);
      ctx.lineTo(at + 4 * ratio, edge);
      ctx.lineTo(at, edge + way * 6 * ratio);
      ctx.fill();
      const text = count > 1 ? `${kind} ×${count}` : kind;
      ctx.font = scaled(ink.fontStrong, ratio);
      const right = at + 8 * ratio + ctx.measureText(text).width < bbox.left + bbox.width;
      ctx.textAlign = right ? 'left' : 'right';
      ctx.textBaseline = 'middle';
      halo(ctx, ink, text, at + (right ? 7 : -7) * ratio, edge + way * 7 * ratio, ratio, ink.crit);
    }
  }

  private drawLost(u: uPlot, ratio: number): void {
    const { shape, ink, range } = this.model!;
    const lost = shape.lost!;
    const ghost = shape.lines.find((l) => l.ghost && l.attempt === lost.attempt)!;
    const at = sampleAt(shape.x, { ...ghost, spacing: Infinity }, lost.x);
    if (at < 0 || shape.x[at] < range.from || shape.x[at] > range.to) return;
    const [x, y] = [u.valToPos(shape.x[at], 'x', true), u.valToPos(ghost.raw[at], 'y', true)];
    const { ctx, bbox } = u;
    const text = `attempt ${lost.attempt}, ${formatTicks([Math.round(lost.steps)])[0]} steps not kept`;
    const up = y - 22 * ratio > bbox.top;
    const end = up ? y - 14 * ratio : y + 14 * ratio;
    ctx.strokeStyle = ink.peer;
    ctx.lineWidth = ratio;
    ctx.setLineDash([]);
    ctx.beginPath();
    ctx.moveTo(x, y + (up ? -3 : 3) * ratio);
    ctx.lineTo(x, end);
    ctx.stroke();
    ctx.font = scaled(ink.font, ratio);
    const half = ctx.measureText(text).width / 2;
    const middle = Math.min(Math.max(x, bbox.left + half + 4), bbox.left + bbox.width - half - 4);
    ctx.textAlign = 'center';
    ctx.textBaseline = up ? 'bottom' : 'top';
    halo(ctx, ink, text, middle, end, ratio, ink.text2);
  }

  private drawStale(u: uPlot, text: string, ratio: number): void {
    const { shape, ink, looks } = this.model!;
    const { ctx, bbox } = u;
    shape.lines.forEach((line, index) => {
      if (line.ghost) return;
      const at = line.y.findLastIndex(Number.isFinite);
      if (at < 0 || line.attempt !== shape.lines[shape.lines.length - 1].attempt) return;
      const [x, y] = [u.valToPos(shape.x[at], 'x', true), u.valToPos(line.y[at], 'y', true)];
      if (x > bbox.left + bbox.width + 1) return;
      ctx.beginPath();
      ctx.arc(x, y, 3 * ratio, 0, 7);
      ctx.fillStyle = ink.panel;
      ctx.fill();
      ctx.setLineDash([]);
      ctx.lineWidth = 1.4 * ratio;
      ctx.strokeStyle = looks[index].stroke;
      ctx.stroke();
      if (index !== shape.lines.length - 1) return;
      ctx.font = scaled(ink.font, ratio);
      ctx.textAlign = 'right';
      ctx.textBaseline = 'bottom';
      halo(ctx, ink, text, x, y - 6 * ratio, ratio, ink.text3);
    });
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
  return Array.from(values, (v) => (Number.isFinite(v) && (!log || v > 0) ? v : undefined));
}

/** A colour of the tokens with an opacity. */
export function alpha(colour: string, opacity: number): string {
  if (opacity >= 1) return colour;
  return (
    colour +
    Math.round(Math.max(0, opacity) * 255)
      .toString(16)
      .padStart(2, '0')
  );
}

const scaled = (font: string, ratio: number) =>
  font.replace(/(\d+)px/, (_, size: string) => `${Number(size) * ratio}px`);

function halo(
  ctx: CanvasRenderingContext2D,
  ink: Ink,
  text: string,
  x: number,
  y: number,
  ratio: number,
  colour: string,
): void {
  ctx.setLineDash([]);
  ctx.lineJoin = 'round';
  ctx.lineWidth = 3 * ratio;
  ctx.strokeStyle = ink.panel;
  ctx.strokeText(text, x, y);
  ctx.fillStyle = colour;
  ctx.fillText(text, x, y);
}

function label(
  ctx: CanvasRenderingContext2D,
  ink: Ink,
  text: string,
  x: number,
  y: number,
  room: number,
  ratio: number,
): void {
  ctx.font = scaled(ink.font, ratio);
  ctx.textAlign = 'center';
  ctx.textBaseline = 'middle';
  if (ctx.measureText(text).width + 8 * ratio <= room) halo(ctx, ink, text, x, y, ratio, ink.text2);
}

/** Fills the min-max band of one line, in the pieces between its breaks. */
function band(u: uPlot, x: Float64Array, line: Line, log: boolean): void {
  const { ctx } = u;
  const ends = new Set(line.breaks.map((b) => b.to));
  let piece: number[] = [];
  const fill = () => {
    if (piece.some((at) => line.max[at] > line.min[at])) {
      ctx.beginPath();
      for (const at of piece) ctx.lineTo(u.valToPos(x[at], 'x', true), u.valToPos(line.max[at], 'y', true));
      for (const at of piece.toReversed())
        ctx.lineTo(u.valToPos(x[at], 'x', true), u.valToPos(line.min[at], 'y', true));
      ctx.fill();
    }
    piece = [];
  };
  for (let at = 0; at < x.length; at++) {
    if (!Number.isFinite(line.min[at]) || !Number.isFinite(line.max[at]) || (log && line.min[at] <= 0))
      continue;
    if (ends.has(x[at])) fill();
    piece.push(at);
  }
  fill();
}
