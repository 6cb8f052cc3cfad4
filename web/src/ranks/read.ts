/** Reads one series of all ranks: in parts where there are many, never more than a bound. */
import type { Axis, Columns, PointsAnswer, PointsQuestion } from '../lib/points';
import type { Choice } from './choices';
import type { Crew } from './crew';
import { columnsFor, type Grid, gridOf, piecesOf, usualInterval } from './grid';

/** Series that one answer of the server holds. */
const PART_SERIES = 2000;
/** Parts of one reading, and how many are asked for at once. */
export const PARTS_MAX = 10;
const AT_ONCE = 3;
/** Values of one reading: 16 MiB. */
const VALUES_MAX = 2 << 20;
const BUCKETS_MAX = 2000;
/** Attempts that the server sends of a series. */
const ATTEMPTS_MAX = 20;

/** What is read. */
export interface Wanted {
  runId: string;
  choice: Choice;
  crew: Crew;
  axis: Axis;
  zoom: { from: number; to: number } | null;
  /** Columns that there is room for. */
  most: number;
  attempts: number;
}

/** What was read. */
export interface Reading {
  grid: Grid;
  /** What was waited, where it was taken away: on the same columns. */
  wait: Grid | null;
  /** Series that exist and that were read. */
  total: number;
  read: number;
  /** Whether each column is one x and not several. */
  exact: boolean;
  /** Whether values between those read were not looked at. */
  sampled: boolean;
}

/** Asks for points; injected, so that it can be tested without a server. */
export type Ask = (question: PointsQuestion, signal: AbortSignal) => Promise<PointsAnswer>;

/** How many buckets and series are asked for. */
export function planOf({ choice, axis, most, attempts }: Wanted): {
  buckets: number;
  part: number;
  parts: number;
} {
  const queries = choice.minus ? 2 : 1;
  const total = choice.chart.series.length;
  const part = Math.floor(PART_SERIES / queries);
  const parts = Math.min(PARTS_MAX, Math.ceil(total / part));
  const each = axis === 'step' ? Math.min(ATTEMPTS_MAX, Math.max(1, attempts)) : 1;
  const room = Math.floor(VALUES_MAX / (Math.min(total, part * parts) * queries * each));
  // A difference is only that of one step's two values: as many steps as possible are looked at.
  const wanted = choice.minus ? BUCKETS_MAX : most;
  return { buckets: Math.max(20, Math.min(wanted, room)), part, parts };
}

/** Reads it. */
export async function read(wanted: Wanted, ask: Ask, signal: AbortSignal): Promise<Reading> {
  const { runId, choice, axis, zoom } = wanted;
  const { buckets, part, parts } = planOf(wanted);
  const charts = [choice.chart, ...(choice.minus ? [choice.minus] : [])];
  const column = { high: 'max', low: 'min', either: 'last' } as const;
  const asked = (at: number): PointsQuestion => ({
    axis,
    from: zoom?.from ?? null,
    to: zoom?.to ?? null,
    buckets,
    smooth: null,
    columns: [choice.minus ? 'last' : column[choice.worse]],
    queries: charts.map(({ name }) => ({ run_id: runId, metric: name, skip: at * part, limit: part })),
  });
  const answers: PointsAnswer[] = [];
  for (let first = 0; first < parts; first += AT_ONCE) {
    const some = Array.from({ length: Math.min(AT_ONCE, parts - first) }, (_, at) => first + at);
    answers.push(...(await Promise.all(some.map((at) => ask(asked(at), signal)))));
  }
  return readingOf(wanted, answers, buckets);
}

/** Puts answers together. */
export function readingOf(wanted: Wanted, answers: PointsAnswer[], buckets: number): Reading {
  const { choice, crew, axis, zoom, most } = wanted;
  const full = answers.filter((a) => a.x.length > 0);
  const stepped = axis === 'step';
  const from = zoom?.from ?? Math.min(...full.map((a) => a.from));
  const to = zoom?.to ?? Math.max(...full.map((a) => a.to));
  const ends = full.length > 0 ? { from, to } : { from: 0, to: 0 };
  const room = Math.min(most, buckets);
  const columns = columnsFor(ends.to - ends.from, usualInterval(full), stepped, room);
  const span = { ...ends, columns, stepped };
  const pieces = (query: number, valuesOf: (answer: PointsAnswer) => (series: Columns) => Float64Array) =>
    full.flatMap((answer) => piecesOf(answer, query, crew.rankOf, valuesOf(answer)));
  const asSent = () => (s: Columns) => s.last;
  const grid = gridOf(pieces(0, choice.minus ? withoutWait : asSent), span, choice.worse);
  const widest = Math.max(0, ...full.map((a) => a.x.length));
  return {
    grid,
    wait: choice.minus ? gridOf(pieces(1, asSent), span, 'low') : null,
    total: choice.chart.series.length,
    read: new Set(full.flatMap((a) => a.series.filter((s) => s.query === 0).map(identity))).size,
    exact: widest <= columns && widest < buckets,
    sampled: choice.minus !== null && widest >= buckets,
  };
}

const identity = ({ labels }: Columns) => JSON.stringify(labels);

/** A step's time less what was waited in it: nothing, unless told; absent for a rank that never tells. */
function withoutWait(answer: PointsAnswer): (step: Columns) => Float64Array {
  const key = (s: Columns) => `${s.attempt} ${identity(s)}`;
  const waits = new Map(answer.series.filter((s) => s.query === 1).map((s) => [key(s), s.last]));
  return (step) => {
    const wait = waits.get(key(step));
    return step.last.map((value, at) => value - (wait ? wait[at] || 0 : Number.NaN));
  };
}
