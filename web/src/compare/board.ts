/** The runs that are compared and their charts: one question for all of them. */
import { batch, computed, effect, type Signal, signal } from '@preact/signals';
import { confine, drawable, type Range, union } from '../charts/range';
import { isSystem, rank, unitOfName } from '../charts/sections';
import type { Shape } from '../charts/shape';
import { param, setParams, zoomDepth } from '../lib/address';
import type { RunDetail } from '../lib/answers';
import { askJson, isAbort } from '../lib/api';
import { type Axis, askPoints, type Columns } from '../lib/points';
import { askRun } from '../lib/runs';
import { findIds } from '../training/others';
import { differencesOf } from './config';
import { type GroupBy, grouped, parseGroup, shapeOfGroups, tracksOf } from './groups';
import { askOutcomes, type Outcome } from './outcome';

/** Runs that are compared at most. */
export const RUNS_MAX = 50;
/** Charts at first, and how many more each time. */
export const CHARTS = 12;
const QUERIES_MAX = 1000;
const SERIES_MAX = 600;
const BUCKETS = 400;
const AT_ONCE = 6;
const SETTLE_MS = 100;
const natural = new Intl.Collator('en', { numeric: true });
const AXES: Axis[] = ['step', 'time', 'relative'];

/** A chart: one metric of all runs. */
export interface Compared {
  name: string;
  display: string;
  unit: string;
  columns: Columns[];
  shape: Shape;
  /** Runs that have it. */
  runs: number;
  /** Series that exist, and those that came. */
  series: [came: number, exist: number];
}

const onAxes = <T>(made: () => T): Record<Axis, T> => ({ step: made(), time: made(), relative: made() });

/** Holds the page; runs, grouping and axis are those of the address. */
export class CompareBoard {
  readonly runs = signal<RunDetail[]>([]);
  /** Runs that could not be read, and why. */
  readonly missing = signal<{ id: string; error: unknown }[]>([]);
  /** Ids of `nemo.run.id` that no run has. */
  readonly unknown = signal<string[]>([]);
  /** Metrics of any of the runs, the most telling first; `null` until they are read. */
  readonly names = signal<string[] | null>(null);
  readonly charts = signal<Compared[]>([]);
  readonly error = signal<unknown>(null);
  readonly shown = signal(CHARTS);
  readonly cursor = onAxes(() => signal<number | null>(null));
  readonly settled = onAxes(() => signal<number | null>(null));
  readonly pinned = signal(false);
  readonly by = computed<GroupBy>(() => parseGroup(param('group')));
  readonly axis = computed<Axis>(() => AXES.find((a) => a === param('x')) ?? 'step');
  /** What the metrics came to; `null` until it is read. */
  readonly outcomes = signal<Outcome[] | null>(null);
  /** The run that the others are measured against, if one is chosen. */
  readonly base = computed(() => (this.ids().includes(param('base')) ? param('base') : null));
  readonly differences = computed(() => differencesOf(this.runs.value));
  private readonly full = onAxes<Signal<Range | null>>(() => signal(null));
  private readonly slots = new Map<string, number>();
  /** What `slots` are of. */
  private coloured: GroupBy = 'none';
  private controller = new AbortController();
  private reckoning = new AbortController();
  private settling: ReturnType<typeof setTimeout> | undefined;
  private readonly stopSettling: () => void;

  constructor() {
    this.stopSettling = effect(() => {
      for (const axis of AXES) void this.cursor[axis].value;
      this.settling ??= setTimeout(() => {
        this.settling = undefined;
        for (const axis of AXES) this.settled[axis].value = this.cursor[axis].peek();
      }, SETTLE_MS);
    });
  }

  /** Ids of the address. */
  ids(): string[] {
    return [...new Set(param('runs').split(',').filter(Boolean))].slice(0, RUNS_MAX);
  }

