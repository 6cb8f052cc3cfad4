/** Reads the points of the panels: directly, or over time and then moved onto steps. */
import { type Range, union } from '../charts/range';
import { type Shape, shapeOf } from '../charts/shape';
import { type StepMap, stepMapOf } from '../charts/step_map';
import { varyingLabels } from '../lib/colour';
import type { Axis, Columns, NonFinite, PointsAnswer, PointsQuestion } from '../lib/points';
import { rankLabel } from '../ranks/crew';
import {
  foldedColumn,
  foldOf,
  type Grown,
  growth,
  keptSteps,
  type Piece,
  seriesOf,
  stepAt,
  timeAt,
  together,
  toSteps,
} from './fold';
import { SKIPPED, STEP_SECONDS } from './panels';

/** A run that is drawn: the page's own, or one laid over it. */
export interface Drawn {
  runId: string;
  /** What its lines are called. */
  name: string;
  /** Steps and times of it, where they are known. */
  map: StepMap | null;
  /** Only series with these labels. */
  labels?: Record<string, string>;
}

/** What is asked. */
export interface Wanted {
  runs: Drawn[];
  /** Canonical names by key; absent ones are left out. */
  metrics: ReadonlyMap<string, string>;
  /** Keys whose series have steps. */
  stepped: ReadonlySet<string>;
  axis: Axis;
  zoom: Range | null;
  /** Pixels there are. */
  width: number;
  /** Series of a key that there are in the page's own run. */
  series: ReadonlyMap<string, number>;
}

/** Points of one key. */
export interface KeyData {
  axis: Axis;
  pieces: Piece[];
  /** What was looked at; `null` for nothing. */
  range: Range | null;
  /** Whether points over time were moved onto steps. */
  moved: boolean;
  /** Series read, and those that there are. */
  came: number;
  total: number;
}

/** Asks for points; injected, so that it can be tested without a server. */
export type Ask = (question: PointsQuestion, signal: AbortSignal) => Promise<PointsAnswer>;

/** More series of one thing than this are drawn as their median and spread. */
export const LINES_MAX = 8;
/** Series of one key in one question; what is global is the same on each rank. */
const SERIES_MAX = 96;
/** Of what is each rank's own. */
const OWN_SERIES_MAX = 1100;
const OWN = 'memory_allocated_gb';
/** Values in one answer, about: 8 bytes each. */
const VALUES_MAX = 600_000;
const BUCKETS_MAX = 2000;
const BUCKETS_MIN = 60;
/** With more series in a question, only their last values are asked for. */
const WHOLE_SERIES = 64;

const limitOf = (key: string, runs: number) =>
  key === OWN
    ? Math.max(SERIES_MAX, Math.floor(OWN_SERIES_MAX / runs))
    : Math.max(LINES_MAX, Math.floor(SERIES_MAX / runs));

/** Which keys are asked for on the axis itself, and which over time to be moved onto steps. */
function waysOf({ axis, stepped, runs, metrics }: Wanted): { direct: string[]; moved: Map<Drawn, string[]> } {
  const keys = [...metrics.keys()];
  const alone = runs.length === 1;
  if (axis !== 'step') return { direct: keys, moved: new Map() };
  // Of runs laid over it is not known whether their series have steps: both are asked for.
  const direct = alone ? keys.filter((key) => stepped.has(key)) : keys;
  const moved = new Map<Drawn, string[]>();
  for (const run of runs) {
    const own = run === runs[0] ? keys.filter((key) => !stepped.has(key)) : keys;
    if (run.map && own.length > 0) moved.set(run, own);
  }
  return { direct, moved };
}

interface Query {
  key: string;
  run: Drawn;
}

function questionOf(wanted: Wanted, axis: Axis, range: Range | null, queries: Query[]): PointsQuestion {
  const runs = wanted.runs.length;
  const expected = queries.reduce(
    (sum, { key, run }) =>
      sum + (run === wanted.runs[0] ? Math.min(limitOf(key, runs), wanted.series.get(key) ?? 1) : 1),
    0,
  );
  const whole = expected <= WHOLE_SERIES;
  const room = Math.floor(VALUES_MAX / Math.max(1, expected * (whole ? 5 : 2)));
  const buckets = Math.min(BUCKETS_MAX, Math.ceil(wanted.width / 50) * 50, room);
  return {
    axis,
    from: range?.from ?? null,
    to: range?.to ?? null,
    buckets: Math.max(BUCKETS_MIN, buckets),
    smooth: null,
    ...(whole ? {} : { columns: ['last', 'count'] as const satisfies PointsQuestion['columns'] }),
    queries: queries.map(({ key, run }) => ({
      run_id: run.runId,
      metric: wanted.metrics.get(key)!,
      ...(run.labels ? { labels: run.labels } : {}),
      limit: limitOf(key, runs),
    })),
  };
}

