/** From columns to lines: gaps, what a restart threw away, marks for what is not finite. */
import type { Columns } from '../lib/points';
import type { Range } from './range';

/** One line of a chart. */
export interface Line {
  /** Its labels that tell it from the others, as text; empty for the only one. */
  key: string;
  labels: Record<string, string>;
  attempt: number;
  /** Thrown away by a restart. */
  ghost: boolean;
  /** What is drawn solid: the smoothed value where it is asked for. */
  y: Float64Array;
  /** The values themselves; the same array as `y` when nothing is smoothed. */
  raw: Float64Array;
  min: Float64Array;
  max: Float64Array;
  count: Float64Array;
  /** Where the line is broken: no sample for too long, or none that is finite. */
  breaks: Range[];
  /** How far apart neighbours stand, on the axis. */
  spacing: number;
}

/** NaN or an infinity, on the frame. */
export interface Mark {
  x: number;
  kind: 'NaN' | '+Inf' | '-Inf';
  count: number;
}

/** An attempt's span on the axis. */
export interface AttemptSpan extends Range {
  number: number;
}

/** A chart's content. */
export interface Shape {
  x: Float64Array;
  lines: Line[];
  marks: Mark[];
  /** Spans in which no line has a sample: hatched. */
  holes: Range[];
  attempts: AttemptSpan[];
  /** Steps that a restart threw away, and where the label stands. */
  lost: { x: number; steps: number; attempt: number } | null;
  /** Series that exist, drawn or not. */
  total: number;
}

/** A break is longer than this many intervals. */
const GAP_INTERVALS = 2.5;

/** Builds a chart from the series of one query; `varying` are the labels that tell lines apart. */
export function shapeOf(x: Float64Array, columns: Columns[], varying: string[]): Shape {
  const kept = usedIndices(x, columns);
  const dense = pick(x, kept);
  const lines: Line[] = [];
  const cuts = restartCuts(x, columns);
  for (const column of columns) {
    const whole = lineOf(dense, column, kept, varying);
    const cut = cuts.get(column);
    if (cut === undefined) lines.push(whole);
    else lines.push(...splitAt(dense, whole, cut));
  }
  // Older attempts first, so that the newest is drawn on top.
  lines.sort((a, b) => a.attempt - b.attempt || Number(b.ghost) - Number(a.ghost));
  return {
    x: dense,
    lines,
    marks: marksOf(columns),
    holes: holesOf(lines),
    attempts: attemptSpans(x, columns),
    lost: lostSteps(dense, lines),
    total: columns.length > 0 ? Math.max(...columns.map((c) => c.total)) : 0,
  };
}

function usedIndices(x: Float64Array, columns: Columns[]): number[] {
  const used: number[] = [];
  for (let at = 0; at < x.length; at++)
    if (columns.some((c) => c.count[at] > 0 || Number.isFinite(c.last[at]))) used.push(at);
  return used;
}

const pick = (from: Float64Array, at: number[]) => Float64Array.from(at, (index) => from[index]);

/** The middle distance of two neighbours; 0 where there are none. */
export function medianStep(x: Float64Array): number {
  if (x.length < 2) return 0;
  const gaps = Array.from(x.subarray(1), (v, at) => v - x[at]).sort((a, b) => a - b);
  return gaps[(gaps.length - 1) >> 1];
}

function lineOf(dense: Float64Array, column: Columns, kept: number[], varying: string[]): Line {
  const raw = pick(column.last, kept);
  const smooth = column.smooth ? pick(column.smooth, kept) : null;
  const count = pick(column.count, kept);
  const present = own(dense, raw);
  // Buckets stand further apart than the points in them; a sparse series further than the buckets.
  const spacing = Math.max(column.interval, medianStep(present));
  return {
    key: varying
      .flatMap((k) => lineWord(k, column.labels[k] ?? (k === 'scale' ? column.scale : '')))
      .join(' · '),
    labels: column.labels,
    attempt: column.attempt,
    ghost: false,
    raw,
    y: smooth ?? raw,
    min: pick(column.min, kept),
    max: pick(column.max, kept),
    count,
    spacing,
    breaks: breaksOf(dense, raw, count, spacing),
  };
}

/** A label's value; a bare number says what it numbers. */
function lineWord(label: string, value: string): string[] {
  if (value === '') return [];
  return [/^\d+$/.test(value) ? `${label} ${value}` : value];
}

const own = (x: Float64Array, y: Float64Array) => x.filter((_, at) => Number.isFinite(y[at]));

/** Where a line breaks: more than 2.5 spacings without a sample, or only what is not finite between. */
export function breaksOf(x: Float64Array, y: Float64Array, count: Float64Array, spacing: number): Range[] {
  const breaks: Range[] = [];
  let previous = -1;
  let notFinite = false;
  for (let at = 0; at < x.length; at++) {
    if (!Number.isFinite(y[at])) {
      if (count[at] > 0) notFinite = true;
      continue;
    }
    if (previous >= 0 && (notFinite || (spacing > 0 && x[at] - x[previous] > GAP_INTERVALS * spacing))) {
      breaks.push({ from: x[previous], to: x[at] });
    }
    previous = at;
    notFinite = false;
  }
  return breaks;
}

