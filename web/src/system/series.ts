/** From the columns of an answer to the series of a lane, the spread of many, and those that stand out. */
import { breaksOf, medianStep } from '../charts/shape';
import { varyingLabels } from '../lib/colour';
import type { Columns } from '../lib/points';
import { cardKey } from './cards';
import type { Compared, LaneSpec } from './specs';

/** One series of a lane. */
export interface Member {
  /** What it is of: `host/gpu` for a card, the labels' values else. */
  key: string;
  /** What tells it from the others, in words. */
  text: string;
  labels: Record<string, string>;
  y: Float64Array;
  min: Float64Array;
  max: Float64Array;
  /** How far apart its samples stand, on the axis. */
  spacing: number;
  /** Its parts by the label that they differ in. */
  parts: Map<string, Float64Array> | null;
}

/** Many series as one: at each x, of those that have a sample there. */
export interface Spread {
  x: Float64Array;
  median: Float64Array;
  low: Float64Array;
  high: Float64Array;
  count: Float64Array;
  spacing: number;
  /** What `low` and `high` are. */
  band: 'min–max' | 'p1–p99';
}

/** A sample stands for this many intervals after it. */
const HOLDS = 1.5;
/** Of fewer series, a first percentile is a made-up number. */
const PERCENTILES = 20;
/** How many robust deviations from its peers a series stands out by. */
const OUT = 5;

/** Milliseconds or seconds of the axis as seconds. */
export const inSeconds = (axis: string, span: number) => (axis === 'time' ? span / 1000 : span);

/** Whether the x stand for cells of equal width, so that samples in them have times of their own. */
function isEven(x: Float64Array): boolean {
  const width = x.length > 2 ? x[1] - x[0] : 0;
  return width > 0 && x.every((v, at) => at === 0 || Math.abs(v - x[at - 1] - width) < width * 0.01);
}

/** What a counter gains a second between neighbouring samples; absent after a gap and where it starts again. */
export function rateOf(
  x: Float64Array,
  { last, count, interval }: Pick<Columns, 'last' | 'count' | 'interval'>,
  axis: string,
): Float64Array {
  const rates = new Float64Array(last.length).fill(Number.NaN);
  const even = isEven(x);
  let before = -1;
  for (let at = 0; at < last.length; at++) {
    if (!Number.isFinite(last[at])) continue;
    const width = before >= 0 ? x[at] - x[before] : 0;
    // The last sample of a cell is somewhere in it: how many there are says how far apart they were taken.
    const counted = count[at] * interval;
    const span = even && Math.abs(counted - width) <= 1.5 * interval ? counted : width;
    const near = interval <= 0 || width <= 2.5 * Math.max(interval, even ? x[1] - x[0] : 0);
    if (before >= 0 && near && span > 0 && last[at] >= last[before])
      rates[at] = (last[at] - last[before]) / inSeconds(axis, span);
    before = at;
  }
  return rates;
}

/** The greater of two; what only one of them has counts as it is. */
const greatest = (a: Float64Array, b: Float64Array) =>
  a.map((v, at) => (Number.isNaN(v) ? b[at] : Number.isNaN(b[at]) ? v : Math.max(v, b[at])));

/** Parts that say nothing bad: a clock that is low for want of work is not held back. */
const counts = (part: string) => part !== 'low_utilization' && part !== 'idle';

/** What identifies a series of a lane, and what it is called beside the others. */
function identity(lane: LaneSpec, labels: Record<string, string>, varying: string[]): [string, string] {
  const { host = '', gpu = '' } = labels;
  const named = lane.subject === 'gpu' ? ['host', 'gpu'] : ['pid', 'rank', 'host'];
  const told = varying.filter((k) => k !== lane.parted && !named.includes(k)).sort();
  const rest = told.flatMap((k) => (k in labels ? `${k} ${labels[k]}` : []));
  if (lane.subject === 'gpu') {
    const card = varying.includes('host') ? `${host}/${gpu}` : `GPU ${gpu}`;
    return [cardKey(host, gpu), [card, ...rest].join(' ')];
  }
  const words = named.flatMap((k) =>
    varying.includes(k) && k in labels ? (k === 'host' ? labels[k] : `${k} ${labels[k]}`) : [],
  );
  return [JSON.stringify(labels), [...words, ...rest].join(' · ')];
}

