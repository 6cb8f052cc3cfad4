/** Keeps the plot of a panel drawn while it is on the screen. */
import { effect, type ReadonlySignal, type Signal, useSignal } from '@preact/signals';
import type { RefObject } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import type uPlot from 'uplot';
import { valueRange } from '../charts/extent';
import { plotEvents } from '../charts/gestures';
import { factorOf, ink, type Look, type PlotModel, seriesId } from '../charts/model';
import { Plot } from '../charts/plot';
import { divided, type Line, type Shape } from '../charts/shape';
import * as view from '../charts/view';
import { zone } from '../lib/clock';
import { slotDash } from '../lib/colour';
import type { Axis } from '../lib/points';
import type { TrainingBoard } from './board';

const SMALLEST = 40;

/** What is drawn. */
export interface Picture {
  axis: Axis;
  shape: Shape;
  unit: string;
  /** Whether zero belongs on the value axis. */
  zero: boolean;
  log: boolean;
  /** Ends of the value axis, where they are fixed. */
  y?: [low: number, high: number];
  behind?: (u: uPlot) => void;
  above?: (u: uPlot) => void;
  stale: string | null;
}

/** What of a panel the plot follows. */
export interface Choice {
  hidden: Signal<ReadonlySet<string>>;
  hover: Signal<string | null>;
  /** Tells how wide the plot is. */
  wide: (width: number) => void;
}

/** Mounts the plot in `body`; gives its canvas. */
export function usePanelPlot(
  page: TrainingBoard,
  picture: ReadonlySignal<Picture | null>,
  root: RefObject<HTMLElement | null>,
  body: RefObject<HTMLDivElement | null>,
  choice: Choice,
): () => HTMLCanvasElement | null {
  const mounted = useRef<Plot | null>(null);
  const seen = useSignal(false);
  const size = useSignal<[number, number]>([0, 0]);
  useEffect(() => {
    const box = body.current!;
    const axis = () => picture.peek()?.axis ?? page.axis.peek();
    const events = plotEvents(page, axis, root);
    let plot: Plot | null = null;
    const unmount = () => {
      plot?.destroy();
      plot = null;
      mounted.current = null;
    };
    const watch = new IntersectionObserver(
      (changes) => {
        seen.value = changes[changes.length - 1].isIntersecting;
      },
      { rootMargin: '160px' },
    );
    const resize = new ResizeObserver(() => {
      size.value = [box.clientWidth, box.clientHeight];
      choice.wide(box.clientWidth);
    });
    watch.observe(root.current!);
    resize.observe(box);
    const stopDrawing = effect(() => {
      const drawn = picture.value;
      if (!seen.value || !drawn || drawn.shape.x.length === 0) return unmount();
      if (Math.min(...size.value) < SMALLEST) return;
      plot ??= new Plot(box, events);
      mounted.current = plot;
      plot.render(modelOf(page, drawn, choice, size.value));
      plot.follow(page.cursor[drawn.axis].peek());
      plot.mark(page.mark.peek()?.[drawn.axis] ?? null);
    });
    const stopMarking = effect(() => {
      const at = page.mark.value?.[axis()] ?? null;
      plot?.mark(at);
    });
    const stopFollowing = effect(() => {
      const at = page.cursor[axis()].value;
      plot?.follow(at);
    });
    return () => {
      for (const stop of [stopDrawing, stopMarking, stopFollowing]) stop();
      watch.disconnect();
      resize.disconnect();
      unmount();
    };
  }, [page, picture]);
  return () => mounted.current?.canvas ?? null;
}

function modelOf(page: TrainingBoard, drawn: Picture, choice: Choice, size: [number, number]): PlotModel {
  const { axis, log, unit, zero } = drawn;
  const hidden = choice.hidden.value;
  const lines = drawn.shape.lines.filter((l) => !hidden.has(seriesId(l.labels)));
  const factor = factorOf(lines);
  const shape = factor > 1 ? divided({ ...drawn.shape, lines }, factor) : { ...drawn.shape, lines };
  const range = page.rangeOf(axis);
  const extents = shape.lines.map((l) => ({ y: l.raw, min: l.min, max: l.max }));
  const how = { envelope: true, clip: view.clip.value, log, zero };
  const whole = valueRange(shape.x, extents, range.from, range.to, how) ?? (log ? [1, 10] : [0, 1]);
  return {
    shape,
    looks: shape.lines.map((line) => lookOf(page, line, choice.hover.value)),
    range,
    y: drawn.y ?? whole,
    log,
    envelope: true,
    axis,
    zone: zone.value,
    unit,
    ink: ink.value,
    width: size[0],
    height: size[1],
    stale: drawn.stale,
    factor,
    named: false,
    ...(drawn.behind ? { behind: drawn.behind } : {}),
    ...(drawn.above ? { above: drawn.above } : {}),
  };
}

function lookOf(page: TrainingBoard, line: Line, hover: string | null): Look {
  const slot = page.slot(line.labels);
  const back = hover !== null && hover !== seriesId(line.labels);
  return {
    stroke: ink.value.series(slot),
    dash: line.ghost ? [2, 2] : (page.dash(line.labels) ?? slotDash(slot)),
    alpha: (line.ghost ? 0.6 : 1) * (back ? 0.3 : 1),
  };
}
