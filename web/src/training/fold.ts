/** Series brought onto one grid: moved to steps, put together over ranks, told by their least and greatest. */
import { medianStep } from '../charts/shape';
import type { StepMap } from '../charts/step_map';
import type { Columns, NonFinite } from '../lib/points';

/** A series with an x of its own. */
export interface Piece {
  x: Float64Array;
  column: Columns;
}

/** Cells that series of many ranks are put together in, at most. */
const CELLS_MAX = 300;

/** Steps and their times, both growing. */
export type Kept = Pick<StepMap, 'steps' | 'times'>;

/** A map is asked for with every series. */
const knownKept = new WeakMap<Kept, Kept & { spacing: number }>();

/** The part of a map that counts: what a restart threw away is left out. */
export function keptSteps(map: Kept): Kept & { spacing: number } {
  const known = knownKept.get(map);
  if (known) return known;
  const kept: number[] = [];
  let least = Infinity;
  for (let at = map.steps.length - 1; at >= 0; at--) {
    if (map.steps[at] >= least) continue;
    least = map.steps[at];
    kept.push(at);
  }
  kept.reverse();
  const pick = (from: Float64Array) => Float64Array.from(kept, (at) => from[at]);
  const times = pick(map.times);
  const made = { steps: pick(map.steps), times, spacing: medianStep(times) };
  for (const of of [map, made]) knownKept.set(of, made);
  return made;
}

/** Where `x` of `from` lies on `to`; both grow. Outside, the nearest end when it is within `reach`; else NaN. */
function along(x: number, from: Float64Array, to: Float64Array, reach: number): number {
  const last = from.length - 1;
  if (last < 0) return Number.NaN;
  if (x <= from[0]) return from[0] - x <= reach ? to[0] : Number.NaN;
  if (x >= from[last]) return x - from[last] <= reach ? to[last] : Number.NaN;
  let [low, high] = [0, last];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (from[middle] <= x) low = middle;
    else high = middle;
  }
  const width = from[high] - from[low];
  return width > 0 ? to[low] + ((x - from[low]) / width) * (to[high] - to[low]) : to[low];
}

/** The step at a time, between the first and the last known; NaN where the map says nothing. */
export const stepAt = (kept: Kept, time: number, reach = 0) => along(time, kept.times, kept.steps, reach);
/** The time of a step; beyond the ends, that of the end. */
export const timeAt = (kept: Kept, step: number) => along(step, kept.steps, kept.times, Infinity);

/** Moves a series over time onto steps. What lies just outside of the steps that are known goes to their ends. */
export function toSteps({ x, column }: Piece, map: Kept): Piece {
  const kept = keptSteps(map);
  const reach = 2.5 * Math.max(column.interval, kept.spacing);
  const steps: number[] = [];
  const places: number[] = [];
  for (let at = 0; at < x.length; at++) {
    if (!(column.count[at] > 0) && !Number.isFinite(column.last[at])) continue;
    const step = stepAt(kept, x[at], reach);
    if (Number.isNaN(step)) continue;
    // Several times may go to one end: the last one stands there.
    if (steps.length > 0 && step <= steps[steps.length - 1]) places[places.length - 1] = at;
    else {
      steps.push(step);
      places.push(at);
    }
  }
  const pick = (values: Float64Array) => Float64Array.from(places, (at) => values[at]);
  const own = Float64Array.from(steps);
  const finite = (mark: NonFinite) => {
    const step = stepAt(kept, mark.x, Infinity);
    return Number.isNaN(step) ? [] : [{ ...mark, x: step }];
  };
  return {
    x: own,
    column: {
      ...column,
      last: pick(column.last),
      min: pick(column.min),
      max: pick(column.max),
      count: pick(column.count),
      smooth: null,
      nonFinite: column.nonFinite.flatMap(finite),
      interval: medianStep(own),
    },
  };
}

/** Puts series on the x of all of them together. */
export function together(pieces: Piece[]): { x: Float64Array; columns: Columns[] } {
  const first = pieces[0]?.x ?? new Float64Array();
  if (pieces.every((p) => p.x === first)) return { x: first, columns: pieces.map((p) => p.column) };
  const x = Float64Array.from(new Set(pieces.flatMap((p) => [...p.x]))).sort();
  const places = new Map(Array.from(x, (value, at) => [value, at]));
  const columns = pieces.map(({ x: own, column }) => {
    const spread = (values: Float64Array, empty: number) => {
      const all = new Float64Array(x.length).fill(empty);
      own.forEach((value, at) => {
        all[places.get(value)!] = values[at];
      });
      return all;
    };
    return {
      ...column,
      last: spread(column.last, Number.NaN),
      min: spread(column.min, Number.NaN),
      max: spread(column.max, Number.NaN),
      count: spread(column.count, 0),
      smooth: null,
    };
  });
  return { x, columns };
}

