/** Quantiles of step times, from the trainer's histogram. */
import type { Range } from '../charts/range';
import { medianStep, type Shape, shapeOf } from '../charts/shape';
import type { StepMap } from '../charts/step_map';
import type { Axis, Columns } from '../lib/points';
import { keptSteps, type Piece, together, toSteps } from './fold';
import { GROUP } from './read';

/** The quantiles that are drawn, and what they are called. */
export const QUANTILES: readonly [q: number, name: string][] = [
  [0.5, 'p50'],
  [0.95, 'p95'],
];

/** Observations that a window holds, about: there is one a log interval. */
const OBSERVATIONS = 5;

/** A run whose quantiles are asked for. */
export interface Timed {
  runId: string;
  name: string;
  map: StepMap | null;
  /** When it began, ms: where the relative axis is 0. */
  origin: number;
}

/** A row of a matrix. */
export interface Row {
  metric: Record<string, string>;
  values: [number, string][];
}

/** Asks for a matrix; injected, so that it can be tested without a server. */
export type AskMatrix = (
  query: string,
  grid: { start: number; end: number; step: number },
  signal: AbortSignal,
) => Promise<Row[]>;

const quoted = (text: string) => JSON.stringify(text);

/** One expression for all quantiles: values are seconds, the series' unit is milliseconds. */
export function quantileQuery(metric: string, runId: string, windowSeconds: number): string {
  const held = `${Math.max(1, Math.ceil(windowSeconds))}s`;
  const buckets = `sum by (le) (increase(${metric}_bucket{run_id=${quoted(runId)}}[${held}]))`;
  return QUANTILES.map(
    ([q, name]) => `label_replace(histogram_quantile(${q}, ${buckets}) / 1000, "q", "${name}", "", "")`,
  ).join(' or ');
}

/** Reads the quantiles of one run over a range of times, onto the axis. */
export async function readQuantiles(
  run: Timed,
  asked: { metric: string; times: Range; axis: Axis; interval: number; width: number; alone: boolean },
  ask: AskMatrix,
  signal: AbortSignal,
): Promise<Piece[]> {
  const { metric, times, axis, interval } = asked;
  const [start, end] = [times.from / 1000, times.to / 1000];
  const points = Math.max(20, Math.min(400, Math.ceil(asked.width / 2)));
  // A grid finer than the observations would show the same window again and again.
  const step = Math.max(0.5, interval / 2, (end - start) / points);
  const window = Math.max(OBSERVATIONS * interval, 2 * step);
  const rows = await ask(quantileQuery(metric, run.runId, window), { start, end: end + step, step }, signal);
  return rows.flatMap((row) => {
    const found = row.values.map(([time, value]) => [time * 1000, Number(value)] as const);
    const finite = found.filter(([, value]) => Number.isFinite(value));
    if (finite.length === 0) return [];
    const x = Float64Array.from(finite, ([time]) => time);
    const name = asked.alone ? row.metric.q : `${run.name} · ${row.metric.q}`;
    const column = columnOf(
      run.runId,
      { [GROUP]: name, q: row.metric.q },
      Float64Array.from(finite, ([, v]) => v),
      x,
    );
    const piece = { x, column };
    if (axis === 'step') return run.map ? [toSteps(piece, keptSteps(run.map))] : [];
    if (axis === 'time') return [piece];
    const since = x.map((time) => (time - run.origin) / 1000);
    return [{ x: since, column: { ...column, interval: column.interval / 1000 } }];
  });
}

function columnOf(
  runId: string,
  labels: Record<string, string>,
  values: Float64Array,
  x: Float64Array,
): Columns {
  return {
    query: 0,
    runId,
    metric: '',
    display: '',
    labels,
    scale: '',
    attempt: 1,
    unit: 's',
    last: values,
    min: values,
    max: values,
    count: values.map(() => 1),
    smooth: null,
    nonFinite: [],
    total: 1,
    interval: medianStep(x),
  };
}

/** Quantiles as a chart. */
export function quantileShape(pieces: Piece[]): Shape {
  const { x, columns } = together(pieces);
  return shapeOf(x, columns, [GROUP]);
}
