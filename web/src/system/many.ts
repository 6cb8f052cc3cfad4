/** Lanes of more cards than an answer holds: their spread by PromQL, and single cards by name. */
import type { Range } from '../charts/range';
import { askJson } from '../lib/api';
import { type Axis, askPoints, type PointsQuestion } from '../lib/points';
import { type Member, membersOf, outliersOf, type Spread, spreadOf } from './series';
import type { LaneSpec } from './specs';

/** With more series than this, they are not sent one by one. */
export const SPREAD_SERIES = 1800;
/** Series that one answer holds. */
export const ANSWER_SERIES = 2000;
/** Cards beside the selected ones that are named. */
const NAMED = 5;
/** Series of one card in one lane, such as one for each reason. */
const PARTS = 32;

/** What is asked, and over what. */
export interface Span {
  lanes: LaneSpec[];
  axis: Axis;
  range: Range;
  /** When the run began, ms: where the relative axis is 0. */
  origin: number;
  buckets: number;
}

interface Matrix {
  data: { result: { metric: Record<string, string>; values: [number, string][] }[] };
}

const promql = (name: string) => name.replace(/[^a-zA-Z0-9_:]/g, '_');

/** A string as PromQL quotes it. */
export const quoted = (text: string) => JSON.stringify(text);

/** The grid of a range query: its ends in seconds, its step, and its x on the axis. */
export function gridOf(span: Span): { start: number; end: number; step: number; x: Float64Array } {
  const { axis, range, origin, buckets } = span;
  const seconds = (x: number) => (axis === 'time' ? x / 1000 : x + origin / 1000);
  const [start, end] = [seconds(range.from), seconds(range.to)];
  const step = Math.max(0.001, (end - start) / Math.max(1, buckets - 1));
  const count = Math.floor((end - start) / step + 1e-6) + 1;
  const x = Float64Array.from({ length: count }, (_, at) => {
    const time = start + at * step;
    return axis === 'time' ? time * 1000 : time - origin / 1000;
  });
  return { start, end, step, x };
}

/** Asks for a matrix. */
export async function askMatrix(
  query: string,
  { start, end, step }: { start: number; end: number; step: number },
  signal: AbortSignal,
): Promise<Matrix['data']['result']> {
  const body = new URLSearchParams({ query, start: `${start}`, end: `${end}`, step: `${step}` });
  const headers = { 'content-type': 'application/x-www-form-urlencoded' };
  const answer = await askJson<Matrix>('/api/v1/query_range', { method: 'POST', body, headers, signal });
  return answer.data.result;
}

/** The values of a series on a grid; NaN where it has none. */
export function onGrid(
  values: [number, string][],
  grid: { start: number; step: number; x: Float64Array },
  factor = 1,
): Float64Array {
  const column = new Float64Array(grid.x.length).fill(Number.NaN);
  for (const [time, value] of values) {
    const at = Math.round((time - grid.start) / grid.step);
    if (at >= 0 && at < column.length) column[at] = Number(value) * factor;
  }
  return column;
}

/** Cards that are asked for by name: the selected ones, and those that stand out by the colour. */
export function picksOf(
  colour: LaneSpec | null,
  members: Member[],
  x: Float64Array | undefined,
  selected: string[],
): Member['labels'][] {
  if (!colour || !x) return [];
  const out = outliersOf(x, members, spreadOf(x, members), [-Infinity, Infinity], NAMED);
  const keys = new Set(selected);
  const labels = new Map<string, Record<string, string>>();
  for (const { key, labels: all } of [...members.filter((m) => keys.has(m.key)), ...out])
    labels.set(key, { host: all.host, gpu: all.gpu });
  return [...labels.values()];
}

const QUANTILES = { low: 0.01, median: 0.5, high: 0.99 };

/** One expression for the spreads of all lanes. */
export function spreadQuery(runId: string, lanes: LaneSpec[], window: number): string {
  const held = `${Math.max(1, Math.ceil(window))}s`;
  const terms = lanes.flatMap((lane) => {
    const idle = lane.parted ? `, ${lane.parted}!~"low_utilization|idle"` : '';
    const series = `${promql(lane.metrics[0])}{run_id=${quoted(runId)}${idle}}`;
    const one = lane.rate
      ? `max by (host, gpu) (rate(${series}[${held}]))`
      : `last_over_time(${series}[${held}])`;
    return [
      ...Object.entries(QUANTILES).map(([word, q]) => [word, `quantile(${q}, ${one})`]),
      ['count', `count(${one})`],
    ].map(([word, expr]) => `label_replace(${expr}, "is", ${quoted(`${lane.id} ${word}`)}, "", "")`);
  });
  return terms.join(' or ');
}

/** Asks for the spreads of all lanes. */
export async function askSpreads(
  span: Span & { runId: string; interval: number },
  signal: AbortSignal,
): Promise<Map<string, Spread>> {
  const { runId, lanes, axis, interval } = span;
  const grid = gridOf(span);
  const window = Math.max(2.5 * interval, grid.step);
  const result = await askMatrix(spreadQuery(runId, lanes, window), grid, signal);
  const found = new Map(result.map((r) => [r.metric.is, onGrid(r.values, grid)]));
  const absent = new Float64Array(grid.x.length).fill(Number.NaN);
  const spacing = Math.max(grid.step, interval) * (axis === 'time' ? 1000 : 1);
  return new Map(
    lanes.map((lane) => {
      const column = (word: string) => found.get(`${lane.id} ${word}`) ?? absent;
      const spread: Spread = {
        x: grid.x,
        median: column('median'),
        low: column('low'),
        high: column('high'),
        count: column('count').map((v) => (Number.isNaN(v) ? 0 : v)),
        spacing,
        band: 'p1–p99',
      };
      return [lane.id, spread];
    }),
  );
}

/** Asks for the lanes of the picked cards. */
export async function askPicked(
  span: Span & { runId: string },
  picks: Record<string, string>[],
  signal: AbortSignal,
): Promise<Map<string, { x: Float64Array; members: Member[] }>> {
  const { runId, lanes, axis, range, buckets } = span;
  const none = { x: new Float64Array(0), members: [] };
  if (picks.length === 0 || lanes.length === 0) return new Map(lanes.map((lane) => [lane.id, none]));
  const pairs = lanes.flatMap((lane) => picks.map((labels) => ({ lane, labels })));
  const queries = pairs.map(({ lane, labels }) => ({
    run_id: runId,
    metric: lane.metrics[0],
    labels,
    limit: PARTS,
  }));
  const { from, to } = range;
  const columns: PointsQuestion['columns'] = ['last', 'count'];
  const answer = await askPoints({ axis, from, to, buckets, smooth: null, columns, queries }, signal);
  return new Map(
    lanes.map((lane) => {
      const own = answer.series.filter((s) => pairs[s.query].lane === lane);
      return [lane.id, { x: answer.x, members: membersOf(lane, answer.x, own, axis, ['host']) }];
    }),
  );
}
