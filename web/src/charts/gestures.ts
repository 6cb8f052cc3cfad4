/** Zooming, panning and moving the cursor of all charts on an axis. */
import type { Axis } from '../lib/points';
import type { Board } from './board';
import type { PlotEvents } from './plot';
import { shift, zoomAround } from './range';
import type { Shape } from './shape';
import * as view from './view';

/** What is zoomed, and where its cursor is. */
export type Moved = Pick<Board, 'zoom' | 'pinned' | 'point' | 'rangeOf' | 'cursor'> &
  Partial<Pick<Board, 'hovered'>>;

/** What brush, wheel and drag do; a bare wheel zooms only when the card has the focus. */
export function plotEvents(
  board: Moved,
  axis: () => Axis,
  root: { current: HTMLElement | null },
): PlotEvents {
  let wheeling: ReturnType<typeof setTimeout> | undefined;
  let panning = false;
  let next: number | null | undefined;
  return {
    zoom: (range) => board.zoom(axis(), range),
    reset: () => view.resetZoom(),
    cursor: (x: number | null) => {
      // Once a frame: a fast mouse sends more.
      if (next === undefined) {
        requestAnimationFrame(() => {
          if (!board.pinned.peek()) board.point(axis(), next ?? null);
          else if (next !== undefined && next !== null) board.hovered = { axis: axis(), x: next };
          next = undefined;
        });
      }
      next = x;
    },
    wheel: (event: WheelEvent, at: number) => {
      // A bare wheel scrolls the page unless the card has the focus.
      const focused = root.current?.contains(document.activeElement);
      if (!event.ctrlKey && !event.metaKey && !focused) return;
      event.preventDefault();
      const factor = Math.exp(Math.sign(event.deltaY) * Math.min(0.5, Math.abs(event.deltaY) / 300));
      board.zoom(axis(), zoomAround(board.rangeOf(axis()), at, factor), wheeling !== undefined);
      clearTimeout(wheeling);
      wheeling = setTimeout(() => {
        wheeling = undefined;
      }, 500);
    },
    pan: (share: number, ended: boolean) => {
      if (!ended && share !== 0) {
        board.zoom(axis(), shift(board.rangeOf(axis()), share), panning);
        panning = true;
      }
      if (ended) panning = false;
    },
  };
}

/** Zooms around the cursor, or around the middle. */
export function zoomAt(board: Moved, axis: Axis, factor: number): void {
  const range = board.rangeOf(axis);
  board.zoom(axis, zoomAround(range, board.cursor[axis].peek() ?? (range.from + range.to) / 2, factor));
}

/** Moves the cursor by buckets of this chart. */
export function stepCursor(board: Moved, axis: Axis, shape: Shape | null, by: number): void {
  if (!shape || shape.x.length === 0) return;
  const { from, to } = board.rangeOf(axis);
  const inside = Array.from(shape.x).filter((x) => x >= from && x <= to);
  const now = board.cursor[axis].peek();
  const at = now === null ? (by > 0 ? -1 : inside.length) : inside.findLastIndex((x) => x <= now + 1e-9);
  board.point(axis, inside[Math.min(inside.length - 1, Math.max(0, at + by))] ?? null);
}
