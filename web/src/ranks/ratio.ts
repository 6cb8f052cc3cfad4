/** Each value against a median: of the other ranks in the same column, or of the rank's own history. */
import type { Worse } from './choices';
import type { Grid } from './grid';

/** What a value is held against. */
export type Base = 'peers' | 'own';

/** Ratios of a grid, cell by cell as its values are, and the medians that they are against. */
export interface Ratios {
  /** 1 is alike; NaN where the value is absent, an infinity where it is no number. */
  of: Float32Array;
  /** Least, median and greatest value of all ranks in each column; NaN where none has one. */
  low: Float64Array;
  median: Float64Array;
  high: Float64Array;
  /** Ranks that have a number in each column. */
  present: Uint32Array;
  /** From which distance on a rank stands out in each column. */
  limit: Float64Array;
}

/** Puts the value that a sorted list would have at `place` there, none greater before it and none less behind. */
function select(values: Float64Array, count: number, place: number): number {
  let [low, high] = [0, count - 1];
  while (low < high) {
    const pivot = values[(low + high) >> 1];
    let [left, right] = [low, high];
    while (left <= right) {
      while (values[left] < pivot) left++;
      while (values[right] > pivot) right--;
      if (left > right) break;
      const swapped = values[left];
      values[left++] = values[right];
      values[right--] = swapped;
    }
    if (place <= right) high = right;
    else if (place >= left) low = left;
    else break;
  }
  return values[place];
}

/** Medians of the first `count` values, which it reorders: of all of them, and of all but one. */
function medians(values: Float64Array, count: number): { all: number; without: (one: number) => number } {
  const half = count >> 1;
  const mid = select(values, count, half);
  let [below, above] = [-Infinity, Infinity];
  for (let at = 0; at < half; at++) if (values[at] > below) below = values[at];
  for (let at = half + 1; at < count; at++) if (values[at] < above) above = values[at];
  // Where others equal the one, it does not matter which of them is left out.
  return count % 2 === 1
    ? { all: mid, without: (one) => (one <= below ? mid : below) / 2 + (one <= mid ? above : mid) / 2 }
    : { all: below / 2 + mid / 2, without: (one) => (one <= below ? mid : below) };
}

/** How a value stands to a median: their ratio, also where the median is negative; a zero has none but itself. */
export function ratioTo(value: number, median: number): number {
  if (median > 0) return value / median;
  if (value === median) return 1;
  return median === 0 ? (value > 0 ? Infinity : -Infinity) : 1 + (value - median) / -median;
}

/** Largest ratio that is told as a number. */
const RATIO_MAX = 1e6;

const bounded = (ratio: number) => Math.max(-RATIO_MAX, Math.min(RATIO_MAX, ratio));

/** A rank nearer than this never stands out. */
const OUT_LEAST = 0.05;
/** It stands out beyond this many times the usual distance: far outside where ranks just differ. */
const OUT_SPREADS = 6;
/** Fewer ranks than this have no usual distance. */
const SPREAD_RANKS = 3;

/** The distance from which on one of these ratios stands out; overwrites them. */
function outFrom(ratios: Float64Array): number {
  const count = ratios.length;
  if (count < SPREAD_RANKS) return OUT_LEAST;
  const middle = select(ratios, count, (count - 1) >> 1);
  for (let at = 0; at < count; at++) ratios[at] = Math.abs(ratios[at] - middle);
  return Math.max(OUT_LEAST, OUT_SPREADS * select(ratios, count, (count - 1) >> 1));
}

/** Holds a grid against a base. */
export function ratiosOf(grid: Grid, base: Base): Ratios {
  const { columns, values } = grid;
  const rows = grid.ranks.length;
  const ratios: Ratios = {
    of: new Float32Array(values.length).fill(Number.NaN),
    low: new Float64Array(columns).fill(Number.NaN),
    median: new Float64Array(columns).fill(Number.NaN),
    high: new Float64Array(columns).fill(Number.NaN),
    present: new Uint32Array(columns),
    limit: new Float64Array(columns).fill(OUT_LEAST),
  };
  const gathered = new Float64Array(rows);
  for (let column = 0; column < columns; column++) {
    let count = 0;
    let [low, high] = [Infinity, -Infinity];
    for (let row = 0; row < rows; row++) {
      const value = values[row * columns + column];
      if (!Number.isFinite(value)) continue;
      gathered[count++] = value;
      if (value < low) low = value;
      if (value > high) high = value;
    }
    ratios.present[column] = count;
    if (count === 0) continue;
    const { all, without } = medians(gathered, count);
    ratios.low[column] = low;
    ratios.median[column] = all;
    ratios.high[column] = high;
    if (base === 'own') continue;
    for (let row = 0; row < rows; row++) {
      const value = values[row * columns + column];
      // A rank that is alone has no peers to be unlike.
      if (Number.isFinite(value))
        ratios.of[row * columns + column] = count < 2 ? 1 : bounded(ratioTo(value, without(value)));
    }
  }
  if (base === 'own') againstHistory(grid, ratios.of);
  for (let column = 0; column < columns; column++) {
    let count = 0;
    for (let row = 0; row < rows; row++) {
      const ratio = ratios.of[row * columns + column];
      if (Number.isFinite(ratio)) gathered[count++] = ratio;
    }
    ratios.limit[column] = outFrom(gathered.subarray(0, count));
  }
  for (let at = 0; at < values.length; at++) if (Math.abs(values[at]) === Infinity) ratios.of[at] = Infinity;
  return ratios;
}

