/** The charts of one run: which are seen, what they hold, and one question for all of an axis. */
import { batch, computed, effect, type Signal, signal } from '@preact/signals';
import { askHealth, type Health } from '../health/answers';
import { askFirings, type Firing } from '../health/firings';
import type { MetricRow, RunDetail } from '../lib/answers';
import { isAbort } from '../lib/api';
import { neededLabels, Palette, tellingLabels, varyingLabels } from '../lib/colour';
import { askMissing, type MissingAnswer } from '../lib/missing';
import { type Axis, askPoints, type Columns, type PointsAnswer } from '../lib/points';
import { confine, drawable, type Range, union } from './range';
import { type ChartInfo, chartsOf, rank } from './sections';
import { type Shape, shapeOf } from './shape';
import { type StepMap, stepMapOf } from './step_map';
import * as view from './view';

/** Series drawn in one chart at most. */
export const SERIES_MAX = 20;
/** Charts mounted at once at most. */
export const MOUNTED_MAX = 48;
const BUCKETS_MAX = 2000;
/** Processes whose reports of capture are read; those of more would be tens of megabytes. */
const REPORTS_MAX = 2000;
const SETTLE_MS = 100;
const MAP_BUCKETS = 500;
const STEP_SECONDS = 'train_step_seconds';
const natural = new Intl.Collator('en', { numeric: true });

/** A chart's data as it came. */
export interface Loaded {
  axis: Axis;
  shape: Shape;
  pointsRead: number;
}

/** A chart's state. */
export interface ChartState {
  loaded: Signal<Loaded | null>;
  error: Signal<unknown>;
  /** Whether it is on the screen. */
  seen: boolean;
  /** Width of its plot, CSS pixels. */
  width: number;
  /** The question that `loaded` answers. */
  answers: string;
  /** The question that is under way. */
  asks: string;
}

/** Holds the charts of one run. */
export class Board {
  readonly metrics = signal<MetricRow[] | null>(null);
  readonly detail = signal<RunDetail | null>(null);
  /** Why series are missing and what capture reports; `null` until it is read, or where it cannot be told. */
  readonly missing = signal<MissingAnswer | null>(null);
  /** Why that could not be read; `undefined` until it was asked, `null` once it is there. */
  readonly missingError = signal<unknown>(undefined);
  /** What is wrong with the run and what it costs; `null` until it is read. */
  readonly health = signal<Health | null>(null);
  /** Alerts that named the run, the latest first. */
  readonly firings = signal<Firing[]>([]);
  /** Why that could not be read; `null` where it could. */
  readonly healthError = signal<unknown>(null);
  /** One chart per metric. */
  readonly charts = computed(() => chartsOf(this.metrics.value ?? []));
  /** Labels that tell the run's series apart. */
  readonly varying = computed(() => tellingLabels(this.metrics.value ?? []));
  /** Colours by what tells a series apart, those of the first charts first; what is known keeps its own. */
  private readonly palette = new Palette();
  private readonly colours = computed(() => {
    const places = new Map<string, string>();
    const first = (a: string, b: string) => rank(a) - rank(b) || natural.compare(a, b);
    for (const { display, labels } of this.metrics.value ?? []) {
      const key = this.colourKey(labels);
      const known = places.get(key);
      if (known === undefined || first(display, known) < 0) places.set(key, display);
    }
    const keys = [...places].sort((a, b) => first(a[1], b[1]) || natural.compare(a[0], b[0]));
    for (const [key] of keys) this.palette.slot(key);
    return this.palette;
  });
  /** What each axis spans when nothing is zoomed. */
  readonly full: Record<Axis, Signal<Range | null>> = {
    step: signal(null),
    time: signal(null),
    relative: signal(null),
  };
  /** Where the cursor is on each axis. */
  readonly cursor: Record<Axis, Signal<number | null>> = {
    step: signal(null),
    time: signal(null),
    relative: signal(null),
  };
  /** Steps and times as two scales of one axis, once it is read. */
  readonly stepMap = signal<StepMap | null>(null);
  /** Where it is to within a tenth of a second: for lists that are costly to sort anew. */
  readonly settled: Record<Axis, Signal<number | null>> = {
    step: signal(null),
    time: signal(null),
    relative: signal(null),
  };
  /** Whether the cursor stays where it is. */
  readonly pinned = signal(false);
  /** Where it was pinned first, once it is pinned a second time: values are told against those there. */
  readonly mark = signal<Record<Axis, number | null> | null>(null);
  /** Where the pointer is while the cursor stays. */
  hovered: { axis: Axis; x: number } | null = null;
  /** Points read for the last answer of each axis. */
  readonly pointsRead = signal<Partial<Record<Axis, number>>>({});
  /** Goes up with each answer. */
  readonly answered = signal(0);

  private readonly states = new Map<string, ChartState>();
  private readonly controllers = new Map<string, AbortController>();
  private readonly ended = new AbortController();
  private planned = false;
  private mapping: Promise<void> | null = null;

  private settling: ReturnType<typeof setTimeout> | undefined;
  private readonly stopSettling: () => void;