/** The times of a range of steps; all of them for none. */
function timesOf(map: StepMap, zoom: Range | null): Range | null {
  if (!zoom) return null;
  const kept = keptSteps(map);
  const [from, to] = [timeAt(kept, zoom.from), timeAt(kept, zoom.to)];
  return from < to ? { from, to } : { from: from - 500, to: to + 500 };
}

/** The steps of a range of times. */
function stepsOf(map: StepMap, { from, to }: Range): Range {
  const kept = keptSteps(map);
  return { from: stepAt(kept, from, Infinity), to: stepAt(kept, to, Infinity) };
}

/** Reads all keys. */
export async function readKeys(wanted: Wanted, ask: Ask, signal: AbortSignal): Promise<Map<string, KeyData>> {
  const found = new Map<string, KeyData>();
  const { direct, moved } = waysOf(wanted);
  const stepless =
    wanted.axis === 'step' ? [...wanted.metrics.keys()].filter((k) => !wanted.stepped.has(k)) : [];
  // Without a map, what has no steps is drawn over time, and says so.
  const aside = wanted.runs[0].map ? [] : stepless;
  const parts: { axis: Axis; range: Range | null; queries: Query[]; map: StepMap | null }[] = [];
  const each = (keys: string[]) => keys.flatMap((key) => wanted.runs.map((run) => ({ key, run })));
  const straightKeys = direct.filter((key) => !aside.includes(key));
  if (straightKeys.length > 0)
    parts.push({ axis: wanted.axis, range: wanted.zoom, queries: each(straightKeys), map: null });
  if (aside.length > 0) parts.push({ axis: 'time', range: null, queries: each(aside), map: null });
  for (const [run, keys] of moved)
    parts.push({
      axis: 'time',
      range: timesOf(run.map!, wanted.zoom),
      queries: keys.map((key) => ({ key, run })),
      map: run.map,
    });
  const answers = await Promise.all(
    parts.map((part) => ask(questionOf(wanted, part.axis, part.range, part.queries), signal)),
  );
  const straight = new Set<string>();
  parts.forEach((part, at) => {
    const answer = answers[at];
    for (const column of answer.series) {
      const { key, run } = part.queries[column.query];
      const id = `${key} ${run.runId}`;
      if (part.map && straight.has(id)) continue;
      if (!part.map) straight.add(id);
      const axis = part.map ? 'step' : part.axis;
      const data = found.get(key) ?? { axis, pieces: [], range: null, moved: false, came: 0, total: 0 };
      // What is on the page's axis comes before what is aside.
      if (data.axis !== axis) continue;
      const piece = { x: answer.x, column };
      data.pieces.push(part.map ? toSteps(piece, part.map) : piece);
      data.moved ||= part.map !== null;
      data.range = union(data.range, part.map ? stepsOf(part.map, answer) : answer);
      found.set(key, data);
    }
  });
  for (const [key, data] of found) {
    const series = seriesOf(data.pieces);
    data.came = series.length;
    const totals = new Map(data.pieces.map((p) => [p.column.runId, p.column.total]));
    data.total = [...totals.values()].reduce((sum, n) => sum + n, 0);
    found.set(key, data);
  }
  return found;
}

/** Reads steps and times of other runs, by their step times. */
export async function readMaps(runs: string[], ask: Ask, signal: AbortSignal): Promise<Map<string, StepMap>> {
  const maps = new Map<string, StepMap>();
  if (runs.length === 0) return maps;
  const question = (axis: Axis): PointsQuestion => ({
    axis,
    from: null,
    to: null,
    buckets: 500,
    smooth: null,
    columns: ['last', 'count'],
    queries: runs.map((run_id) => ({ run_id, metric: STEP_SECONDS, limit: 1 })),
  });
  const [overSteps, overTime] = await Promise.all([
    ask(question('step'), signal),
    ask(question('time'), signal),
  ]);
  for (const run of runs) {
    const of = (answer: PointsAnswer) => ({
      ...answer,
      series: answer.series.filter((s) => s.runId === run),
    });
    const map = stepMapOf(of(overSteps), of(overTime));
    if (map) maps.set(run, map);
  }
  return maps;
}

