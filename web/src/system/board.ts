/** What the System tab shows: its lanes, the cards, what is selected, and the questions for their points. */
import { batch, computed, effect, signal, untracked } from '@preact/signals';
import type { Board } from '../charts/board';
import { type Range, union } from '../charts/range';
import { type ChartInfo, isSystem } from '../charts/sections';
import type { Mark } from '../charts/shape';
import * as view from '../charts/view';
import { unspell } from '../lib/answers';
import { isAbort } from '../lib/api';
import { Palette, SLOTS } from '../lib/colour';
import { CAPTURE_PREFIX, type CaptureReport } from '../lib/missing';
import { paced } from '../lib/pace';
import { type Axis, askPoints, type Columns, type PointsQuestion } from '../lib/points';
import { isLive } from '../pages/run_feed';
import { askAgents } from './agents';
import { type Card, cardsOf, owned } from './cards';
import * as look from './look';
import { ANSWER_SERIES, askPicked, askSpreads, picksOf, SPREAD_SERIES } from './many';
import { badness, type Member, membersOf, type Spread, spreadOf, valueAt } from './series';
import { CONTEXT, colours, type LaneSpec, lanesOf, shownLanes } from './specs';

/** What came for one lane. */
export interface LaneData {
  x: Float64Array;
  members: Member[];
  /** Series that exist, drawn or not. */
  total: number;
  /** Spread of all of them, where the server made it because they are too many to send. */
  spread: Spread | null;
  axis: Axis;
  /** What came and is not finite. */
  marks: Mark[];
}

const LIVE_MS = 2000;
const BUCKETS_MAX = 2000;
const BUCKETS_MIN = 60;
/** Values in one answer: 8 bytes each. */
const VALUES_MAX = 600_000;
const COLUMNS = ['last', 'count'] as const;
/** Series of the run's own numbers, such as the step time of every rank. */
const CONTEXT_SERIES = 256;
/** Series of named cards in one lane, about. */
const NAMED_SERIES = 8;
/** Series of hosts and processes. */
const HOST_SERIES = 512;

function reportOf(text: string): CaptureReport[] {
  try {
    const report = JSON.parse(text) as CaptureReport;
    return Array.isArray(report.devices) ? [report] : [];
  } catch {
    return [];
  }
}

/** Holds the tab. */
export class SystemBoard {
  /** Every lane that the run has. */
  readonly lanes = computed(() => lanesOf(this.board.charts.value));
  readonly shown = computed(() => shownLanes(this.lanes.value, look.lanes.value));
  /** The lane that the cells are coloured by. */
  readonly colour = computed(() => {
    const able = colours(this.lanes.value);
    return able.find((l) => l.id === look.colour.value) ?? able[0] ?? null;
  });
  /** Cards that agents report. */
  private readonly found = signal<Record<string, string>[]>([]);
  private readonly allCards = computed(() =>
    cardsOf(this.board.metrics.value ?? [], this.board.missing.value?.capture ?? [], this.found.value),
  );
  /** Cards that the scope shows. */
  readonly cards = computed<Card[]>(() =>
    look.scope.value === 'nodes' ? this.allCards.value : owned(this.allCards.value),
  );
  readonly counts = computed(() => ({
    owned: owned(this.allCards.value).length,
    nodes: this.allCards.value.length,
  }));
  /** What came, by lane. */
  readonly data = signal<ReadonlyMap<string, LaneData>>(new Map());
  /** Why nothing came, by what was asked together. */
  readonly errors = signal<ReadonlyMap<string, unknown>>(new Map());
  /** Whether agents of the nodes answered, once they were asked. */
  readonly agents = signal<boolean | null>(null);
  /** Whether the spread of the peers is drawn. */
  readonly peers = signal(true);
  /** Width of a plot, CSS pixels. */
  readonly width = signal(0);
  /** Goes up with each answer. */
  readonly answered = signal(0);
  /** The card that stands out most at first, until one is chosen. */
  private readonly worst = signal<string | null>(null);
  /** Cards that are selected: those of the address, else the one that stands out most. */
  readonly selected = computed<string[]>(() => {
    const known = new Set(this.cards.value.map((c) => c.key));
    const chosen = look.cells.value.filter((key) => known.has(key));
    if (chosen.length > 0) return chosen;
    const first = this.worst.value !== null && known.has(this.worst.value) ? this.worst.value : null;
    const any = this.cards.value.find((c) => c.drawn)?.key;
    return (first ?? any) ? [first ?? any!] : [];
  });