  constructor(readonly runId: string) {
    this.stopSettling = effect(() => {
      void [this.cursor.step.value, this.cursor.time.value, this.cursor.relative.value];
      this.settling ??= setTimeout(() => {
        this.settling = undefined;
        for (const axis of ['step', 'time', 'relative'] as const)
          this.settled[axis].value = this.cursor[axis].peek();
      }, SETTLE_MS);
    });
  }

  /** A chart's state, made when first asked for. */
  state(name: string): ChartState {
    const known = this.states.get(name);
    if (known) return known;
    const made: ChartState = {
      loaded: signal(null),
      error: signal(null),
      seen: false,
      width: 400,
      answers: '',
      asks: '',
    };
    this.states.set(name, made);
    return made;
  }

  /** The axis that a chart is drawn on: time when its points have no steps. */
  axisOf(chart: ChartInfo): Axis {
    return view.pageAxis.value === 'step' && !chart.stepped ? 'time' : view.pageAxis.value;
  }

  /** The x range of an axis now. */
  rangeOf(axis: Axis): Range {
    return drawable(view.zoomOf(axis) ?? this.full[axis].value ?? { from: 0, to: 1 });
  }

  /** Puts the cursor at `x`; beside a page over steps, charts over time follow, and the other way round. */
  point(axis: Axis, x: number | null): void {
    batch(() => {
      this.cursor[axis].value = x;
      const other = this.otherAxis(axis);
      if (other) this.cursor[other].value = x === null ? null : this.translate(axis, x);
    });
  }

  /** Pins the cursor; pins it a second time where the pointer has gone since; then frees it. */
  pin(): void {
    const at = this.hovered;
    this.hovered = null;
    if (!this.pinned.peek()) {
      this.pinned.value = true;
    } else if (at && this.mark.peek() === null && at.x !== this.cursor[at.axis].peek()) {
      const { step, time, relative } = this.cursor;
      batch(() => {
        this.mark.value = { step: step.peek(), time: time.peek(), relative: relative.peek() };
        this.point(at.axis, at.x);
      });
    } else this.unpin();
  }

  /** Frees the cursor. */
  unpin(): void {
    batch(() => {
      this.pinned.value = false;
      this.mark.value = null;
    });
  }

  /** Zooms an axis, and the other scale of the same axis with it. */
  zoom(axis: Axis, range: Range | null, goesOn = false): void {
    const full = this.full[axis].peek();
    const kept = range && full ? confine(range, full) : range;
    const other = this.otherAxis(axis);
    const ends =
      kept && other ? [this.translate(axis, kept.from), this.translate(axis, kept.to)] : [null, null];
    const [from, to] = ends;
    const also = from !== null && to !== null && from < to ? { from, to } : null;
    view.setZoom(axis, kept, goesOn, other && (also || !kept) ? also : undefined);
  }

  private otherAxis(axis: Axis): Axis | null {
    if (view.pageAxis.value !== 'step' || axis === 'relative') return null;
    return axis === 'step' ? 'time' : 'step';
  }

  private translate(axis: Axis, x: number): number | null {
    const map = this.stepMap.peek();
    return map && (axis === 'step' ? map.timeOf(x) : map.stepOf(x));
  }

  /** Reads how steps and times of the run belong together; who asks while that is under way waits for the same answer. */
  readStepMap(): Promise<void> {
    this.mapping ??= this.askStepMap().finally(() => {
      this.mapping = null;
    });
    return this.mapping;
  }

  /** From the first chart that has steps. */
  private async askStepMap(): Promise<void> {
    // A step's own time has its step from whoever took it; others may stand at that of their time.
    const place = (name: string) => (name === STEP_SECONDS ? -1 : rank(name));
    const stepped = this.charts.peek().filter((c) => c.stepped);
    const chart = stepped.sort((a, b) => place(a.name) - place(b.name))[0];
    if (!chart) return;
    const queries = [{ run_id: this.runId, metric: chart.name, labels: chart.series[0].labels, limit: 1 }];
    const question = { from: null, to: null, buckets: MAP_BUCKETS, smooth: null, queries };
    try {
      const [overSteps, overTime] = await Promise.all([
        askPoints({ ...question, axis: 'step' }, this.ended.signal),
        askPoints({ ...question, axis: 'time' }, this.ended.signal),
      ]);
      this.stepMap.value = stepMapOf(overSteps, overTime);
    } catch {
      // Without it, each axis has its own cursor; the charts tell what is wrong.
    }
  }

  /** Reads why series are missing. */
  async readMissing(): Promise<void> {
    try {
      const processes = this.detail.peek()?.sessions.length ?? 0;
      const answer = await askMissing(this.runId, processes <= REPORTS_MAX);
      batch(() => {
        this.missing.value = answer;
        this.missingError.value = null;
      });
    } catch (error) {
      if (!isAbort(error)) this.missingError.value = error;
    }
  }

