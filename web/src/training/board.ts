/** What the Training tab shows: the panels, where a step's time goes, how far the ranks are apart. */
import { batch, computed, effect, signal, untracked } from '@preact/signals';
import type { Board } from '../charts/board';
import { type Range, union } from '../charts/range';
import type { AttemptSpan, Shape } from '../charts/shape';
import * as view from '../charts/view';
import { param } from '../lib/address';
import type { MetricRow } from '../lib/answers';
import { isAbort, tokenEntered } from '../lib/api';
import { paced } from '../lib/pace';
import { type Axis, askPoints } from '../lib/points';
import { isLive } from '../pages/run_feed';
import { rankLabel } from '../ranks/crew';
import { askBreakdown, askTraining, type Breakdown, type TrainingAnswer } from './answers';
import { type Grown, keptSteps, stepAt, timeAt, toSteps } from './fold';
import { askMatrix, findIds, type Other } from './others';
import { instrumentOf, KEYS, STEP_SECONDS, STEP_TIME } from './panels';
import { chartOf, type Drawn, GROUP, isTimed, type KeyData, readKeys, readMaps, skipsOf } from './read';
import { type Spread, spreadOf } from './spread';
import { quantileShape, readQuantiles, type Timed } from './step_time';

/** What came for one panel. */
export interface PanelData {
  axis: Axis;
  shape: Shape;
  /** Series that one line stands for; 0 where each has its own. */
  folded: number;
  /** Whether points over time were moved onto steps. */
  moved: boolean;
  came: number;
  total: number;
}

const LIVE_MS = 2000;
const FACTS_MS = 6000;
/** With more series than this, points are read anew less often. */
const MANY_SERIES = 200;
const MANY_MS = 10_000;
const SPREAD_SERIES = 2000;
const SPREAD_VALUES = 400_000;
const BUCKETS_MIN = 40;
const COLUMN_PX = 4;
const COLUMNS_MAX = 400;

/** Metrics whose ranks can be held beside each other, most telling first. */
const SPREAD_KEYS = [
  STEP_SECONDS,
  'memory_allocated_gb',
  'tokens_per_sec',
  'throughput_tflops',
  'loss',
  'grad_norm',
];

/** Holds the tab. */
export class TrainingBoard {
  readonly training = signal<TrainingAnswer | null>(null);
  readonly breakdown = signal<Breakdown | null>(null);
  /** Points by the instrument's key. */
  readonly data = signal<ReadonlyMap<string, PanelData>>(new Map());
  readonly skips = signal<Grown[]>([]);
  readonly stepTime = signal<PanelData | null>(null);
  readonly spread = signal<(Spread & { axis: Axis }) | null>(null);
  /** Why something could not be read, by what was asked together. */
  readonly errors = signal<ReadonlyMap<string, unknown>>(new Map());
  /** Width of a plot, CSS pixels. */
  readonly width = signal(0);
  /** Width of the breakdown, CSS pixels. */
  readonly wide = signal(0);
  /** Runs that are laid over this one. */
  readonly others = signal<Other[]>([]);
  /** Ids that no run has. */
  readonly unknown = signal<string[]>([]);
  /** Whether steps and times have been joined, or cannot be. */
  private readonly joined = signal(false);

  /** Rows by canonical name. */
  private readonly rows = computed(() => {
    const rows = new Map<string, MetricRow[]>();
    for (const row of this.board.metrics.value ?? []) {
      const of = rows.get(row.name);
      if (of) of.push(row);
      else rows.set(row.name, [row]);
    }
    return rows;
  });
  /** Whether anything of the run has steps. */
  readonly stepped = computed(() => this.board.charts.value.some((c) => c.stepped));
  /** The x axis: time where nothing has steps. */
  readonly axis = computed<Axis>(() =>
    view.pageAxis.value === 'step' && !this.stepped.value ? 'time' : view.pageAxis.value,
  );
  /** Metrics that several ranks have, by key. */
  readonly spreadKeys = computed(() => SPREAD_KEYS.filter((key) => this.ranksOf(key) > 1));
  readonly spreadKey = computed(
    () => this.spreadKeys.value.find((key) => key === param('spread')) ?? this.spreadKeys.value[0] ?? null,
  );
  /** The rank whose steps are taken apart; `null` for the mean of all. */
  readonly rank = computed(() => (/^\d{1,7}$/.test(param('rank')) ? Number(param('rank')) : null));

  private controller = new AbortController();
  private readonly ended = new AbortController();
  private readonly stops: (() => void)[] = [];
  private asked = '';
  private taken = '';
  private apart = '';
  private readonly slots = new Map<string, number>();

