/** Keys of the charts, and what has them asked for again. */
import { effect, type Signal } from '@preact/signals';
import type { RefObject } from 'preact';
import { useEffect, useLayoutEffect } from 'preact/hooks';
import type { Board } from '../charts/board';
import * as view from '../charts/view';
import type { CardActions } from '../components/chart_card';
import { zoomDepth } from '../lib/address';
import { bind } from '../lib/keys';

/** Binds them; `pointed` is the chart under the pointer or the focus. */
export function useChartKeys(
  board: Board,
  pointed: RefObject<CardActions | null>,
  full: Signal<string | null>,
): void {
  useLayoutEffect(() => {
    // Without a chart to act on, the key goes on to the browser.
    const act = (what: (actions: CardActions) => void) => () => {
      if (!pointed.current) return false;
      what(pointed.current);
      return true;
    };
    const leave = () => {
      full.value = null;
      board.unpin();
    };
    const back = () => (zoomDepth() > 0 ? window.history.back() : view.resetZoom());
    const one = 'Chart under the pointer or focus';
    const group = 'Charts';
    return bind(
      { keys: 'f', does: 'Full screen', group: one, run: act((a) => a.full()) },
      { keys: 'l', does: 'Log scale', group: one, run: act((a) => a.log()) },
      { keys: 'e', does: 'Export every point as CSV', group: one, run: act((a) => a.save()) },
      { keys: 'v', does: 'View as table', group: one, run: act((a) => a.table()) },
      { keys: 'i', does: 'What it measures', group: one, run: act((a) => a.explain()) },
      { keys: 'ArrowLeft', does: 'Cursor back by one bucket', group: one, run: act((a) => a.step(-1)) },
      { keys: 'ArrowRight', does: 'Cursor on by one bucket', group: one, run: act((a) => a.step(1)) },
      { keys: 'Shift+ArrowLeft', does: 'Cursor back by ten', group: one, run: act((a) => a.step(-10)) },
      { keys: 'Shift+ArrowRight', does: 'Cursor on by ten', group: one, run: act((a) => a.step(10)) },
      { keys: '+', does: 'Zoom in', group: one, run: act((a) => a.zoom(0.5)) },
      { keys: '-', does: 'Zoom out', group: one, run: act((a) => a.zoom(2)) },
      {
        keys: 'c',
        does: 'Pin the cursor; again elsewhere for the difference',
        group,
        run: () => board.pin(),
      },
      { keys: 'Backspace', does: 'Previous zoom', group, run: back },
      { keys: 'Escape', does: 'Leave full screen, free the cursor', group, run: leave },
    );
  }, [board]);
}

/** Asks again for what is seen when what is asked for changes. */
export function useAsking(board: Board): void {
  useEffect(
    () =>
      effect(() => {
        void [
          view.pageAxis.value,
          view.smooth.value,
          view.zoomOf('step'),
          view.zoomOf('time'),
          view.zoomOf('relative'),
          board.charts.value,
        ];
        board.want();
      }),
    [board],
  );
}

/** The pointer left the charts: a cursor that is not pinned goes with it. */
export function leave(board: Board): void {
  if (!board.pinned.peek()) for (const axis of ['step', 'time', 'relative'] as const) board.point(axis, null);
}