  private readonly palette = new Palette();
  private controller = new AbortController();
  private picking = new AbortController();
  private readonly stops: (() => void)[] = [];
  private asked = '';

  constructor(readonly board: Board) {
    const live = paced(() => this.load(true), LIVE_MS);
    let points = -1;
    this.stops.push(
      effect(() => {
        // What is asked depends on these.
        void [this.shown.value, this.colour.value, look.laneAxis.value, look.scope.value, this.zoom()];
        if (this.width.value > 0 && this.board.metrics.value !== null) untracked(() => void this.load(false));
      }),
      effect(() => {
        const now = this.board.detail.value?.points ?? 0;
        if (points >= 0 && now !== points && isLive()) live.ask();
        points = now;
      }),
      effect(() => {
        void this.selected.value;
        untracked(() => void this.pick());
      }),
      live.end,
    );
  }

  /** The zoom of the lanes; `null` for all. */
  zoom(): Range | null {
    return view.zoomOf(look.laneAxis.value);
  }

  /** The x range that is drawn. */
  range(): Range {
    return this.board.rangeOf(look.laneAxis.value);
  }

  /** What processes report: of all hosts, or where those are too many to be read, of this one. */
  reports(host: string | undefined): CaptureReport[] {
    const all = this.board.missing.value?.capture ?? [];
    if (all.length > 0 || host === undefined) return all;
    const prefix = `${CAPTURE_PREFIX}${host}/`;
    return Object.entries(this.board.detail.value?.attributes ?? {}).flatMap(([key, value]) =>
      key.startsWith(prefix) && typeof value === 'string' ? reportOf(value) : [],
    );
  }

  /** The chart behind a lane: what its series measure. */
  chart(lane: LaneSpec): ChartInfo | undefined {
    return this.board.charts.value.find((c) => c.name === lane.metrics[0]);
  }

  /** What the values of a lane can't exceed, of the selected card; `null` where that is not known. */
  ceiling(lane: LaneSpec): number | null {
    const card = this.cards.value.find((c) => c.key === this.selected.value[0]);
    const row = this.board.metrics.value?.find(
      (m) => m.display === lane.ceiling && m.labels.host === card?.host && m.labels.gpu === card?.gpu,
    );
    const value = unspell(row?.last);
    return value !== null && Number.isFinite(value) ? value : null;
  }

  /** What a lane has that is not finite. */
  marks(lane: LaneSpec): Mark[] {
    return this.data.value.get(lane.id)?.marks ?? [];
  }

  /** Colour slot of a card or series; from the second colour on. */
  slot(key: string): number {
    // The card that stands out has the first colour: until it is known, none is given away.
    const waiting = this.worst.value === null && this.lanes.value.some((l) => l.compared !== null);
    return waiting ? 0 : this.palette.slot(key);
  }

  /** Asks for what is shown; unless `again`, only when it is another question. */
  async load(again: boolean): Promise<void> {
    const [axis, zoom] = [look.laneAxis.peek(), this.zoom()];
    const lanes = [...this.shown.peek()];
    const colour = this.colour.peek();
    if (colour && !lanes.some((l) => l.id === colour.id)) lanes.push(colour);
    const key = JSON.stringify([axis, zoom, lanes.map((l) => l.id), this.width.peek(), look.scope.peek()]);
    if (!again && key === this.asked) return;
    this.asked = key;
    this.controller.abort();
    this.controller = new AbortController();
    const { signal } = this.controller;
    const groups = {
      run: lanes.filter((l) => l.subject === 'run'),
      gpu: lanes.filter((l) => l.subject === 'gpu'),
      host: lanes.filter((l) => l.subject === 'host' || l.subject === 'process'),
    };
    await Promise.all([
      this.guarded('run', groups.run, () => this.ask(groups.run, CONTEXT_SERIES, signal)),
      this.guarded('gpu', groups.gpu, () => this.askGpus(groups.gpu, signal)),
      this.guarded('host', groups.host, () => this.ask(groups.host, HOST_SERIES, signal)),
    ]);
    if (signal.aborted) return;
    if (this.answered.peek() === 0) void this.board.readStepMap();
    this.answered.value++;
  }