  /** Reads what is wrong with the run and what it costs. */
  async readHealth(): Promise<void> {
    try {
      const answer = await askHealth(this.runId, this.ended.signal);
      batch(() => {
        this.health.value = answer;
        this.healthError.value = null;
      });
    } catch (error) {
      if (!isAbort(error)) this.healthError.value = error;
    }
  }

  /** Reads which alerts fire or fired; who may not know them has a lane without. */
  async readFirings(): Promise<void> {
    try {
      this.firings.value = await askFirings(this.runId, this.ended.signal);
    } catch {
      // The bar and the Alerts page tell what is wrong with alerts.
    }
  }

  /** Tells that a chart came on the screen or left it. */
  see(name: string, seen: boolean, width: number): void {
    const state = this.state(name);
    state.seen = seen;
    state.width = width;
    if (seen) this.want();
  }

  /** Asks, soon, for what is seen and not there. */
  want(): void {
    if (this.planned) return;
    this.planned = true;
    // A task later, so that all cards that came on the screen together are one question.
    setTimeout(() => {
      this.planned = false;
      void this.load(false);
    });
  }

  /** Asks for what is seen: all of it, or what is not there or answers an older question. */
  async load(again: boolean): Promise<void> {
    const byAxis = new Map<Axis, ChartInfo[]>();
    for (const chart of this.charts.peek()) {
      const state = this.states.get(chart.name);
      if (!state?.seen) continue;
      const axis = this.axisOf(chart);
      byAxis.set(axis, [...(byAxis.get(axis) ?? []), chart]);
    }
    await Promise.all(
      [...byAxis].map(([axis, charts]) => this.loadAxis(axis, charts.slice(0, MOUNTED_MAX), again)),
    );
  }

  private async loadAxis(axis: Axis, charts: ChartInfo[], again: boolean): Promise<void> {
    const zoom = view.zoomOf(axis);
    const widest = Math.max(...charts.map((c) => this.state(c.name).width));
    const density = window.devicePixelRatio > 1.3 ? 1.5 : 1;
    const buckets = Math.min(BUCKETS_MAX, Math.max(50, Math.ceil((widest * density) / 50) * 50));
    const question = JSON.stringify([axis, zoom, buckets, view.smooth.value]);
    const wanted = charts.filter((c) => {
      const state = this.state(c.name);
      return state.asks !== question && (again || state.answers !== question);
    });
    if (wanted.length === 0) return;
    for (const [key, controller] of this.controllers) {
      const [otherAxis] = JSON.parse(key.split('#')[0]) as [Axis];
      if (!key.startsWith(`${question}#`) && otherAxis === axis) controller.abort();
    }
    const controller = new AbortController();
    const key = `${question}#${wanted.map((c) => c.name).join()}`;
    this.controllers.set(key, controller);
    for (const chart of wanted) this.state(chart.name).asks = question;
    try {
      const answer = await askPoints(
        {
          axis,
          from: zoom?.from ?? null,
          to: zoom?.to ?? null,
          buckets,
          smooth: view.smooth.value,
          queries: wanted.map((c) => ({ run_id: this.runId, metric: c.name, limit: SERIES_MAX })),
        },
        controller.signal,
      );
      this.take(axis, zoom, question, wanted, answer);
    } catch (error) {
      if (!isAbort(error)) {
        batch(() => {
          for (const chart of wanted) this.state(chart.name).error.value = error;
        });
      }
    } finally {
      this.controllers.delete(key);
      for (const chart of wanted)
        if (this.state(chart.name).asks === question) this.state(chart.name).asks = '';
    }
  }

  private take(
    axis: Axis,
    zoom: Range | null,
    question: string,
    charts: ChartInfo[],
    answer: PointsAnswer,
  ): void {
    const columns: Columns[][] = charts.map(() => []);
    for (const series of answer.series) columns[series.query]?.push(series);
    batch(() => {
      if (!zoom && answer.x.length > 0)
        this.full[axis].value = union(this.full[axis].peek(), { from: answer.from, to: answer.to });
      charts.forEach((chart, at) => {
        const state = this.state(chart.name);
        const labels = columns[at].map((c) => ({ ...c.labels, scale: c.scale }));
        const varying = neededLabels(labels, varyingLabels(labels, true));
        state.loaded.value = {
          axis,
          shape: shapeOf(answer.x, columns[at], varying),
          pointsRead: answer.pointsRead,
        };
        state.error.value = null;
        state.answers = question;
      });
      this.pointsRead.value = { ...this.pointsRead.peek(), [axis]: answer.pointsRead };
      this.answered.value = this.answered.peek() + 1;
    });
  }

  /** Colour slot of a line: by what tells it apart among all series of the run. */
  slot(labels: Record<string, string>): number {
    return this.colours.value.slot(this.colourKey(labels));
  }

  private colourKey(labels: Record<string, string>): string {
    return this.varying.value.flatMap((k) => (k in labels ? `${k}=${labels[k]}` : [])).join('\n');
  }

  /** Calls off everything under way. */
  end(): void {
    this.ended.abort();
    clearTimeout(this.settling);
    this.stopSettling();
    for (const controller of this.controllers.values()) controller.abort();
  }
}