function againstHistory({ columns, values, ranks }: Grid, of: Float32Array): void {
  for (let row = 0; row < ranks.length; row++) {
    const own = values.subarray(row * columns, (row + 1) * columns).filter(Number.isFinite);
    if (own.length === 0) continue;
    const median = medians(own, own.length).all;
    for (let at = row * columns; at < (row + 1) * columns; at++)
      if (Number.isFinite(values[at])) of[at] = bounded(ratioTo(values[at], median));
  }
}

/** How far a ratio is from alike, in the direction that is the worse one; negative on the better side. */
export function excess(ratio: number, worse: Worse): number {
  if (Number.isNaN(ratio)) return -Infinity;
  if (worse === 'either') return Math.abs(ratio - 1);
  return worse === 'high' ? ratio - 1 : 1 - ratio;
}

/** Columns that tell how a rank stands now: the last tenth, within bounds. */
export function nowColumns(columns: number): number {
  return Math.max(3, Math.min(20, Math.ceil(columns / 10)));
}

/** The last column in which all ranks that report lately have a value; -1 where none has. At the live edge some are on their way. */
export function lastWhole(present: Uint32Array): number {
  const last = present.findLastIndex((n) => n > 0);
  if (last < 0) return -1;
  const most = Math.max(...present.slice(Math.max(0, last + 1 - nowColumns(present.length)), last + 1));
  return present.lastIndexOf(most);
}

/** Columns on the better side in a row that end a spell. */
const CALM_COLUMNS = 3;

/** How one rank stands. */
export interface Standing {
  row: number;
  rank: number;
  /** Median ratio of the latest columns; NaN where it has none. */
  ratio: number;
  /** Its latest value that is a number; NaN where it has none. */
  value: number;
  /** Whether it is far outside where the others are. */
  out: boolean;
  /** First column of the spell that it is in; -1 where it does not stand out, or did all the time. */
  since: number;
}

/** How each rank stands over the latest columns. */
export function standings(grid: Grid, ratios: Ratios, worse: Worse): Standing[] {
  const latest = grid.ranks.map((_, row) => latestOf(grid, ratios.of, row));
  const known = latest.filter((l) => !Number.isNaN(l.ratio));
  const limit = outFrom(Float64Array.from(known, (l) => l.ratio));
  return grid.ranks.map((rank, row) => {
    const { ratio, column } = latest[row];
    const out = excess(ratio, worse) >= limit;
    return {
      row,
      rank,
      ratio,
      value: column < 0 ? Number.NaN : grid.values[row * grid.columns + column],
      out,
      since: out ? spellStart(ratios.of, row * grid.columns, column, ratio, worse) : -1,
    };
  });
}

/** The median ratio of a rank's latest columns, and the last of them. */
function latestOf(grid: Grid, of: Float32Array, row: number): { ratio: number; column: number } {
  const recent: number[] = [];
  let latest = -1;
  const first = Math.max(0, grid.columns - nowColumns(grid.columns));
  for (let column = grid.columns - 1; column >= first; column--) {
    const ratio = of[row * grid.columns + column];
    if (!Number.isFinite(ratio)) continue;
    recent.push(ratio);
    if (latest < 0) latest = column;
  }
  recent.sort((a, b) => a - b);
  return { ratio: recent.length > 0 ? recent[recent.length >> 1] : Number.NaN, column: latest };
}

/** Where the spell began in which a rank is at least half as far away as it is now. */
function spellStart(of: Float32Array, start: number, latest: number, ratio: number, worse: Worse): number {
  const half = excess(ratio, worse) / 2;
  // To either side, only the side that it is on now counts.
  const side = worse === 'either' ? (ratio > 1 ? 'high' : 'low') : worse;
  let first = latest;
  let calm = 0;
  for (let column = latest; column >= 0 && calm < CALM_COLUMNS; column--) {
    const here = of[start + column];
    if (Number.isNaN(here)) continue;
    if (excess(here, side) >= half) {
      first = column;
      calm = 0;
    } else calm++;
  }
  return calm < CALM_COLUMNS ? -1 : first;
}

/** The ranks that are farthest to the worse side, the farthest first. */
export function farthest(all: Standing[], worse: Worse, most: number): Standing[] {
  return all
    .filter((s) => !Number.isNaN(s.ratio))
    .sort((a, b) => excess(b.ratio, worse) - excess(a.ratio, worse) || a.rank - b.rank)
    .slice(0, most);
}