/** What many series have in common, cell by cell; no cell without a value is in it. */
export interface Fold {
  x: Float64Array;
  median: Float64Array;
  low: Float64Array;
  high: Float64Array;
  /** Series that have a value there. */
  present: Float64Array;
  /** The series' own values on the cells, in the order given; NaN where there is none. */
  rows: Float64Array[];
  interval: number;
}

/** Series of one thing: attempts of it follow each other, and the newer one counts where both have a value. */
const identity = (column: Columns) => JSON.stringify([column.runId, column.labels]);

/** The pieces of each series, oldest attempt first. */
export function seriesOf(pieces: Piece[]): Piece[][] {
  const series = new Map<string, Piece[]>();
  for (const piece of pieces.toSorted((a, b) => a.column.attempt - b.column.attempt)) {
    const key = identity(piece.column);
    const known = series.get(key);
    if (known) known.push(piece);
    else series.set(key, [piece]);
  }
  return [...series.values()];
}

/** Puts series together: ranks that export a moment apart meet in one cell. */
export function foldOf(series: Piece[][]): Fold {
  const all = series.flat();
  const [from, to] = extentOf(all);
  const usual = all.map((p) => Math.max(p.column.interval, usualStep(p))).filter((v) => v > 0);
  const interval = usual.sort((a, b) => a - b)[(usual.length - 1) >> 1] ?? 0;
  const cells = !(from <= to) ? 0 : Math.max(1, Math.min(CELLS_MAX, cellsIn(to - from, interval)));
  const width = cells > 1 ? (to - from) / (cells - 1) : 1;
  const cellOf = (x: number) => (cells > 1 ? Math.round((x - from) / width) : 0);
  const rows = series.map((pieces) => {
    const row = new Float64Array(cells).fill(Number.NaN);
    for (const { x, column } of pieces)
      for (let at = 0; at < x.length; at++)
        if (Number.isFinite(column.last[at])) row[cellOf(x[at])] = column.last[at];
    return row;
  });
  return { ...summed(rows, from, width, cells), interval: Math.max(interval, width) };
}

/** The first and the last x that has a point. */
function extentOf(pieces: Piece[]): [from: number, to: number] {
  let [from, to] = [Infinity, -Infinity];
  for (const { x, column } of pieces) {
    for (let at = 0; at < x.length; at++) {
      if (!(column.count[at] > 0)) continue;
      if (x[at] < from) from = x[at];
      if (x[at] > to) to = x[at];
    }
  }
  return [from, to];
}

const cellsIn = (span: number, interval: number) => (interval > 0 ? Math.round(span / interval) + 1 : 1);

const usualStep = ({ x, column }: Piece) => medianStep(x.filter((_, at) => column.count[at] > 0));

function summed(rows: Float64Array[], from: number, width: number, cells: number): Omit<Fold, 'interval'> {
  const kept: number[] = [];
  const [median, low, high, present] = [0, 1, 2, 3].map(() => new Float64Array(cells));
  const values = new Float64Array(rows.length);
  for (let at = 0; at < cells; at++) {
    let count = 0;
    for (const row of rows) if (Number.isFinite(row[at])) values[count++] = row[at];
    if (count === 0) continue;
    // Numbers in a typed array are sorted as numbers, and much faster.
    const sorted = values.subarray(0, count).sort();
    const place = kept.push(at) - 1;
    median[place] = (sorted[(count - 1) >> 1] + sorted[count >> 1]) / 2;
    low[place] = sorted[0];
    high[place] = sorted[count - 1];
    present[place] = count;
  }
  const cut = (column: Float64Array) => column.subarray(0, kept.length);
  return {
    x: Float64Array.from(kept, (at) => from + at * width),
    median: cut(median),
    low: cut(low),
    high: cut(high),
    present: cut(present),
    rows: rows.map((row) => Float64Array.from(kept, (at) => row[at])),
  };
}

/** The middle one of several numbers; NaN of none. */
export function middle(values: number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted.length > 0 ? (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2 : Number.NaN;
}

/** A fold as a series of its own. */
export function foldedColumn(fold: Fold, like: Columns, labels: Record<string, string>): Piece {
  return {
    x: fold.x,
    column: {
      ...like,
      labels,
      attempt: 1,
      last: fold.median,
      min: fold.low,
      max: fold.high,
      count: fold.present,
      smooth: null,
      interval: fold.interval,
    },
  };
}

/** Where a counter grew, and by how much. */
export interface Grown {
  x: number;
  by: number;
}

/** Growth of a counter that begins at zero, or somewhere before `x`; a fall is a restart, and what is there then came since. */
export function growth({ x, column }: Piece, begins: boolean): Grown[] {
  const grown: Grown[] = [];
  let before = begins ? 0 : Number.NaN;
  for (let at = 0; at < x.length; at++) {
    const now = column.last[at];
    if (!Number.isFinite(now)) continue;
    // A bucket may hold a restart: its greatest value was reached before it fell.
    const by = !(now < before) ? now - before : Math.max(0, column.max[at] - before) + now;
    if (by > 0) grown.push({ x: x[at], by });
    before = now;
  }
  return grown;
}
