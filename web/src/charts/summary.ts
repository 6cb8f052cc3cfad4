/** A chart in words, for who can't see it. */
import { formatCount, formatValue } from '../lib/number';
import type { Axis } from '../lib/points';
import { formatFull, formatSpan, type Zone } from '../lib/time';
import type { Range } from './range';
import type { Shape } from './shape';

/** A place on an axis in words. */
export function placeText(axis: Axis, x: number, zone: Zone): string {
  if (axis === 'step') return `step ${formatCount(x)}`;
  return axis === 'time' ? formatFull(x, zone) : `${formatSpan(x)} after the start`;
}

/** Title, range, last, min, max, gaps and marks. */
export function summary(
  name: string,
  unit: string,
  shape: Shape | null,
  axis: Axis,
  range: Range,
  zone: Zone,
): string {
  if (!shape) return `${name}: not read yet`;
  if (shape.x.length === 0) return `${name}: no points in this range`;
  let [min, max, last] = [Infinity, -Infinity, Number.NaN];
  for (const line of shape.lines) {
    for (let at = 0; at < line.min.length; at++) {
      if (line.min[at] < min) min = line.min[at];
      if (line.max[at] > max) max = line.max[at];
    }
    if (!line.ghost) last = line.raw.findLast(Number.isFinite) ?? last;
  }
  const pieces = [
    `${name}${unit ? `, ${unit}` : ''}: ${placeText(axis, range.from, zone)} to ${placeText(axis, range.to, zone)}`,
  ];
  if (min <= max)
    pieces.push(
      `last ${formatValue(last, unit)}, lowest ${formatValue(min, unit)}, highest ${formatValue(max, unit)}`,
    );
  else pieces.push('no finite value');
  const series = new Set(shape.lines.map((l) => JSON.stringify(l.labels))).size;
  if (series > 1) pieces.push(`${series} of ${shape.total} series`);
  if (shape.attempts.length > 1) pieces.push(`${shape.attempts.length} attempts`);
  if (shape.holes.length > 0) pieces.push(`${shape.holes.length} gaps`);
  const marks = shape.marks.reduce((sum, m) => sum + m.count, 0);
  if (marks > 0) pieces.push(`${marks} values that are not finite`);
  return pieces.join('; ');
}