  constructor(readonly board: Board) {
    const live = paced(() => this.load(true), LIVE_MS);
    const slow = paced(() => this.load(true), MANY_MS);
    const facts = paced(
      () => Promise.all([this.readTraining(), this.takeApart(true)]).then(() => {}),
      FACTS_MS,
    );
    let points = -1;
    this.stops.push(
      live.end,
      slow.end,
      facts.end,
      effect(() => {
        void tokenEntered.value;
        untracked(() => void this.readTraining());
      }),
      effect(() => {
        if (this.stepped.value) untracked(() => void this.join());
      }),
      effect(() => {
        const ids = [param('ids'), this.training.value?.ids.join(), this.board.metrics.value !== null].join();
        if (this.training.value !== null) untracked(() => void this.findOthers(ids));
      }),
      effect(() => {
        // What is asked depends on these.
        void [this.axis.value, this.zoomed(), this.joined.value, this.others.value, this.spreadKey.value];
        const ready =
          this.width.value > 0 && this.training.value !== null && this.board.metrics.value !== null;
        if (ready) untracked(() => void this.load(false));
      }),
      effect(() => {
        void [this.axis.value, this.zoomed(), this.rank.value, this.joined.value];
        if (this.wide.value > 0) untracked(() => void this.takeApart(false));
      }),
      effect(() => {
        const now = this.board.detail.value?.points ?? 0;
        if (points >= 0 && now !== points && isLive()) {
          (this.many() ? slow : live).ask();
          facts.ask();
        }
        points = now;
      }),
    );
  }

  /** The rows of an instrument, or of step times. */
  rowsOf(key: string): MetricRow[] {
    const name = key === STEP_SECONDS ? STEP_SECONDS : instrumentOf(this.training.value, key)?.metric;
    return name ? (this.rows.value.get(name) ?? []) : [];
  }

  /** Ranks that have series of a key. */
  ranksOf(key: string): number {
    return new Set(this.rowsOf(key).flatMap((row) => rankLabel(row.labels) ?? [])).size;
  }

  private many(): boolean {
    return KEYS.reduce((sum, key) => sum + this.rowsOf(key).length, 0) > MANY_SERIES;
  }

  /** The page's zoom; `null` for all. */
  zoomed(): Range | null {
    return view.zoomOf(this.axis.value);
  }

  /** The step at a time; `null` where steps and times are not joined, as before the first step that is known. */
  stepOf(time: number): number | null {
    const map = this.board.stepMap.value;
    const kept = map && keptSteps(map);
    if (!kept || time < kept.times[0] - kept.spacing) return null;
    const step = Math.round(stepAt(kept, time, Infinity));
    return Number.isNaN(step) ? null : step;
  }

  /** Spans of the attempts on the axis, where they are known. */
  attempts(): AttemptSpan[] | undefined {
    if (this.axis.value !== 'step') return undefined;
    for (const { axis, shape, moved } of this.data.value.values())
      if (axis === 'step' && !moved && shape.attempts.length > 0) return shape.attempts;
    const [map, detail] = [this.board.stepMap.value, this.board.detail.value];
    if (!map || !detail) return undefined;
    const kept = keptSteps(map);
    return detail.attempts_list.flatMap((a) => {
      if (a.started_ms === null) return [];
      const from = stepAt(kept, a.started_ms, Infinity);
      const to = stepAt(kept, a.ended_ms ?? detail.last_time_ms ?? a.started_ms, Infinity);
      return to >= from ? [{ number: a.number, from, to }] : [];
    });
  }

  // What plots and legends need of a page.
  get pinned(): Board['pinned'] {
    return this.board.pinned;
  }
  get cursor(): Board['cursor'] {
    return this.board.cursor;
  }
  get settled(): Board['settled'] {
    return this.board.settled;
  }
  get mark(): Board['mark'] {
    return this.board.mark;
  }
  get hovered(): Board['hovered'] {
    return this.board.hovered;
  }
  set hovered(at: Board['hovered']) {
    this.board.hovered = at;
  }
  rangeOf(axis: Axis): Range {
    return this.board.rangeOf(axis);
  }
  point(axis: Axis, x: number | null): void {
    this.board.point(axis, x);
  }
  zoom(axis: Axis, range: Range | null, goesOn = false): void {
    this.board.zoom(axis, range, goesOn);
  }

  /** Colour slot of a line: of its run where several are drawn, else of what tells it apart. */
  slot(labels: Record<string, string>): number {
    return GROUP in labels ? (this.slots.get(labels[GROUP]) ?? 0) : this.board.slot(labels);
  }

