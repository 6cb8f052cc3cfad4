/** Entries of a chart's legend and what they read at the cursor. */
import { formatValue } from '../lib/number';
import { shown } from '../lib/text';
import { type Line, type Shape, sampleAt } from './shape';

/** One series: all its attempts. */
export interface Entry {
  id: string;
  /** What tells it apart; empty for the only one. */
  text: string;
  labels: Record<string, string>;
  /** Oldest attempt first. */
  lines: Line[];
}

/** A value that is read off. */
export interface Reading {
  text: string;
  /** Min and max of the bucket when they differ. */
  spread: string;
  attempt: number;
  value: number;
}

/** Groups the lines of a shape by series. */
export function entriesOf(shape: Shape): Entry[] {
  const entries = new Map<string, Entry>();
  for (const line of shape.lines) {
    const id = JSON.stringify(line.labels);
    const entry = entries.get(id) ?? { id, text: line.key, labels: line.labels, lines: [] };
    entry.lines.push(line);
    entries.set(id, entry);
  }
  return [...entries.values()];
}

/** What a legend writes for an entry. */
export function entryText(entry: Entry): string {
  return entry.text === '' ? '' : shown(entry.text, 28);
}

/** Reads a series at `x`, or its last value: never between two samples. */
export function readAt(shape: Shape, entry: Entry, x: number | null, unit: string): Reading | null {
  for (const line of entry.lines.toReversed()) {
    if (x === null && line.ghost) continue;
    const at = x === null ? line.count.findLastIndex((c) => c > 0) : sampleAt(shape.x, line, x);
    if (at < 0) continue;
    const value = line.raw[at];
    const smooth = line.y !== line.raw && Number.isFinite(line.y[at]) ? line.y[at] : null;
    const spread =
      line.max[at] > line.min[at]
        ? `${formatValue(line.min[at], unit)} – ${formatValue(line.max[at], unit)}`
        : '';
    const mark = Number.isFinite(value) ? undefined : shape.marks.find((m) => m.x === shape.x[at]);
    return {
      text: mark ? mark.kind : formatValue(smooth ?? value, unit),
      spread,
      attempt: line.attempt,
      value: smooth ?? value,
    };
  }
  return null;
}

/** How much more a series reads at the cursor than where it was pinned first, in words. */
export function differenceOf(before: Reading | null, now: Reading | null, unit: string): string {
  const difference = (now?.value ?? Number.NaN) - (before?.value ?? Number.NaN);
  if (!Number.isFinite(difference)) return 'absent';
  return `${difference > 0 ? '+' : ''}${formatValue(difference, unit)}`;
}