  private async guarded(name: string, lanes: LaneSpec[], ask: () => Promise<void>): Promise<void> {
    if (lanes.length === 0) return;
    const set = (error: unknown) => {
      const errors = new Map(this.errors.peek());
      if (error === null) errors.delete(name);
      else errors.set(name, error);
      this.errors.value = errors;
    };
    try {
      await ask();
      if (this.errors.peek().has(name)) set(null);
    } catch (error) {
      if (!isAbort(error)) set(error);
    }
  }

  /** How many series the run has of a lane. */
  series(lane: LaneSpec): number {
    const names = new Set(lane.metrics);
    return this.board.charts
      .peek()
      .filter((c) => names.has(c.name))
      .reduce((sum, c) => sum + c.series.length, 0);
  }

  /** Buckets for so many series: no more than pixels, than samples, and than an answer may hold. */
  private buckets(lanes: LaneSpec[], series: number): number {
    const density = window.devicePixelRatio > 1.3 ? 1.5 : 1;
    const pixels = Math.ceil((this.width.peek() * density) / 50) * 50;
    const names = new Set(lanes.flatMap((l) => l.metrics));
    const rows = this.board.metrics.peek()!.filter((m) => names.has(m.display));
    const zoom = this.zoom();
    const whole = Math.max(1, ...rows.map((m) => m.points));
    const spans = rows.map((m) => (m.last_time_ms ?? 0) - (m.first_time_ms ?? 0));
    const scale = look.laneAxis.peek() === 'time' ? 1 : 1000;
    const share = zoom ? ((zoom.to - zoom.from) * scale) / Math.max(1, ...spans) : 1;
    const samples = Math.ceil((whole * Math.min(1, share)) / 50) * 50;
    const budget = Math.floor(VALUES_MAX / (Math.max(1, series) * COLUMNS.length));
    return Math.max(BUCKETS_MIN, Math.min(BUCKETS_MAX, pixels, samples, budget));
  }

  private question(lanes: LaneSpec[], limit: number): PointsQuestion {
    const series = lanes.reduce((sum, l) => sum + Math.min(limit * l.metrics.length, this.series(l)), 0);
    const zoom = this.zoom();
    return {
      axis: look.laneAxis.peek(),
      from: zoom?.from ?? null,
      to: zoom?.to ?? null,
      buckets: this.buckets(lanes, series),
      smooth: null,
      // The run's own numbers come more often than they are drawn: their least and greatest are drawn, too.
      ...(lanes[0]?.subject === 'run' ? {} : { columns: [...COLUMNS] }),
      queries: lanes.flatMap((lane) =>
        lane.metrics.map((metric) => ({ run_id: this.board.runId, metric, limit })),
      ),
    };
  }

  private async ask(lanes: LaneSpec[], limit: number, signal: AbortSignal): Promise<void> {
    const question = this.question(lanes, limit);
    const answer = await askPoints(question, signal);
    if (signal.aborted) return;
    const owners = lanes.flatMap((lane) => lane.metrics.map(() => lane));
    const columns = new Map<LaneSpec, Columns[]>();
    for (const series of answer.series) {
      const lane = owners[series.query];
      if (lane) columns.set(lane, [...(columns.get(lane) ?? []), series]);
    }
    this.take(
      answer.axis,
      { from: answer.from, to: answer.to },
      answer.x.length,
      lanes.map((lane) => {
        const own = columns.get(lane) ?? [];
        const members = membersOf(lane, answer.x, own, answer.axis);
        const marks = own.flatMap((c) => c.nonFinite);
        const total = this.series(lane);
        return [lane.id, { x: answer.x, members, total, spread: null, axis: answer.axis, marks }];
      }),
    );
  }