  /** A statistic of one series keeps its hue: what it is, its dash tells. */
  dash(labels: Record<string, string>): number[] | undefined {
    return labels.q === 'p95' ? [6, 3] : undefined;
  }

  private async readTraining(): Promise<void> {
    await this.attempt('training', async () => {
      this.training.value = await askTraining(this.board.runId, this.ended.signal);
    });
  }

  private async join(): Promise<void> {
    if (this.board.stepMap.peek() === null) await this.board.readStepMap();
    this.joined.value = true;
  }

  private async findOthers(asked: string): Promise<void> {
    if (asked === this.taken) return;
    this.taken = asked;
    const own = this.training.peek()?.ids ?? [];
    const wanted = param('ids').split(',').filter(Boolean);
    await this.attempt('ids', async () => {
      const found = await findIds(wanted, { runId: this.board.runId, own }, this.ended.signal);
      if (asked !== this.taken) return;
      const without = found.others.filter((o) => o.map === null).map((o) => o.runId);
      const maps = await readMaps(without, askPoints, this.ended.signal);
      batch(() => {
        this.others.value = found.others.map((o) => ({ ...o, map: o.map ?? maps.get(o.runId) ?? null }));
        this.unknown.value = found.unknown;
      });
    });
  }

  /** The page's own run first, then those laid over it. */
  private drawn(): Drawn[] {
    const detail = this.board.detail.peek();
    const own = {
      runId: this.board.runId,
      name: detail?.run ?? this.board.runId,
      map: this.board.stepMap.peek(),
    };
    const all = [own, ...this.others.peek()];
    // Equal names are told apart by the run's id.
    return all.map((one) =>
      all.some((o) => o !== one && o.name === one.name)
        ? { ...one, name: `${one.name} ${one.runId.slice(0, 6)}` }
        : one,
    );
  }

  /** Asks for the points; unless `again`, only when it is another question. */
  async load(again: boolean): Promise<void> {
    const [axis, zoom, runs] = [this.axis.peek(), untracked(() => this.zoomed()), this.drawn()];
    // Points without steps wait until they can be moved onto steps.
    if (axis === 'step' && !this.joined.peek()) return;
    const key = JSON.stringify([
      axis,
      zoom,
      runs.map((r) => [r.runId, r.map !== null]),
      this.spreadKey.peek(),
    ]);
    const width = this.width.peek();
    if (!again && `${key}${width}` === this.asked) return;
    this.asked = `${key}${width}`;
    this.controller.abort();
    this.controller = new AbortController();
    const { signal } = this.controller;
    await Promise.all([
      this.attempt('points', () => this.loadKeys(runs, axis, zoom, signal)),
      this.attempt('step time', () => this.loadStepTime(runs, axis, zoom, signal)),
      this.attempt('spread', () => this.loadSpread(axis, zoom, signal)),
    ]);
  }

  private async loadKeys(runs: Drawn[], axis: Axis, zoom: Range | null, signal: AbortSignal): Promise<void> {
    const names = KEYS.flatMap((key) => {
      const metric = instrumentOf(this.training.peek(), key)?.metric;
      return metric ? [[key, metric] as const] : [];
    });
    if (names.length === 0) return;
    const rows = new Map(names.map(([key]) => [key, this.rowsOf(key)]));
    const wanted = {
      runs,
      metrics: new Map(names),
      stepped: new Set(
        names.flatMap(([key]) => (rows.get(key)!.some((r) => r.last_step !== null) ? key : [])),
      ),
      axis,
      zoom,
      width: this.width.peek(),
      series: new Map([...rows].map(([key, of]) => [key, of.length])),
    };
    const found = await readKeys(wanted, askPoints, signal);
    batch(() => {
      this.data.value = new Map([...found].map(([key, data]) => [key, this.panelOf(data, runs)]));
      this.skips.value = skipsOf(found, this.board.runId, zoom === null);
      if (zoom === null) for (const { axis: on, range } of found.values()) this.widen(on, range);
    });
  }

  private panelOf(data: KeyData, runs: Drawn[]): PanelData {
    const { shape, folded } = chartOf(data, runs);
    if (runs.length > 1) for (const line of shape.lines) this.colour(line.labels[GROUP], runs);
    const { axis, came, total } = data;
    return {
      axis,
      shape,
      folded,
      moved: data.moved || (axis === 'step' && data.pieces.every(isTimed)),
      came,
      total,
    };
  }

