/** Keeps a plot in a card: mounted while it is on the screen, drawn again when anything it shows changes. */
import { effect, type ReadonlySignal, type Signal, useComputed, useSignal } from '@preact/signals';
import type { RefObject } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import type { Board } from '../charts/board';
import { plotEvents } from '../charts/gestures';
import { modelOf } from '../charts/model';
import { Plot } from '../charts/plot';
import type { ChartInfo } from '../charts/sections';
import { now } from '../lib/clock';
import { formatSpan } from '../lib/time';

const STALE_INTERVALS = 10;
const SMALLEST = 40;

/** What of a card the plot follows. */
export interface PlotChoice {
  hidden: Signal<ReadonlySet<string>>;
  hover: Signal<string | null>;
  /** Whether what a restart threw away is named. */
  named: boolean;
}

/** Mounts a chart's plot in `body`, while `root` is on the screen; gives its canvas. */
export function usePlot(
  board: Board,
  chart: ChartInfo,
  root: RefObject<HTMLElement | null>,
  body: RefObject<HTMLDivElement | null>,
  choice: PlotChoice,
): () => HTMLCanvasElement | null {
  const plot = useRef<Plot | null>(null);
  const seen = useSignal(false);
  const size = useSignal<[number, number]>([0, 0]);
  const stale = useStale(board, chart);
  const unmount = () => {
    plot.current?.destroy();
    plot.current = null;
  };

  useEffect(() => {
    const box = body.current!;
    const watch = new IntersectionObserver(
      (changes) => {
        seen.value = changes[changes.length - 1].isIntersecting;
        board.see(chart.name, seen.value, box.clientWidth);
      },
      { rootMargin: '160px' },
    );
    const resize = new ResizeObserver(() => {
      size.value = [box.clientWidth, box.clientHeight];
      board.state(chart.name).width = box.clientWidth;
    });
    watch.observe(root.current!);
    resize.observe(box);
    return () => {
      watch.disconnect();
      resize.disconnect();
      board.see(chart.name, false, box.clientWidth);
      unmount();
    };
  }, [board, chart.name]);

  useEffect(() => {
    const state = board.state(chart.name);
    const axis = () => board.axisOf(chart);
    const events = plotEvents(board, axis, root);
    const stopDrawing = effect(() => {
      const loaded = state.loaded.value;
      if (!seen.value) return unmount();
      if (!loaded || loaded.axis !== axis() || Math.min(...size.value) < SMALLEST) return;
      const model = modelOf(board, chart, loaded, {
        hidden: choice.hidden.value,
        hover: choice.hover.value,
        named: choice.named,
        stale: stale.value,
        size: size.value,
      });
      plot.current ??= new Plot(body.current!, events);
      plot.current.render(model);
      plot.current.follow(board.cursor[loaded.axis].peek());
      plot.current.mark(board.mark.peek()?.[loaded.axis] ?? null);
    });
    const stopMarking = effect(() => {
      const at = board.mark.value?.[axis()] ?? null;
      plot.current?.mark(at);
    });
    const stopFollowing = effect(() => plot.current?.follow(board.cursor[axis()].value));
    return () => {
      stopDrawing();
      stopFollowing();
      stopMarking();
    };
  }, [board, chart, choice.named]);
  return () => plot.current?.canvas ?? null;
}

/** `4 min old` when the run lives but this series has stopped coming. */
function useStale(board: Board, chart: ChartInfo): ReadonlySignal<string | null> {
  return useComputed(() => {
    const state = board.detail.value?.state;
    if (state !== 'running' && state !== 'stale') return null;
    const row = chart.series[0];
    const last = Math.max(...chart.series.map((s) => s.last_time_ms ?? 0));
    const every = row.points > 1 ? (last - (row.first_time_ms ?? last)) / (row.points - 1) : 0;
    const age = now.value - last;
    return age > Math.max(60_000, STALE_INTERVALS * every)
      ? `${formatSpan(Math.floor(age / 60_000) * 60)} old`
      : null;
  });
}
