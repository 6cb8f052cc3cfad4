/** Where rows lie below each other. */
import type { Lane, Row } from './rows';

/** Height of a row and of what is filled of it, CSS pixels. */
export const PITCH = 14;
export const FILLED = 12;
/** Between lanes of several rows. */
const GAP = 6;
/** Above the first lane: room for its outline. */
export const ABOVE = 3;

/** A lane on the page. */
export interface Placed {
  /** Its place among all lanes. */
  lane: number;
  top: number;
  height: number;
  /** Whether each of its rows has a line of its own. */
  open: boolean;
}

/** What is painted into one line. */
export interface Strip {
  lane: number;
  rows: Row[];
  top: number;
}

/** Puts lanes below each other in this order. */
export function place(lanes: Lane[], order: number[], isOpen: (lane: number) => boolean): Placed[] {
  let top = ABOVE;
  return order.map((lane) => {
    const open = lanes[lane].rows.length > 1 && isOpen(lane);
    const height = open ? lanes[lane].rows.length * PITCH + GAP : PITCH;
    const placed = { lane, top, height, open };
    top += height;
    return placed;
  });
}

/** Height of all of them. */
export function heightOf(placed: Placed[]): number {
  const last = placed[placed.length - 1];
  return last ? last.top + last.height : ABOVE;
}

/** The first lane that reaches below `y`; their number where none does. */
export function laneAt(placed: Placed[], y: number): number {
  let [low, high] = [0, placed.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (placed[middle].top + placed[middle].height > y) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Strips that are seen between two heights; tops count from the first of them. */
export function stripsOf(lanes: Lane[], placed: Placed[], from: number, to: number): Strip[] {
  const strips: Strip[] = [];
  for (let at = laneAt(placed, from); at < placed.length && placed[at].top < to; at++) {
    const { lane, top, open } = placed[at];
    const { rows } = lanes[lane];
    if (!open) strips.push({ lane, rows, top: top - from });
    else
      for (const [depth, row] of rows.entries())
        strips.push({ lane, rows: [row], top: top + depth * PITCH - from });
  }
  return strips.filter((s) => s.top + PITCH > 0 && s.top < to - from);
}
