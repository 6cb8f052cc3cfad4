/** Questions to the Prometheus API of this server, and a range answer as a chart's shape. */
import type { Range } from '../charts/range';
import { breaksOf, holesOf, type Line, type Mark, type Shape } from '../charts/shape';
import { askJson } from '../lib/api';
import { varyingLabels } from '../lib/colour';

/** One series: labels with its name, and a value for each step that has one. */
export interface Series {
  labels: Record<string, string>;
  /** As long as the grid; NaN where there is none, and where it is NaN. */
  values: Float64Array;
  /** 1 where a sample is, else 0. */
  present: Float64Array;
  samples: number;
  last: number;
  min: number;
  max: number;
  mean: number;
}

/** An answer to one query. */
export interface RangeAnswer {
  range: Range;
  step: number;
  /** ms since the epoch. */
  x: Float64Array;
  series: Series[];
  /** Series that there are; more than came when the answer was cut; `null` when that is not known. */
  total: number | null;
  samplesRead: number;
  milliseconds: number;
  warnings: string[];
  infos: string[];
}

interface Body<T> {
  data: T;
  warnings?: string[];
  infos?: string[];
  /** Of a cut answer: how many there are. A far storage does not say. */
  total?: number;
}

interface Matrix {
  result: { metric: Record<string, string>; values: [number, string][] }[];
  stats?: { samples: { totalQueryableSamples: number }; timings: { execTotalTime: number } };
}

/** Asks one path of the Prometheus API. */
export async function askProm<T>(
  path: string,
  query: Record<string, string>,
  signal?: AbortSignal,
): Promise<Body<T>> {
  return await askJson<Body<T>>(`/api/v1/${path}`, {
    method: 'POST',
    body: new URLSearchParams(query).toString(),
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    signal,
  });
}

/** Asks what can only be got. */
export async function getProm<T>(path: string, query: Record<string, string> = {}, signal?: AbortSignal) {
  const text = new URLSearchParams(query).toString();
  return (await askJson<Body<T>>(`/api/v1/${path}${text && `?${text}`}`, { signal })).data;
}

/** Values of an answer at most, so that a page stays a page. */
const VALUES_MAX = 400_000;
/** What the server says of an answer that was longer than `limit`. */
const CUT = 'results truncated due to limit';
const SERIES_LEAST = 50;
const SERIES_MOST = 2000;

/** Asks a query over `range`, whose ends are whole steps. */
export async function askRange(
  query: string,
  range: Range,
  step: number,
  signal: AbortSignal,
): Promise<RangeAnswer> {
  const steps = Math.floor((range.to - range.from) / step) + 1;
  const limit = Math.min(SERIES_MOST, Math.max(SERIES_LEAST, Math.floor(VALUES_MAX / steps)));
  const seconds = (ms: number) => String(ms / 1000);
  const body = await askProm<Matrix>(
    'query_range',
    {
      query,
      start: seconds(range.from),
      end: seconds(range.to),
      step: seconds(step),
      stats: 'all',
      limit: String(limit),
    },
    signal,
  );
  const x = Float64Array.from({ length: steps }, (_, at) => range.from + at * step);
  const series = body.data.result.map((row) => seriesOf(row.metric, row.values, range.from, step, steps));
  const told = body.warnings ?? [];
  const cut = told.some((w) => w === CUT);
  return {
    range,
    step,
    x,
    series,
    total: cut ? (body.total ?? null) : series.length,
    samplesRead: body.data.stats?.samples.totalQueryableSamples ?? 0,
    milliseconds: (body.data.stats?.timings.execTotalTime ?? 0) * 1000,
    warnings: told.filter((w) => w !== CUT),
    infos: body.infos ?? [],
  };
}

/** Reads a value as Prometheus writes it. */
export function readValue(text: string): number {
  if (text === '+Inf' || text === 'Inf') return Infinity;
  return text === '-Inf' ? -Infinity : Number(text);
}

/** Puts samples on the grid. */
export function seriesOf(
  labels: Record<string, string>,
  samples: [number, string][],
  from: number,
  step: number,
  steps: number,
): Series {
  const values = new Float64Array(steps).fill(Number.NaN);
  const present = new Float64Array(steps);
  let [min, max, sum, count] = [Infinity, -Infinity, 0, 0];
  for (const [seconds, text] of samples) {
    const at = Math.round((seconds * 1000 - from) / step);
    if (at < 0 || at >= steps) continue;
    const value = readValue(text);
    values[at] = value;
    present[at] = 1;
    if (Number.isNaN(value)) continue;
    min = Math.min(min, value);
    max = Math.max(max, value);
    sum += value;
    count += 1;
  }
  const last = present.lastIndexOf(1);
  return {
    labels,
    values,
    present,
    samples: samples.length,
    last: last < 0 ? Number.NaN : values[last],
    min: count > 0 ? min : Number.NaN,
    max: count > 0 ? max : Number.NaN,
    mean: count > 0 ? sum / count : Number.NaN,
  };
}

/** Labels that tell series apart. */
export function tellingLabels(series: Series[]): string[] {
  return varyingLabels(
    series.map((s) => s.labels),
    true,
  );
}

/** Places by last value, the highest first; what has ended comes after what has not. */
export function ranked(series: Series[]): Series[] {
  const ended = (s: Series) => Number(s.present[s.present.length - 1] === 0);
  const key = (s: Series) => (Number.isNaN(s.last) ? -Infinity : s.last);
  return series.toSorted((a, b) => ended(a) - ended(b) || (key(a) === key(b) ? 0 : key(b) - key(a)));
}

/** A chart of some of the series of an answer. */
export function shapeOfRange(answer: RangeAnswer, drawn: Series[], varying: string[]): Shape {
  const used: number[] = [];
  for (let at = 0; at < answer.x.length; at++) if (drawn.some((s) => s.present[at] > 0)) used.push(at);
  const pick = (values: Float64Array) => Float64Array.from(used, (at) => values[at]);
  const x = pick(answer.x);
  // At a step without a sample there is none: even one is a gap.
  const spacing = answer.step / 2;
  const lines = drawn.map((series): Line => {
    const finite = pick(series.values).map((v) => (Number.isFinite(v) ? v : Number.NaN));
    const count = pick(series.present);
    return {
      key: varying.flatMap((k) => wordOf(k, series.labels[k])).join(' · '),
      labels: series.labels,
      attempt: 1,
      ghost: false,
      y: finite,
      raw: finite,
      min: finite,
      max: finite,
      count,
      spacing,
      breaks: breaksOf(x, finite, count, spacing),
    };
  });
  return {
    x,
    lines,
    marks: marksOf(answer.x, drawn),
    holes: holesOf(lines),
    attempts: [],
    lost: null,
    total: answer.total ?? answer.series.length,
  };
}

function wordOf(label: string, value: string | undefined): string[] {
  if (value === undefined || value === '') return [];
  return [/^\d+$/.test(value) ? `${label} ${value}` : value];
}

function marksOf(x: Float64Array, drawn: Series[]): Mark[] {
  const merged = new Map<string, Mark>();
  for (const { values, present } of drawn) {
    for (let at = 0; at < values.length; at++) {
      if (present[at] === 0 || Number.isFinite(values[at])) continue;
      const kind = Number.isNaN(values[at]) ? 'NaN' : values[at] > 0 ? '+Inf' : '-Inf';
      const key = `${kind} ${at}`;
      const mark = merged.get(key) ?? { x: x[at], kind, count: 0 };
      mark.count += 1;
      merged.set(key, mark);
    }
  }
  return [...merged.values()].sort((a, b) => a.x - b.x);
}