/** Where the next attempt of the same series begins: behind it, the older one was thrown away. */
function restartCuts(x: Float64Array, columns: Columns[]): Map<Columns, number> {
  const starts = new Map<Columns, number>();
  for (const column of columns) {
    const at = column.count.findIndex((c) => c > 0);
    if (at >= 0) starts.set(column, x[at]);
  }
  const cuts = new Map<Columns, number>();
  for (const older of columns) {
    const newer = columns.filter((c) => c.attempt > older.attempt && sameLabels(c.labels, older.labels));
    const begins = newer.flatMap((c) => starts.get(c) ?? []);
    if (begins.length > 0) cuts.set(older, Math.min(...begins));
  }
  return cuts;
}

function sameLabels(a: Record<string, string>, b: Record<string, string>): boolean {
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((k) => a[k] === b[k]);
}

function splitAt(x: Float64Array, line: Line, cut: number): Line[] {
  const part = (keep: (value: number) => boolean, ghost: boolean): Line => {
    const mask = (values: Float64Array, empty: number) => values.map((v, at) => (keep(x[at]) ? v : empty));
    const raw = mask(line.raw, Number.NaN);
    const count = mask(line.count, 0);
    return {
      ...line,
      ghost,
      raw,
      y: line.y === line.raw ? raw : mask(line.y, Number.NaN),
      min: mask(line.min, Number.NaN),
      max: mask(line.max, Number.NaN),
      count,
      breaks: breaksOf(x, raw, count, line.spacing),
    };
  };
  return [part((v) => v < cut, false), part((v) => v >= cut, true)].filter((p) => p.count.some((c) => c > 0));
}

function marksOf(columns: Columns[]): Mark[] {
  const merged = new Map<string, Mark>();
  for (const { nonFinite } of columns) {
    for (const { x, kind, count } of nonFinite) {
      const key = `${kind} ${x}`;
      const mark = merged.get(key);
      if (mark) mark.count += count;
      else merged.set(key, { x, kind, count });
    }
  }
  return [...merged.values()].sort((a, b) => a.x - b.x);
}

/** Breaks that all series share; attempts of one series follow each other. */
export function holesOf(lines: Line[]): Range[] {
  const bySeries = new Map<string, Range[]>();
  for (const line of lines) {
    if (line.ghost) continue;
    const long = line.breaks.filter((b) => b.to - b.from > GAP_INTERVALS * line.spacing);
    const key = JSON.stringify(line.labels);
    bySeries.set(key, [...(bySeries.get(key) ?? []), ...long]);
  }
  const [first, ...others] = bySeries.values();
  return others.reduce(
    (shared, next) => shared.flatMap((a) => next.flatMap((b) => overlap(a, b))),
    first ?? [],
  );
}

function overlap(a: Range, b: Range): Range[] {
  const [from, to] = [Math.max(a.from, b.from), Math.min(a.to, b.to)];
  return from < to ? [{ from, to }] : [];
}

function attemptSpans(x: Float64Array, columns: Columns[]): AttemptSpan[] {
  const spans = new Map<number, AttemptSpan>();
  for (const { attempt, count } of columns) {
    const first = count.findIndex((c) => c > 0);
    if (first < 0) continue;
    const last = count.findLastIndex((c) => c > 0);
    const span = spans.get(attempt);
    spans.set(attempt, {
      number: attempt,
      from: Math.min(x[first], span?.from ?? Infinity),
      to: Math.max(x[last], span?.to ?? -Infinity),
    });
  }
  return [...spans.values()].sort((a, b) => a.number - b.number);
}

function lostSteps(x: Float64Array, lines: Line[]): Shape['lost'] {
  const ghosts = lines.filter((l) => l.ghost);
  if (ghosts.length === 0) return null;
  const newest = ghosts[ghosts.length - 1];
  const first = newest.count.findIndex((c) => c > 0);
  const last = newest.count.findLastIndex((c) => c > 0);
  return { x: (x[first] + x[last]) / 2, steps: x[last] - x[first] + 1, attempt: newest.attempt };
}

/** Divides all values; for those whose distance is no number any more. */
export function divided(shape: Shape, by: number): Shape {
  const part = (values: Float64Array) => values.map((v) => v / by);
  const lines = shape.lines.map((line) => {
    const raw = part(line.raw);
    return {
      ...line,
      raw,
      y: line.y === line.raw ? raw : part(line.y),
      min: part(line.min),
      max: part(line.max),
    };
  });
  return { ...shape, lines };
}

/** Index of the sample nearest to `at`, or -1 where the line has none: never an interpolated one. */
export function sampleAt(
  x: ArrayLike<number>,
  line: Pick<Line, 'raw' | 'count' | 'spacing'>,
  at: number,
): number {
  let [low, high] = [0, x.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x[middle] < at) low = middle + 1;
    else high = middle;
  }
  let [left, right] = [low - 1, low];
  while (left >= 0 && !(line.count[left] > 0)) left--;
  while (right < x.length && !(line.count[right] > 0)) right++;
  const best = right >= x.length || (left >= 0 && at - x[left] <= x[right] - at) ? left : right;
  if (best < 0 || best >= x.length) return -1;
  const inside =
    left >= 0 && right < x.length && x[right] - x[left] <= GAP_INTERVALS * Math.max(line.spacing, 1e-12);
  return inside || Math.abs(x[best] - at) <= Math.max(line.spacing, 1e-9) ? best : -1;
}
