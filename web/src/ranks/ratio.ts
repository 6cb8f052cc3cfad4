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

/** Median of the first `count` of sorted values. */
function middle(sorted: Float64Array, count: number): number {
  const half = count >> 1;
  return count % 2 === 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

/** Median of sorted values without one of them. */
function middleWithout(sorted: Float64Array, count: number, value: number): number {
  const left = count - 1;
  // The value's own place does not matter where others equal it.
  const place = (index: number) => (value <= sorted[index] ? sorted[index + 1] : sorted[index]);
  const half = left >> 1;
  return left % 2 === 1 ? place(half) : (place(half - 1) + place(half)) / 2;
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

/** The distance from which on one of these stands out; sorts them. */
function outFrom(distances: Float64Array): number {
  distances.sort();
  const usual = distances[(distances.length - 1) >> 1] ?? 0;
  return Math.max(OUT_LEAST, OUT_SPREADS * usual);
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
  const sorted = new Float64Array(rows);
  for (let column = 0; column < columns; column++) {
    let count = 0;
    for (let row = 0; row < rows; row++) {
      const value = values[row * columns + column];
      if (Number.isFinite(value)) sorted[count++] = value;
    }
    ratios.present[column] = count;
    if (count === 0) continue;
    sorted.subarray(0, count).sort();
    ratios.low[column] = sorted[0];
    ratios.median[column] = middle(sorted, count);
    ratios.high[column] = sorted[count - 1];
    if (base === 'own') continue;
    for (let row = 0; row < rows; row++) {
      const value = values[row * columns + column];
      // A rank that is alone has no peers to be unlike.
      if (Number.isFinite(value))
        ratios.of[row * columns + column] =
          count < 2 ? 1 : bounded(ratioTo(value, middleWithout(sorted, count, value)));
    }
  }
  if (base === 'own') againstHistory(grid, ratios.of);
  for (let column = 0; column < columns; column++) {
    let count = 0;
    for (let row = 0; row < rows; row++) {
      const ratio = ratios.of[row * columns + column];
      if (Number.isFinite(ratio)) sorted[count++] = Math.abs(ratio - 1);
    }
    ratios.limit[column] = outFrom(sorted.subarray(0, count));
  }
  for (let at = 0; at < values.length; at++) if (Math.abs(values[at]) === Infinity) ratios.of[at] = Infinity;
  return ratios;
}

function againstHistory({ columns, values, ranks }: Grid, of: Float32Array): void {
  for (let row = 0; row < ranks.length; row++) {
    const own = values
      .subarray(row * columns, (row + 1) * columns)
      .filter(Number.isFinite)
      .sort();
    if (own.length === 0) continue;
    const median = middle(own, own.length);
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

/** Columns that tell how a rank stands now. */
const NOW_COLUMNS = 20;
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
  const limit = outFrom(Float64Array.from(known, (l) => Math.abs(l.ratio - 1)));
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
  const last = grid.columns - 1;
  for (let column = last; column >= 0 && column > last - NOW_COLUMNS; column--) {
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
