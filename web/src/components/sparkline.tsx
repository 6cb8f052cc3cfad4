/** A small line over all steps: gaps stay gaps, NaN is a tick, one point is a dot. */

import type { Line, Shape } from '../charts/shape';

const WIDTH = 120;
const HEIGHT = 22;
const PAD = 3;

/** Draws it over its own steps; nothing when there is nothing. */
export function Sparkline({ shape }: { shape: Shape | undefined }) {
  const lines = shape?.lines.filter((l) => !l.ghost) ?? [];
  if (!shape || lines.length === 0)
    return <svg class="spark" width={WIDTH} height={HEIGHT} aria-hidden="true" />;
  const values = lines.flatMap((l) => [...l.raw.filter(Number.isFinite)]);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const [from, to] = [shape.x[0], shape.x[shape.x.length - 1]];
  const across = (x: number) =>
    to === from ? WIDTH / 2 : PAD + ((x - from) / (to - from)) * (WIDTH - 2 * PAD);
  const down = (y: number) =>
    high === low ? HEIGHT / 2 : HEIGHT - PAD - ((y - low) / (high - low)) * (HEIGHT - 2 * PAD);
  const newest = lines[lines.length - 1];
  const last = newest.raw.findLastIndex(Number.isFinite);
  return (
    <svg class="spark" width={WIDTH} height={HEIGHT} aria-hidden="true">
      {lines.map((line) => (
        <path key={line.attempt} d={trace(shape.x, line, across, down)} />
      ))}
      {last >= 0 && <circle cx={across(shape.x[last])} cy={down(newest.raw[last])} r="1.7" />}
      {shape.marks.slice(0, 20).map((mark) => {
        const at = across(mark.x).toFixed(1);
        const tick = mark.kind === '-Inf' ? `M${at} ${HEIGHT - 5}l3 5h-6z` : `M${at} 5l-3-5h6z`;
        return <path key={`${mark.x}${mark.kind}`} class="tick" d={tick} />;
      })}
    </svg>
  );
}

function trace(
  x: Float64Array,
  line: Line,
  across: (x: number) => number,
  down: (y: number) => number,
): string {
  const starts = new Set(line.breaks.map((b) => b.to));
  let path = '';
  for (let at = 0; at < x.length; at++) {
    if (!Number.isFinite(line.raw[at])) continue;
    path += `${path && !starts.has(x[at]) ? 'L' : 'M'}${across(x[at]).toFixed(1)} ${down(line.raw[at]).toFixed(1)}`;
  }
  return path;
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