  /** Reads the runs and which metrics they have. */
  async readRuns(): Promise<void> {
    // The address changes, and with it the question.
    if (param('ids') !== '') return await this.findIds();
    const ids = this.ids();
    const known = new Map(this.runs.peek().map((r) => [r.run_id, r]));
    const missing: { id: string; error: unknown }[] = [];
    const found = new Map<string, RunDetail>();
    const left = [...ids];
    const read = async () => {
      for (let id = left.shift(); id !== undefined; id = left.shift()) {
        try {
          found.set(id, await askRun(id));
        } catch (error) {
          const before = known.get(id);
          if (before) found.set(id, before);
          else missing.push({ id, error });
        }
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, read));
    if (JSON.stringify(ids) !== JSON.stringify(this.ids())) return;
    const runs = ids.flatMap((id) => found.get(id) ?? []);
    batch(() => {
      this.runs.value = runs;
      this.missing.value = missing;
    });
    try {
      this.names.value = runs.length > 0 ? await namesOf(runs) : [];
      await Promise.all([this.ask(), this.reckon()]);
    } catch (error) {
      if (!isAbort(error)) this.error.value = error;
    }
  }

  /** Puts the runs of the `nemo.run.id`s that the address names into it. */
  private async findIds(): Promise<void> {
    const wanted = param('ids').split(',').filter(Boolean);
    try {
      const none = { runId: '', own: [] };
      const { others, unknown } = await findIds(wanted, none, this.controller.signal);
      const runs = [...this.ids(), ...others.map((o) => o.runId)];
      this.unknown.value = unknown;
      setParams({ runs: [...new Set(runs)].join(','), ids: null });
    } catch (error) {
      if (!isAbort(error)) this.error.value = error;
    }
  }

  /** Metrics that are drawn: those that the address wants, else the first ones. */
  wanted(): string[] {
    const only = param('only').split(',').filter(Boolean);
    const names = this.names.value ?? [];
    const most = Math.floor(QUERIES_MAX / Math.max(1, this.runs.value.length));
    const chosen = only.length > 0 ? names.filter((n) => only.includes(n)) : names.slice(0, this.shown.value);
    return chosen.slice(0, most);
  }

  /** Asks for the points of all charts. */
  async ask(): Promise<void> {
    this.controller.abort();
    this.controller = new AbortController();
    const [wanted, runs, axis, zoom] = [this.wanted(), this.runs.peek(), this.axis.peek(), this.zoomed()];
    // Samples of a machine are no training steps: over steps they would lie beside what they belong to.
    const names = axis === 'step' ? wanted.filter((name) => !isSystem(name)) : wanted;
    if (names.length === 0 || runs.length === 0) {
      this.charts.value = [];
      return;
    }
    const queries = names.flatMap((metric) => runs.map((run) => ({ run_id: run.run_id, metric })));
    const limit = Math.max(1, Math.floor(SERIES_MAX / queries.length));
    try {
      const answer = await askPoints(
        {
          axis,
          from: zoom?.from ?? null,
          to: zoom?.to ?? null,
          buckets: BUCKETS,
          smooth: null,
          queries: queries.map((q) => ({ ...q, limit })),
        },
        this.controller.signal,
      );
      // Where the most telling metric has no steps, as of runs of OpenTelemetry, the axis that all have is shown.
      const telling = answer.series.some((s) => s.query < runs.length);
      if (axis === 'step' && !telling && param('x') === '' && !zoom) {
        setParams({ x: 'relative' });
        return;
      }
      const by = this.by.peek();
      const alone = by === 'none';
      batch(() => {
        if (by !== this.coloured) this.slots.clear();
        this.coloured = by;
        if (!zoom && answer.x.length > 0)
          this.full[axis].value = union(null, { from: answer.from, to: answer.to });
        const byId = new Map(runs.map((r) => [r.run_id, r]));
        this.charts.value = names.flatMap((name, at): Compared[] => {
          const own = (query: number) => Math.floor(query / runs.length) === at;
          const columns = answer.series.filter((s) => own(s.query));
          if (columns.length === 0) return [];
          const groups = grouped(by, tracksOf(columns), byId);
          if (!alone) this.colour(groups.map((g) => g.name));
          const totals = new Map(columns.map((c) => [c.query, c.total]));
          return [
            {
              name,
              display: columns[0].display || name,
              unit: columns.find((c) => c.unit)?.unit ?? unitOfName(name),
              columns,
              shape: shapeOfGroups(answer, columns, groups, ({ name: group, tracks }) =>
                alone ? this.runName(group) : `${group} · n=${tracks.length}`,
              ),
              runs: new Set(columns.map((c) => c.runId)).size,
              series: [tracksOf(columns).length, [...totals.values()].reduce((sum, n) => sum + n, 0)],
            },
          ];
        });
        this.error.value = null;
      });
    } catch (error) {
      if (!isAbort(error)) this.error.value = error;
    }
  }