/** The word of a metric among several in one lane. */
const metricWord = (display: string) =>
  display
    .split('/')
    .pop()!
    .replace(/_waiting_ratio$/, '')
    .replace(/_/g, ' ');

/** Makes the series of a lane of what came for it; `told` are labels that are written whatever came. */
export function membersOf(
  lane: LaneSpec,
  x: Float64Array,
  columns: Columns[],
  axis: string,
  told: string[] = [],
): Member[] {
  const members = new Map<string, Member>();
  const sets = columns.map((c) => c.labels);
  const varying = [...new Set([...varyingLabels(sets, true), ...told])];
  // Buckets stand further apart than the samples in them.
  const nearest = medianStep(x);
  for (const column of columns) {
    const spacing = Math.max(column.interval, nearest);
    const [base, text] = identity(lane, column.labels, varying);
    const many = lane.metrics.length > 1;
    const parted = lane.parted !== null || lane.subject !== 'gpu';
    const extra = parted ? '' : JSON.stringify(column.labels);
    const key = many ? `${column.display}\n${base}` : lane.parted ? base : `${base}${extra && `\n${extra}`}`;
    const y = lane.rate ? rateOf(x, column, axis) : column.last;
    const part = lane.parted ? (column.labels[lane.parted] ?? '') : '';
    const known = members.get(key);
    if (known?.parts) {
      known.parts.set(part, y);
      known.y = counts(part) ? greatest(known.y, y) : known.y;
      known.min = known.y;
      known.max = known.y;
      known.spacing = Math.max(known.spacing, spacing);
      continue;
    }
    // A series of an older attempt goes on in that of the newer one.
    if (known) {
      known.y = greatest(known.y, y);
      known.min = lane.rate ? known.y : greatest(known.min, column.min);
      known.max = lane.rate ? known.y : greatest(known.max, column.max);
      continue;
    }
    const own = lane.parted && !counts(part) ? y.map((v) => v * 0) : y;
    members.set(key, {
      key: base,
      text: many ? metricWord(column.display) : text,
      labels: column.labels,
      y: own,
      min: lane.rate ? own : column.min,
      max: lane.rate ? own : column.max,
      spacing,
      parts: lane.parted ? new Map([[part, y]]) : null,
    });
  }
  return [...members.values()];
}

/** At each x the newest sample of a series that still stands; NaN where none does. */
export function held(x: Float64Array, member: Pick<Member, 'y' | 'spacing'>): Float64Array {
  const values = new Float64Array(x.length).fill(Number.NaN);
  let last = -1;
  for (let at = 0; at < x.length; at++) {
    if (Number.isFinite(member.y[at])) last = at;
    if (last >= 0 && (last === at || x[at] - x[last] <= HOLDS * member.spacing)) values[at] = member.y[last];
  }
  return values;
}

function quantile(sorted: Float64Array, share: number): number {
  const at = share * (sorted.length - 1);
  const [low, high] = [Math.floor(at), Math.ceil(at)];
  return sorted[low] + (sorted[high] - sorted[low]) * (at - low);
}

/** Median and spread of series at each x. */
export function spreadOf(x: Float64Array, members: Member[]): Spread {
  const values = members.map((m) => held(x, m));
  const percentiles = members.length >= PERCENTILES;
  const empty = () => new Float64Array(x.length).fill(Number.NaN);
  const spread: Spread = {
    x,
    median: empty(),
    low: empty(),
    high: empty(),
    count: new Float64Array(x.length),
    spacing: Math.max(0, ...members.map((m) => m.spacing)),
    band: percentiles ? 'p1–p99' : 'min–max',
  };
  const room = new Float64Array(members.length);
  for (let at = 0; at < x.length; at++) {
    let found = 0;
    for (const own of values) if (Number.isFinite(own[at])) room[found++] = own[at];
    spread.count[at] = found;
    if (found === 0) continue;
    const sorted = room.subarray(0, found).sort();
    spread.median[at] = quantile(sorted, 0.5);
    spread.low[at] = percentiles ? quantile(sorted, 0.01) : sorted[0];
    spread.high[at] = percentiles ? quantile(sorted, 0.99) : sorted[found - 1];
  }
  return spread;
}