/** The label that names a line which is not one series. */
export const GROUP = 'group';

/** Points as a chart: each series a line, or where they are many, their median and spread. */
export function chartOf(data: KeyData, runs: Drawn[]): { shape: Shape; folded: number } {
  let folded = 0;
  const pieces = runs.flatMap((run) => {
    const own = withSteps(data.pieces.filter((p) => p.column.runId === run.runId));
    const series = seriesOf(own);
    const named = runs.length > 1;
    if (series.length <= (named ? 1 : LINES_MAX)) {
      const once = marksOnce(series);
      return named ? once.map((p) => labelled(p, { [GROUP]: run.name })) : once;
    }
    folded = Math.max(folded, series.length);
    const what = `median of ${series.length}`;
    const name = named ? `${run.name} · ${what}` : what;
    const fold = foldOf(series);
    const column = { ...series[0][0].column, nonFinite: marksOf(series, fold.interval) };
    return [foldedColumn(fold, column, { [GROUP]: name })];
  });
  const { x, columns } = together(pieces);
  const shape = shapeOf(x, columns, tellingOf(columns, folded > 0));
  for (const line of shape.lines) line.key = line.key.replace(/^dl_rank /, 'rank ');
  return { shape, folded };
}

/** Labels that lines are called by: the rank alone, where it tells them apart. */
function tellingOf(columns: Columns[], folded: boolean): string[] {
  if (folded) return [GROUP];
  const label = ['rank', 'dl_rank'].find((key) => columns.every((c) => key in c.labels));
  const things = new Set(columns.map((c) => JSON.stringify(c.labels))).size;
  if (label && things > 1 && new Set(columns.map((c) => c.labels[label])).size === things) return [label];
  return varyingLabels(
    columns.map((c) => ({ ...c.labels, scale: c.scale })),
    true,
  );
}

/** Whether a series came by OpenTelemetry: it has no steps, so that its points stand at those of their times. */
export const isTimed = ({ column }: Piece) => 'service_instance_id' in column.labels;

/** Without what came by OpenTelemetry of a process that logs the same with its steps. */
function withSteps(pieces: Piece[]): Piece[] {
  const logged = new Set(pieces.flatMap((p) => (isTimed(p) ? [] : rankLabel(p.column.labels))));
  // What has no rank is logged by the one process there is.
  const twice = (p: Piece) => isTimed(p) && (logged.has(null) || logged.has(rankLabel(p.column.labels)));
  return pieces.filter((p) => !twice(p));
}

const labelled = (piece: Piece, labels: Record<string, string>): Piece => ({
  ...piece,
  column: { ...piece.column, labels },
});

/** Series of which each mark is there once: ranks that export a moment apart tell of the same one. */
function marksOnce(series: Piece[][]): Piece[] {
  const all = series.flat();
  const marked = all.filter((p) => p.column.nonFinite.length > 0);
  if (series.length < 2 || marked.length < 2) return all;
  const marks = marksOf(series, Math.max(...all.map((p) => p.column.interval)));
  return all.map((p, at) => ({ ...p, column: { ...p.column, nonFinite: at === 0 ? marks : [] } }));
}

/** What is not finite in any of the series; what several have within a width is there once. */
function marksOf(series: Piece[][], width: number): NonFinite[] {
  const marks = new Map<string, NonFinite>();
  for (const pieces of series) {
    const own = new Map<string, NonFinite>();
    for (const mark of pieces.flatMap((p) => p.column.nonFinite)) {
      const key = `${mark.kind} ${width > 0 ? Math.round(mark.x / width) : mark.x}`;
      const known = own.get(key);
      own.set(key, known ? { ...known, count: known.count + mark.count } : mark);
    }
    for (const [key, mark] of own) {
      const known = marks.get(key);
      if (!known || mark.count > known.count) marks.set(key, mark);
    }
  }
  return [...marks.values()].sort((a, b) => a.x - b.x);
}

/** Where iterations were skipped. Every rank counts the same ones: the one that counted most tells. */
export function skipsOf(data: ReadonlyMap<string, KeyData>, runId: string, begins: boolean): Grown[] {
  const own = data.get(SKIPPED)?.pieces.filter((p) => p.column.runId === runId) ?? [];
  const all = seriesOf(own).map((pieces) => pieces.flatMap((piece) => growth(piece, begins)));
  const sum = (grown: Grown[]) => grown.reduce((total, { by }) => total + by, 0);
  return all.reduce<Grown[]>((most, grown) => (sum(grown) > sum(most) ? grown : most), []);
}