  /** The colour of a line is that of its run, whichever panel it is in. */
  private colour(group: string | undefined, runs: Drawn[]): void {
    const at = runs.findIndex((run) => group === run.name || group?.startsWith(`${run.name} · `));
    if (group !== undefined && at >= 0) this.slots.set(group, at);
  }

  private widen(axis: Axis, range: Range | null): void {
    const full = this.board.full[axis];
    if (range) full.value = union(full.peek(), { from: range.from, to: range.to });
  }

  private async loadStepTime(
    runs: Drawn[],
    axis: Axis,
    zoom: Range | null,
    signal: AbortSignal,
  ): Promise<void> {
    const metric = instrumentOf(this.training.peek(), STEP_TIME)?.metric;
    const rows = metric ? (this.rows.peek().get(`${metric}_bucket`) ?? []) : [];
    // Where each step's own time is logged, it says more than a histogram of means.
    const own = metric ? (this.rows.peek().get(metric) ?? []) : [];
    if (!metric || rows.length === 0 || own.length > 0)
      return await this.loadOwnSteps(runs, metric, axis, zoom, signal);
    const times = this.timesOf(axis, zoom, rows);
    const asked = {
      metric,
      times,
      axis,
      interval: this.intervalOf(rows),
      width: this.width.peek(),
      alone: runs.length === 1,
    };
    const all = await Promise.all(
      runs.map((run) => readQuantiles(this.timed(run), asked, askMatrix, signal)),
    );
    const shape = quantileShape(all.flat());
    if (runs.length > 1) for (const line of shape.lines) this.colour(line.labels[GROUP], runs);
    const moved = axis === 'step';
    this.stepTime.value = {
      axis,
      shape,
      folded: 0,
      moved,
      came: shape.lines.length,
      total: shape.lines.length,
    };
  }

  /** Without a histogram: every step's own time. */
  private async loadOwnSteps(
    runs: Drawn[],
    metric: string | null | undefined,
    axis: Axis,
    zoom: Range | null,
    signal: AbortSignal,
  ): Promise<void> {
    const name = metric && (this.rows.peek().get(metric)?.length ?? 0) > 0 ? metric : STEP_SECONDS;
    const rows = this.rows.peek().get(name) ?? [];
    if (rows.length === 0) {
      this.stepTime.value = null;
      return;
    }
    const wanted = {
      runs,
      metrics: new Map([['step', name]]),
      stepped: new Set(rows.some((r) => r.last_step !== null) ? ['step'] : []),
      axis,
      zoom,
      width: this.width.peek(),
      series: new Map([['step', rows.length]]),
    };
    const data = (await readKeys(wanted, askPoints, signal)).get('step');
    if (data && zoom === null) this.widen(data.axis, data.range);
    this.stepTime.value = data ? this.panelOf(inSeconds(data, name === metric), runs) : null;
  }

  /** How often the histogram gets an observation, seconds. */
  private intervalOf(rows: MetricRow[]): number {
    const told = this.training.peek()?.export.interval_seconds;
    const row = rows[0];
    const [first, last] = [row.first_time_ms ?? 0, row.last_time_ms ?? 0];
    return told ?? (row.points > 1 ? (last - first) / (row.points - 1) / 1000 : 10);
  }

  private timed(run: Drawn): Timed {
    const other = this.others.peek().find((o) => o.runId === run.runId);
    return { ...run, origin: other?.startedMs ?? this.board.detail.peek()?.started_ms ?? 0 };
  }

  /** The times that the page is zoomed to; `null` for all. */
  times(): Range | null {
    const zoom = this.zoomed();
    const known = this.axis.value !== 'step' || this.board.stepMap.value !== null;
    return zoom && known ? this.timesOf(this.axis.value, zoom, []) : null;
  }

  /** The times that a zoom of the axis spans, ms; those of the rows for none. */
  private timesOf(axis: Axis, zoom: Range | null, rows: MetricRow[]): Range {
    const map = this.board.stepMap.peek();
    const whole = {
      from: Math.min(...rows.map((r) => r.first_time_ms ?? Infinity)),
      to: Math.max(...rows.map((r) => r.last_time_ms ?? -Infinity)),
    };
    if (!zoom) return whole;
    if (axis === 'time') return zoom;
    const origin = this.board.detail.peek()?.started_ms ?? 0;
    if (axis === 'relative') return { from: origin + zoom.from * 1000, to: origin + zoom.to * 1000 };
    if (!map) return whole;
    const kept = keptSteps(map);
    return { from: timeAt(kept, zoom.from), to: timeAt(kept, zoom.to) };
  }