  private take(axis: Axis, range: Range, points: number, more: [string, LaneData][]): void {
    batch(() => {
      if (!this.zoom() && points > 0) {
        const full = this.board.full[axis];
        full.value = union(full.peek(), range);
      }
      this.data.value = new Map([...this.data.peek(), ...more]);
      this.choose();
    });
  }

  private async askGpus(lanes: LaneSpec[], signal: AbortSignal): Promise<void> {
    if (look.scope.peek() === 'nodes' && (await this.askNodes(lanes, signal))) return;
    const series = lanes.reduce((sum, l) => sum + this.series(l), 0);
    if (series <= SPREAD_SERIES) return this.ask(lanes, series, signal);
    // Too many to send: their spread comes from the server, and of single cards only what is named.
    const colour = this.colour.peek();
    if (colour) await this.ask([colour], ANSWER_SERIES, signal);
    if (signal.aborted) return;
    const span = this.manySpan(lanes);
    const chosen = this.selected.peek();
    const [spreads, picked] = await Promise.all([
      askSpreads({ ...span, interval: this.interval(lanes) }, signal),
      this.askPicks(lanes, signal),
    ]);
    if (signal.aborted) return;
    this.take(
      span.axis,
      span.range,
      0,
      lanes.map((lane) => {
        const members = lane.id === colour?.id ? this.data.peek().get(lane.id)! : picked.get(lane.id)!;
        const spread = spreads.get(lane.id)!;
        return [lane.id, { ...members, spread, total: this.series(lane), axis: span.axis, marks: [] }];
      }),
    );
    // Another one was chosen meanwhile.
    if (chosen.join() !== this.selected.peek().join()) await this.pick();
  }

  private manySpan(lanes: LaneSpec[]) {
    return {
      runId: this.board.runId,
      lanes,
      axis: look.laneAxis.peek(),
      range: this.span(),
      origin: this.board.detail.peek()?.started_ms ?? 0,
      buckets: this.buckets(lanes, lanes.length * NAMED_SERIES),
    };
  }

  /** The lanes of the cards that are named, of too many. */
  private askPicks(lanes: LaneSpec[], signal: AbortSignal) {
    const colour = this.colour.peek();
    const data = colour ? this.data.peek().get(colour.id) : undefined;
    const picks = picksOf(colour, data?.members ?? [], data?.x, this.selected.peek());
    return askPicked(this.manySpan(lanes), picks, signal);
  }

  /** Asks for what was selected since, where cards are too many to be there already. */
  private async pick(): Promise<void> {
    const known = this.data.peek();
    const colour = this.colour.peek();
    const lanes = this.shown.peek().filter((l) => l.id !== colour?.id && known.get(l.id)?.spread);
    if (lanes.length === 0) return;
    this.picking.abort();
    this.picking = new AbortController();
    const { signal } = this.picking;
    await this.guarded('gpu', lanes, async () => {
      const picked = await this.askPicks(lanes, signal);
      if (signal.aborted) return;
      const more = lanes.map((lane): [string, LaneData] => {
        const now = this.data.peek().get(lane.id)!;
        return [lane.id, { ...now, ...picked.get(lane.id)! }];
      });
      this.data.value = new Map([...this.data.peek(), ...more]);
    });
  }

  /** Asks the nodes' agents; `false` when none reports any of them. */
  private async askNodes(lanes: LaneSpec[], signal: AbortSignal): Promise<boolean> {
    const hosts = [...new Set(this.allCards.peek().map((c) => c.host))];
    const found = await askAgents(
      {
        hosts,
        lanes,
        axis: look.laneAxis.peek(),
        range: this.span(),
        origin: this.board.detail.peek()?.started_ms ?? 0,
        buckets: this.buckets(lanes, lanes.length * hosts.length * 8),
      },
      signal,
    );
    if (signal.aborted) return true;
    this.agents.value = found !== null;
    if (!found) return false;
    this.found.value = [...found.values()].flatMap((data) => data.members.map((m) => m.labels));
    this.take(look.laneAxis.peek(), this.span(), 1, [...found]);
    return true;
  }

