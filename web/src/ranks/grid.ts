/** Values rank by rank on columns of one axis; NaN is absent, an infinity is a value that is no number. */
import type { Columns, PointsAnswer } from '../lib/points';
import type { Worse } from './choices';

/** The numbers of one series, all ranks. */
export interface Grid extends Span {
  /** Ranks in rising order. */
  ranks: number[];
  /** Row by row. */
  values: Float64Array;
  /** The last x read of each column; NaN where none was. */
  seen: Float64Array;
}

/** The worse of two values of one rank; absent gives way, and what is no number is worst. */
export function worseValue(a: number, b: number, worse: Worse): number {
  if (Number.isNaN(a)) return b;
  if (Number.isNaN(b) || Math.abs(a) === Infinity) return a;
  if (Math.abs(b) === Infinity) return b;
  if (worse === 'low') return Math.min(a, b);
  return worse === 'high' ? Math.max(a, b) : b;
}

/** A rank's series in one answer, of one attempt. */
export interface Piece {
  rank: number;
  attempt: number;
  x: Float64Array;
  y: Float64Array;
  bad: number[];
}

/** Series of one answer as pieces, older attempts first, so that newer ones overwrite them. */
export function piecesOf(
  answer: PointsAnswer,
  query: number,
  rankOf: (labels: Record<string, string>) => number | null,
  valuesOf: (series: Columns) => Float64Array,
): Piece[] {
  return answer.series
    .filter((s) => s.query === query)
    .sort((a, b) => a.attempt - b.attempt)
    .flatMap((series) => {
      const rank = rankOf(series.labels);
      if (rank === null) return [];
      const bad = series.nonFinite.map((n) => n.x);
      return [{ rank, attempt: series.attempt, x: answer.x, y: valuesOf(series), bad }];
    });
}

/** Series that are looked at to tell how far apart points stand. */
const LOOKED_AT = 50;

/** How far apart the points of most series stand in what was read. */
export function usualInterval(answers: PointsAnswer[]): number {
  const all = answers.flatMap((answer) => {
    const stride = Math.ceil(answer.series.length / LOOKED_AT);
    return answer.series.flatMap((series, at) => (at % stride === 0 ? gap(answer.x, series.last) : []));
  });
  all.sort((a, b) => a - b);
  return all[all.length >> 1] ?? 0;
}

/** The middle distance of two neighbours. */
function gap(x: Float64Array, y: Float64Array): number[] {
  const present = x.filter((_, at) => !Number.isNaN(y[at]));
  const gaps = Array.from(present.subarray(1), (right, at) => right - present[at]).sort((a, b) => a - b);
  return gaps.length > 0 ? [gaps[gaps.length >> 1]] : [];
}

/** How many columns hold what was read without holes that are none: no more than there are points. */
export function columnsFor(span: number, interval: number, stepped: boolean, most: number): number {
  if (!(span > 0)) return 1;
  if (!(interval > 0)) return most;
  // Steps stand on a grid; times waver, so that two intervals a column leave none empty.
  const fit = stepped ? Math.round(span / interval) + 1 : Math.floor(span / (2 * interval));
  return Math.max(1, Math.min(most, fit));
}

/** Where columns lie on the axis. */
export interface Span {
  from: number;
  to: number;
  columns: number;
  /** Whether the axis counts whole steps. */
  stepped: boolean;
}

/** The column of an x, as the server finds the cell of a key; -1 outside. */
export function columnAt({ from, to, columns, stepped }: Span, x: number): number {
  if (!(x >= from && x <= to)) return -1;
  if (stepped) return Math.floor(((x - from + 1) * columns - 1) / (to - from + 1));
  // An x is the last of its cell: rounding must not push it into the next.
  const place = to > from ? ((x - from) * columns) / (to - from) - 1e-6 : 0;
  return Math.max(0, Math.floor(place));
}

/** First and last x of a column. */
export function columnEnds({ from, to, columns, stepped }: Span, column: number): [number, number] {
  const width = (to - from + (stepped ? 1 : 0)) / columns;
  const end = (at: number) => (stepped ? Math.floor(width * at + 1e-9) : width * at);
  return [from + end(column), from + end(column + 1) - (stepped ? 1 : 0)];
}

/** Puts pieces on columns, the worst value of each column kept; what a restart threw away is not. */
export function gridOf(pieces: Piece[], span: Span, worse: Worse): Grid {
  const { columns } = span;
  const ranks = [...new Set(pieces.map((p) => p.rank))].sort((a, b) => a - b);
  const rowOf = new Map(ranks.map((rank, row) => [rank, row]));
  const values = new Float64Array(ranks.length * columns).fill(Number.NaN);
  const seen = new Float64Array(columns).fill(Number.NaN);
  const attempts = new Map<number, number>();
  for (const { rank, attempt, x, y, bad } of pieces) {
    const start = rowOf.get(rank)! * columns;
    if (attempt > (attempts.get(rank) ?? attempt)) {
      const first = x[y.findIndex((v) => !Number.isNaN(v))];
      const again = first === undefined ? -1 : columnAt(span, first);
      if (again >= 0) values.fill(Number.NaN, start + again, start + columns);
    }
    attempts.set(rank, attempt);
    for (let at = 0; at < x.length; at++) {
      const column = Number.isNaN(y[at]) ? -1 : columnAt(span, x[at]);
      if (column < 0) continue;
      values[start + column] = worseValue(values[start + column], y[at], worse);
      if (!(seen[column] >= x[at])) seen[column] = x[at];
    }
    for (const x of bad) {
      const column = columnAt(span, x);
      if (column >= 0) values[start + column] = Infinity;
    }
  }
  return { ...span, ranks, values, seen };
}

/** The x that stands for a column: the last one read of it, else its middle. */
export function columnX(grid: Grid, column: number): number {
  const x = grid.seen[column];
  if (!Number.isNaN(x)) return x;
  const [first, last] = columnEnds(grid, column);
  return grid.stepped ? Math.floor((first + last) / 2) : (first + last) / 2;
}