  private async loadSpread(axis: Axis, zoom: Range | null, signal: AbortSignal): Promise<void> {
    const key = this.spreadKey.peek();
    if (key === null) {
      this.spread.value = null;
      return;
    }
    const rows = this.rowsOf(key);
    const own = this.drawn().slice(0, 1);
    const count = Math.min(SPREAD_SERIES, rows.length);
    const moved = axis === 'step' && !rows.some((r) => r.last_step !== null);
    const map = own[0].map;
    const times = moved && map ? this.timesOf(axis, zoom, rows) : null;
    const asAxis: Axis = moved ? 'time' : axis;
    const range = moved ? times : zoom;
    const answer = await askPoints(
      {
        axis: asAxis,
        from: range?.from ?? null,
        to: range?.to ?? null,
        buckets: Math.max(BUCKETS_MIN, Math.min(300, Math.floor(SPREAD_VALUES / count))),
        smooth: null,
        columns: ['last', 'count'],
        queries: [{ run_id: this.board.runId, metric: rows[0].name, limit: count }],
      },
      signal,
    );
    const pieces = answer.series.map((column) => ({ x: answer.x, column }));
    const data = { axis: asAxis, pieces, range: null, moved, came: count, total: rows.length };
    this.spread.value = this.spreadIn(data, map, moved);
  }

  private spreadIn(data: KeyData, map: Drawn['map'], moved: boolean): (Spread & { axis: Axis }) | null {
    const onSteps = moved && map !== null;
    const pieces = onSteps ? data.pieces.map((p) => toSteps(p, map)) : data.pieces;
    const spread = spreadOf(pieces);
    if (spread.ranks === 0) return null;
    spread.shape.lines.forEach((line, at) => {
      this.slots.set(line.labels[GROUP], at);
    });
    return { ...spread, axis: onSteps ? 'step' : data.axis };
  }

  /** Asks where the time of the steps went. */
  async takeApart(again: boolean): Promise<void> {
    const zoom = untracked(() => this.steps());
    // In coarse steps, so that a window that is dragged wider asks few times.
    const room = Math.floor(this.wide.peek() / COLUMN_PX / BUCKETS_MIN) * BUCKETS_MIN;
    const buckets = Math.max(BUCKETS_MIN, Math.min(COLUMNS_MAX, room));
    const asked = { from: zoom?.from ?? null, to: zoom?.to ?? null, rank: this.rank.peek(), buckets };
    const key = JSON.stringify(asked);
    if (!again && key === this.apart) return;
    this.apart = key;
    await this.attempt('breakdown', async () => {
      const answer = await askBreakdown(this.board.runId, asked, this.ended.signal);
      if (this.apart !== key) return;
      batch(() => {
        this.breakdown.value = answer;
        const { x } = answer;
        const full = this.board.full.step;
        if (zoom === null && x.length > 0)
          full.value = union(full.peek(), { from: x[0], to: x[x.length - 1] });
      });
    });
  }

  /** The steps that the zoom of the page spans; `null` for all. */
  private steps(): Range | null {
    const [axis, zoom] = [this.axis.value, this.zoomed()];
    if (!zoom || axis === 'step') return zoom;
    const map = this.board.stepMap.peek();
    if (!map) return null;
    const kept = keptSteps(map);
    const times = this.timesOf(axis, zoom, []);
    return { from: stepAt(kept, times.from, Infinity), to: stepAt(kept, times.to, Infinity) };
  }

  /** Does something and keeps why it failed, until it succeeds. */
  private async attempt(what: string, act: () => Promise<void>): Promise<void> {
    const told = (error: unknown) => {
      const next = new Map(this.errors.peek());
      if (error === null) next.delete(what);
      else next.set(what, error);
      if (error !== null || this.errors.peek().has(what)) this.errors.value = next;
    };
    try {
      await act();
      told(null);
    } catch (error) {
      if (!isAbort(error)) told(error);
    }
  }

  /** Tries everything again. */
  async again(): Promise<void> {
    this.taken = '';
    await Promise.all([this.readTraining(), this.load(true), this.takeApart(true)]);
  }

  /** Calls off everything. */
  end(): void {
    for (const stop of this.stops) stop();
    this.controller.abort();
    this.ended.abort();
  }
}

/** Step times in seconds: the trainer's own are milliseconds. */
function inSeconds(data: KeyData, milliseconds: boolean): KeyData {
  if (!milliseconds) return data;
  const part = (values: Float64Array) => values.map((v) => v / 1000);
  return {
    ...data,
    pieces: data.pieces.map(({ x, column }) => ({
      x,
      column: { ...column, last: part(column.last), min: part(column.min), max: part(column.max) },
    })),
  };
}