  /** What is zoomed, else all that the system's series span. */
  private span(): Range {
    const zoom = this.zoom();
    if (zoom) return zoom;
    const rows = this.board.metrics.peek()!.filter((m) => isSystem(m.display));
    const from = Math.min(...rows.map((m) => m.first_time_ms ?? Infinity));
    const to = Math.max(...rows.map((m) => m.last_time_ms ?? -Infinity));
    if (look.laneAxis.peek() === 'time') return { from, to };
    const origin = this.board.detail.peek()?.started_ms ?? 0;
    return { from: (from - origin) / 1000, to: (to - origin) / 1000 };
  }

  /** Seconds between two samples of a card. */
  private interval(lanes: LaneSpec[]): number {
    const names = new Set(lanes.flatMap((l) => l.metrics));
    const every = this.board.metrics
      .peek()!
      .flatMap((m) =>
        names.has(m.display) && m.points > 1 && m.first_time_ms !== null && m.last_time_ms !== null
          ? [(m.last_time_ms - m.first_time_ms) / 1000 / (m.points - 1)]
          : [],
      );
    every.sort((a, b) => a - b);
    return every[every.length >> 1] ?? 30;
  }

  /** Finds the card that stands out most, once there is something to go by. */
  private choose(): void {
    const colour = this.colour.peek();
    const data = colour && this.data.peek().get(colour.id);
    if (!colour?.compared || !data || this.worst.peek() !== null || data.members.length === 0) return;
    let [most, key] = [-Infinity, data.members[0].key];
    const spread = data.spread ?? spreadOf(data.x, data.members);
    for (const member of data.members) {
      const value = valueAt(data.x, member, null);
      const median = valueAt(spread.x, { y: spread.median, spacing: spread.spacing }, null);
      const bad = badness(value, median, colour.compared);
      if (bad > most) [most, key] = [bad, member.key];
    }
    const keys = this.cards.peek().map((c) => c.key);
    const chosen = look.cells.peek().filter((one) => keys.includes(one));
    for (const one of [...chosen, key, ...(keys.length <= SLOTS ? keys : [])]) this.palette.slot(one);
    this.worst.value = key;
  }

  /** Selects a card, or adds it to those that are. */
  select(key: string, add: boolean): void {
    const now = this.selected.peek();
    if (!add) look.setList('cell', [key]);
    else look.setList('cell', now.includes(key) ? now.filter((k) => k !== key) : [...now, key]);
  }

  /** Shows a lane or hides it. */
  toggle(id: string): void {
    const shown = this.shown.peek().map((l) => l.id);
    const order = this.lanes.peek().map((l) => l.id);
    const next = shown.includes(id)
      ? shown.filter((one) => one !== id)
      : [...shown, id].sort((a, b) => order.indexOf(a) - order.indexOf(b));
    this.write(next);
  }

  /** Puts a lane where another one is. */
  move(id: string, to: number): void {
    const ids = this.shown.peek().map((l) => l.id);
    if (!ids.includes(id)) return;
    const rest = ids.filter((one) => one !== id);
    const first = rest.filter((one) => CONTEXT.includes(one)).length;
    rest.splice(Math.min(rest.length, Math.max(CONTEXT.includes(id) ? 0 : first, to)), 0, id);
    this.write(rest);
  }

  private write(ids: string[]): void {
    const usual = shownLanes(this.lanes.peek(), []).map((l) => l.id);
    look.setList('lanes', usual.join() === ids.join() ? [] : ids);
  }

  /** Calls off everything under way. */
  end(): void {
    this.controller.abort();
    this.picking.abort();
    for (const stop of this.stops) stop();
  }
}
