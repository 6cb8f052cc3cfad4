/** `POST points`: many series on one shared grid, as binary columns. */
import { ask } from './api';

/** The x axis of an answer. */
export type Axis = 'step' | 'time' | 'relative';

/** How the server smooths. */
export type Smooth = { kind: 'ema'; weight: number } | { kind: 'window'; size: number };

/** One metric of one run. */
export interface Query {
  run_id: string;
  metric: string;
  labels?: Record<string, string>;
  /** Series left out at the front. */
  skip?: number;
  limit?: number;
}

/** What to ask. */
export interface PointsQuestion {
  axis: Axis;
  from: number | null;
  to: number | null;
  buckets: number;
  smooth: Smooth | null;
  /** What to send of each bucket; all of it unless given. */
  columns?: ('last' | 'min' | 'max' | 'first' | 'count')[];
  queries: Query[];
}

/** Points that no scale can hold. */
export interface NonFinite {
  x: number;
  kind: 'NaN' | '+Inf' | '-Inf';
  count: number;
}

/** One series of the answer; columns are as long as the grid, NaN where a bucket has no finite point. What was not asked for is made of what was. */
export interface Columns {
  query: number;
  runId: string;
  metric: string;
  display: string;
  labels: Record<string, string>;
  scale: string;
  attempt: number;
  unit: string;
  last: Float64Array;
  min: Float64Array;
  max: Float64Array;
  count: Float64Array;
  smooth: Float64Array | null;
  nonFinite: NonFinite[];
  /** Series that matched the query, sent or not. */
  total: number;
  /** Median spacing of its points on the axis. */
  interval: number;
}

/** A decoded answer. */
export interface PointsAnswer {
  axis: Axis;
  from: number;
  to: number;
  x: Float64Array;
  series: Columns[];
  pointsRead: number;
  warnings: string[];
}

interface Header {
  axis: Axis;
  from: number | null;
  to: number | null;
  grid: number;
  points_read: number;
  warnings?: string[];
  series: {
    query: number;
    run_id: string;
    metric: string;
    display: string;
    labels?: Record<string, string>;
    scale?: string;
    attempt?: number;
    unit?: string;
    columns: string[];
    offset: number;
    non_finite?: NonFinite[];
    total?: number;
    interval?: number | null;
  }[];
}

/** Why bytes are not an answer. */
export class DecodeError extends Error {}

/** Reads an answer: `TGP1`, length, JSON header, little-endian f64 columns. */
export function decodePoints(bytes: ArrayBuffer): PointsAnswer {
  const view = new DataView(bytes);
  if (bytes.byteLength < 8 || view.getUint32(0, false) !== 0x54475031) {
    throw new DecodeError('the answer does not start with `TGP1`');
  }
  const length = view.getUint32(4, true);
  const start = 8 + length;
  if (start > bytes.byteLength || start % 8 !== 0)
    throw new DecodeError(`the header of ${length} bytes does not fit`);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 8, length))) as Header;
  const grid = header.grid;
  const column = (offset: number): Float64Array => {
    if (start + offset + grid * 8 > bytes.byteLength)
      throw new DecodeError(`a column at ${offset} ends behind the answer`);
    if (LITTLE) return new Float64Array(bytes, start + offset, grid);
    return Float64Array.from({ length: grid }, (_, at) => view.getFloat64(start + offset + at * 8, true));
  };
  const x = column(0);
  const series = header.series.map((s): Columns => {
    const named = (name: string) => {
      const at = s.columns.indexOf(name);
      return at < 0 ? null : column(s.offset + at * grid * 8);
    };
    const last = named('last') ?? named('max') ?? named('min');
    if (!last) throw new DecodeError(`series ${s.display} has no column of values`);
    return {
      query: s.query,
      runId: s.run_id,
      metric: s.metric,
      display: s.display,
      labels: s.labels ?? {},
      scale: s.scale ?? '',
      attempt: s.attempt ?? 1,
      unit: s.unit ?? '',
      last,
      min: named('min') ?? last,
      max: named('max') ?? last,
      count: named('count') ?? Float64Array.from(last, (v) => (Number.isNaN(v) ? 0 : 1)),
      smooth: named('smooth'),
      nonFinite: s.non_finite ?? [],
      total: s.total ?? 1,
      interval: s.interval ?? 0,
    };
  });
  return {
    axis: header.axis,
    from: header.from ?? x[0] ?? 0,
    to: header.to ?? x[grid - 1] ?? 0,
    x,
    series,
    pointsRead: header.points_read,
    warnings: header.warnings ?? [],
  };
}

const LITTLE = new Uint8Array(new Uint32Array([1]).buffer)[0] === 1;

/** Asks for points. */
export async function askPoints(question: PointsQuestion, signal: AbortSignal): Promise<PointsAnswer> {
  const body = JSON.stringify({ ...question, format: 'binary' });
  const answer = await ask('points', { method: 'POST', body, signal });
  return decodePoints(await answer.arrayBuffer());
}
