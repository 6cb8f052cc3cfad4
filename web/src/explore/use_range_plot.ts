/** Keeps the plot of one query drawn. */
import { effect, type Signal, useSignal } from '@preact/signals';
import type { RefObject } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { valueRange } from '../charts/extent';
import { plotEvents } from '../charts/gestures';
import { factorOf, ink, type PlotModel, seriesId } from '../charts/model';
import { Plot } from '../charts/plot';
import { divided } from '../charts/shape';
import * as view from '../charts/view';
import { zone } from '../lib/clock';
import { slotDash } from '../lib/colour';
import type { Asked, Drawn, Explore } from './model';

/** What of a card the plot follows. */
export interface Choice {
  hidden: Signal<ReadonlySet<string>>;
  hover: Signal<string | null>;
  unit: string;
  /** Zero belongs on the axis. */
  zero: boolean;
}

const SMALLEST = 40;

/** Mounts the plot in `body`. */
export function useRangePlot(
  explore: Explore,
  asked: Asked,
  root: RefObject<HTMLElement | null>,
  body: RefObject<HTMLDivElement | null>,
  choice: Choice,
): void {
  const size = useSignal<[number, number]>([0, 0]);
  const chosen = useRef(choice);
  chosen.current = choice;
  useEffect(() => {
    const box = body.current!;
    const resize = new ResizeObserver(() => (size.value = [box.clientWidth, box.clientHeight]));
    resize.observe(box);
    const plot = new Plot(box, {
      ...plotEvents(explore, () => 'time', root),
      reset: () => explore.resetZoom(),
    });
    const stopDrawing = effect(() => {
      const drawn = asked.answer.value;
      if (!drawn || Math.min(...size.value) < SMALLEST) return;
      plot.render(modelOf(explore, drawn, chosen.current, size.value));
      plot.follow(explore.cursor.time.peek());
    });
    const stopFollowing = effect(() => plot.follow(explore.cursor.time.value));
    return () => {
      stopDrawing();
      stopFollowing();
      resize.disconnect();
      plot.destroy();
    };
  }, [explore, asked, choice.unit, choice.zero]);
}

function modelOf(explore: Explore, drawn: Drawn, choice: Choice, size: [number, number]): PlotModel {
  const hover = choice.hover.value;
  const lines = drawn.shape.lines.filter((l) => !choice.hidden.value.has(seriesId(l.labels)));
  const factor = factorOf(lines);
  const whole = { ...drawn.shape, lines };
  const shape = factor > 1 ? divided(whole, factor) : whole;
  // Where the address has moved on, what came stays until the next answer is whole.
  const range = explore.range.value;
  const log = view.logAll.value;
  const extents = shape.lines.map((l) => ({ y: l.raw, min: l.min, max: l.max }));
  const how = { envelope: false, clip: false, log, zero: choice.zero };
  return {
    shape,
    looks: shape.lines.map((line) => {
      const slot = explore.slot(line.labels);
      const back = hover !== null && hover !== seriesId(line.labels);
      return { stroke: ink.value.series(slot), dash: slotDash(slot), alpha: back ? 0.3 : 1 };
    }),
    range,
    y: valueRange(shape.x, extents, range.from, range.to, how) ?? (log ? [1, 10] : [0, 1]),
    log,
    envelope: false,
    axis: 'time',
    zone: zone.value,
    unit: choice.unit,
    ink: ink.value,
    width: size[0],
    height: size[1],
    stale: null,
    factor,
    named: false,
  };
}