/** How far a value is from the peers' median, 0 for none; NaN where that cannot be said. */
export function deviation(value: number, median: number, compared: Compared): number {
  if (compared.by === 'difference') return value - median;
  return median === 0 ? Number.NaN : value / median - 1;
}

/** The same, from -1 for better to 1 for worse. */
export function badness(value: number, median: number, compared: Compared): number {
  const far = deviation(value, median, compared) / compared.clip;
  return Math.min(1, Math.max(-1, compared.worse === 'low' ? -far : far));
}

/** The median of what is there; NaN of nothing. */
export function middle(values: number[]): number {
  const sorted = Float64Array.from(values.filter((v) => !Number.isNaN(v))).sort();
  return sorted.length > 0 ? quantile(sorted, 0.5) : Number.NaN;
}

/** Series that stand apart from the others over the whole span, the furthest first, at most `most`. */
export function outliersOf(
  x: Float64Array,
  members: Member[],
  spread: Spread,
  [from, to]: [number, number],
  most: number,
): Member[] {
  if (members.length < 4) return [];
  const far = members.map((member) => {
    let [sum, count] = [0, 0];
    for (let at = 0; at < x.length; at++) {
      if (x[at] < from || x[at] > to) continue;
      const difference = member.y[at] - spread.median[at];
      if (Number.isFinite(difference)) {
        sum += difference;
        count++;
      }
    }
    return count > 0 ? sum / count : 0;
  });
  const centre = middle(far);
  const deviations = far.map((v) => Math.abs(v - centre));
  // Series that are all alike would make the smallest difference count.
  const typical = Math.abs(middle(Array.from(spread.median).filter(Number.isFinite)));
  const scale = Math.max(1.4826 * middle(deviations), 0.004 * typical, 1e-12);
  return members
    .map((member, at) => ({ member, score: deviations[at] / scale }))
    .filter(({ score }) => score > OUT)
    .sort((a, b) => b.score - a.score)
    .slice(0, most)
    .map(({ member }) => member);
}

/** Index of the sample of a series that stands for `at`, or -1. */
export function indexAt(x: Float64Array, y: Float64Array, spacing: number, at: number): number {
  let [low, high] = [0, x.length];
  while (low < high) {
    const half = (low + high) >> 1;
    if (x[half] <= at) low = half + 1;
    else high = half;
  }
  let [left, right] = [low - 1, low];
  while (left >= 0 && !Number.isFinite(y[left])) left--;
  while (right < x.length && !Number.isFinite(y[right])) right++;
  const [before, after] = [left >= 0 ? at - x[left] : Infinity, right < x.length ? x[right] - at : Infinity];
  const best = before <= after ? left : right;
  if (best < 0 || best >= x.length) return -1;
  // Between two samples that belong together there is always one; elsewhere only near one.
  if (before + after <= 2.5 * spacing) return best;
  return Math.min(before, after) <= Math.max(spacing, 1e-9) ? best : -1;
}

/** What a series reads at `at`, or its newest sample where that is `null`; NaN for absent. */
export function valueAt(
  x: Float64Array,
  series: { y: Float64Array; spacing: number },
  at: number | null,
): number {
  const index =
    at === null ? series.y.findLastIndex(Number.isFinite) : indexAt(x, series.y, series.spacing, at);
  return index < 0 ? Number.NaN : series.y[index];
}

/** Where a series has no samples for too long. */
export const gapsOf = (x: Float64Array, member: Pick<Member, 'y' | 'spacing'>) =>
  breaksOf(x, member.y, countsOf(member.y), member.spacing);

/** One for each sample. */
export const countsOf = (y: Float64Array) => y.map((v) => (Number.isFinite(v) ? 1 : 0));
