/** What lies under a place of the picture. */
import { laneAt, PITCH, type Placed } from './layout';
import type { Row, Spans } from './rows';
import { sweep, type Traits, type Window } from './sweep';

/** What was hit. */
export interface Hit {
  lane: number;
  /** Place of the span, or of the first of several. */
  span: number;
  count: number;
  /** How many of several are errors. */
  errors: number;
  /** First start and last end, microseconds. */
  from: number;
  to: number;
  /** Time of each span's length by name, the longest first, where there are several. */
  names: [name: number, count: number][];
}

/** Finds it; `x` and `y` count CSS pixels from the top of the first lane, `width` is the picture's. */
export function hitAt(
  spans: Spans,
  placed: Placed[],
  window: Window,
  [x, y]: [number, number],
  width: number,
): Hit | null {
  const found = placed[laneAt(placed, y)];
  if (!found || y < found.top) return null;
  const { rows } = spans.lanes[found.lane];
  const depth = Math.floor((y - found.top) / PITCH);
  const seen = found.open ? rows.slice(depth, depth + 1) : rows;
  for (let at = seen.length - 1; at >= 0; at--) {
    const hit = inRow(spans, seen[at], window, x, width);
    if (hit) return { lane: found.lane, ...hit };
  }
  return null;
}

function inRow(spans: Spans, row: Row, window: Window, x: number, width: number): Omit<Hit, 'lane'> | null {
  const { status, name } = spans.answer.spans;
  const traits: Traits = { phase: spans.phase, status, lit: null };
  let range: [number, number] | null = null;
  sweep(row, window, Math.round(width), traits, ({ left, right, first, end }) => {
    if (x >= left && x < right) range = [first, end];
  });
  if (!range) return null;
  const [first, end] = range as [number, number];
  const names = new Map<number, number>();
  let errors = 0;
  for (let at = first; at < end; at++) {
    const one = row.span[at];
    names.set(name[one], (names.get(name[one]) ?? 0) + 1);
    if (status[one] === 2) errors++;
  }
  return {
    span: row.span[first],
    count: end - first,
    errors,
    from: row.start[first],
    to: Math.max(...row.end.subarray(first, Math.min(end, first + 1000)), row.end[end - 1]),
    names: [...names].sort((a, b) => b[1] - a[1]),
  };
}
