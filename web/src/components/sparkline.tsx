/** A small line over all steps: gaps stay gaps, NaN is a tick, one point is a dot. */

import { breaksOf } from '../charts/shape';
import type { Columns } from '../lib/points';

const WIDTH = 120;
const HEIGHT = 22;
const PAD = 3;

/** A sparkline's data. */
export interface Spark {
  x: Float64Array;
  column: Columns;
  /** End of the x axis, so that rows can be compared. */
  to: number;
}

/** Draws it; nothing when there is nothing. */
export function Sparkline({ spark }: { spark: Spark | undefined }) {
  if (!spark) return <svg class="spark" width={WIDTH} height={HEIGHT} aria-hidden="true" />;
  const { x, column, to } = spark;
  const kept = [...x.keys()].filter((at) => column.count[at] > 0);
  const finite = kept.filter((at) => Number.isFinite(column.last[at]));
  const values = finite.map((at) => column.last[at]);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const from = x[kept[0]] ?? 0;
  const across = (value: number) => PAD + ((value - from) / Math.max(to - from, 1e-9)) * (WIDTH - 2 * PAD);
  const down = (value: number) =>
    high === low ? HEIGHT / 2 : HEIGHT - PAD - ((value - low) / (high - low)) * (HEIGHT - 2 * PAD);
  const dense = Float64Array.from(kept, (at) => x[at]);
  const spacing = Math.max(
    column.interval,
    dense.length > 1 ? (dense[dense.length - 1] - dense[0]) / (dense.length - 1) : 0,
  );
  const ends = new Set(
    breaksOf(
      dense,
      Float64Array.from(kept, (at) => column.last[at]),
      Float64Array.from(kept, (at) => column.count[at]),
      spacing,
    ).map((b) => b.to),
  );
  let line = '';
  for (const at of finite)
    line += `${line && !ends.has(x[at]) ? 'L' : 'M'}${across(x[at]).toFixed(1)} ${down(column.last[at]).toFixed(1)}`;
  const last = finite[finite.length - 1];
  return (
    <svg class="spark" width={WIDTH} height={HEIGHT} aria-hidden="true">
      <path d={line} />
      {last !== undefined && <circle cx={across(x[last])} cy={down(column.last[last])} r="1.7" />}
      {column.nonFinite.slice(0, 20).map((mark) => {
        const at = across(mark.x).toFixed(1);
        return (
          <path
            key={`${mark.x}${mark.kind}`}
            class="tick"
            d={mark.kind === '-Inf' ? `M${at} ${HEIGHT - 5}l3 5h-6z` : `M${at} 5l-3-5h6z`}
          />
        );
      })}
    </svg>
  );
}

/** One request for sparklines. */
export interface SparkGroup<T> {
  rows: T[];
  to: number;
  buckets: number;
}

const BUCKETS = 44;

/** Puts runs of a like length together, so that one grid gives each enough points. */
export function sparkGroups<T extends { last_step: number | null }>(rows: T[]): SparkGroup<T>[] {
  const groups: SparkGroup<T>[] = [];
  const length = (row: T) => Math.max(1, row.last_step ?? 1);
  for (const row of [...rows].sort((a, b) => length(b) - length(a))) {
    const group = groups[groups.length - 1];
    if (group && length(row) * 16 >= group.to) group.rows.push(row);
    else groups.push({ rows: [row], to: length(row), buckets: BUCKETS });
  }
  for (const group of groups)
    group.buckets = BUCKETS * Math.ceil(group.to / length(group.rows[group.rows.length - 1]));
  return groups;
}