  /** Asks what the metrics came to. */
  async reckon(): Promise<void> {
    this.reckoning.abort();
    this.reckoning = new AbortController();
    const ids = this.runs.peek().map((run) => run.run_id);
    const only = param('only').split(',').filter(Boolean);
    try {
      this.outcomes.value = ids.length > 0 ? await askOutcomes(ids, only, this.reckoning.signal) : null;
    } catch (error) {
      if (!isAbort(error)) this.outcomes.value = null;
    }
  }

  /** What a run is called: its name, with its short id where another has the same. */
  runName(id: string): string {
    const runs = this.runs.value;
    const run = runs.find((r) => r.run_id === id);
    if (!run) return id;
    const twin = runs.some((r) => r.run_id !== id && r.run === run.run);
    return twin ? `${run.run} ${id.slice(0, 6)}` : run.run;
  }

  /** Colour slot of a run: that of its place among the runs. */
  slotOfRun(id: string): number {
    return Math.max(0, this.ids().indexOf(id));
  }

  /** Colour slot of a line: of the group that it was drawn for, whatever is chosen meanwhile. */
  slot(labels: Record<string, string>): number {
    return this.slots.get(labels.group) ?? this.slotOfRun(labels.group);
  }

  /** Gives the groups of an answer their colours, in the order in which the charts name them. */
  private colour(names: Iterable<string>): void {
    for (const name of names) if (!this.slots.has(name)) this.slots.set(name, this.slots.size);
  }

  private zoomed(): Range | null {
    const [from, to] = [param('from'), param('to')];
    return from !== '' && to !== '' && Number(from) < Number(to)
      ? { from: Number(from), to: Number(to) }
      : null;
  }

  /** What the charts span. */
  rangeOf(axis: Axis): Range {
    return drawable(this.zoomed() ?? this.full[axis].value ?? { from: 0, to: 1 });
  }

  /** Puts the cursor of all charts at `x`. */
  point(axis: Axis, x: number | null): void {
    this.cursor[axis].value = x;
  }

  /** Zooms all charts. */
  zoom(axis: Axis, range: Range | null, goesOn = false): void {
    const full = this.full[axis].peek();
    const kept = range && full ? confine(range, full) : range;
    const written = (value: number) => String(Number(value.toFixed(3)));
    setParams({ from: kept && written(kept.from), to: kept && written(kept.to) }, !goesOn);
  }

  /** Shows everything. */
  resetZoom(): void {
    setParams({ from: null, to: null }, true);
  }

  /** Takes the last zoom back. */
  back(): void {
    if (zoomDepth() > 0) window.history.back();
    else this.resetZoom();
  }

  /** Calls off everything. */
  end(): void {
    this.controller.abort();
    this.reckoning.abort();
    clearTimeout(this.settling);
    this.stopSettling();
  }
}

/** Names of the metrics of these runs, as the charts of a run are sorted. */
async function namesOf(runs: RunDetail[]): Promise<string[]> {
  const ids = runs.map((r) => r.run_id.replace(/[^\w-]/g, '.')).join('|');
  const query = new URLSearchParams({ 'match[]': `{run_id=~"${ids}"}` });
  const { data } = await askJson<{ data: string[] }>(`/api/v1/label/__name__/values?${query}`);
  // A bucket of a histogram is no curve, what describes a target is no number, and what the server states of
  // runs they did not log.
  const none = /_bucket$|^target_info$|^tg_run_|^ALERTS/;
  const curves = data.filter((name) => !none.test(name));
  return curves.sort((a, b) => rank(a) - rank(b) || natural.compare(a, b));
}
