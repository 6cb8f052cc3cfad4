/** Keeps the plot of a card drawn that puts many series over each other. */
import { effect, type ReadonlySignal, type Signal, useSignal } from '@preact/signals';
import type { RefObject } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import type uPlot from 'uplot';
import { valueRange } from '../charts/extent';
import { type Moved, plotEvents } from '../charts/gestures';
import { factorOf, ink, type PlotModel, seriesId } from '../charts/model';
import { Plot } from '../charts/plot';
import { divided, type Shape } from '../charts/shape';
import * as view from '../charts/view';
import { zone } from '../lib/clock';
import { slotDash } from '../lib/colour';
import type { Axis } from '../lib/points';
import type { Legends } from './chart_legend';

/** The page that the card is on: its colours, its cursor, its zoom. */
export type OverlayPage = Legends & Moved & { resetZoom: () => void };

/** What of a card the plot follows. */
export interface Choice {
  hidden: Signal<ReadonlySet<string>>;
  hover: Signal<string | null>;
  unit: string;
  /** Zero belongs on the axis. */
  zero: boolean;
  axis: Axis;
  /** Whether the min-max band is drawn. */
  envelope: boolean;
  /** A value that the axis reaches, whatever the lines do. */
  reach?: number | null;
  /** Whether the axis is logarithmic; as the page says where this does not. */
  log?: boolean;
  /** Draws behind the lines, and above them. */
  behind?: (u: uPlot) => void;
  above?: (u: uPlot) => void;
}

const SMALLEST = 40;

/** Mounts the plot in `body`; what it shows stays until the next answer is whole. */
export function useOverlayPlot(
  page: OverlayPage,
  answer: ReadonlySignal<{ shape: Shape } | null>,
  root: RefObject<HTMLElement | null>,
  body: RefObject<HTMLDivElement | null>,
  choice: Choice,
): void {
  const size = useSignal<[number, number]>([0, 0]);
  const chosen = useRef(choice);
  chosen.current = choice;
  const { axis } = choice;
  useEffect(() => {
    const box = body.current!;
    const resize = new ResizeObserver(() => (size.value = [box.clientWidth, box.clientHeight]));
    resize.observe(box);
    const plot = new Plot(box, { ...plotEvents(page, () => axis, root), reset: () => page.resetZoom() });
    const stopDrawing = effect(() => {
      const drawn = answer.value;
      if (!drawn || Math.min(...size.value) < SMALLEST) return;
      plot.render(modelOf(page, drawn.shape, chosen.current, size.value));
      plot.follow(page.cursor[axis].peek());
    });
    const stopFollowing = effect(() => plot.follow(page.cursor[axis].value));
    return () => {
      stopDrawing();
      stopFollowing();
      resize.disconnect();
      plot.destroy();
    };
  }, [page, answer, choice.unit, choice.zero, choice.log, axis]);
}

/** Room above a value that an axis has to reach. */
const ABOVE = 1.08;

/** A range that has a value in it, with a little room above; as it is where there is none. */
function reaching([low, high]: [number, number], value: number, log: boolean): [number, number] {
  if (!Number.isFinite(value) || (log && value <= 0)) return [low, high];
  return [Math.min(low, value), Math.max(high, value * ABOVE)];
}

function modelOf(page: OverlayPage, all: Shape, choice: Choice, size: [number, number]): PlotModel {
  const hover = choice.hover.value;
  const lines = all.lines.filter((l) => !choice.hidden.value.has(seriesId(l.labels)));
  const factor = factorOf(lines);
  const whole = { ...all, lines };
  const shape = factor > 1 ? divided(whole, factor) : whole;
  const range = page.rangeOf(choice.axis);
  const log = choice.log ?? view.logAll.value;
  const extents = shape.lines.map((l) => ({ y: l.raw, min: l.min, max: l.max }));
  const how = { envelope: choice.envelope, clip: false, log, zero: choice.zero };
  return {
    shape,
    looks: shape.lines.map((line) => {
      const slot = page.slot(line.labels);
      const back = hover !== null && hover !== seriesId(line.labels);
      return {
        stroke: ink.value.series(slot),
        dash: page.dash?.(line.labels) ?? slotDash(slot),
        alpha: back ? 0.3 : 1,
      };
    }),
    range,
    y: reaching(
      valueRange(shape.x, extents, range.from, range.to, how) ?? (log ? [1, 10] : [0, 1]),
      (choice.reach ?? Number.NaN) / factor,
      log,
    ),
    log,
    envelope: choice.envelope,
    axis: choice.axis,
    zone: zone.value,
    unit: choice.unit,
    ink: ink.value,
    width: size[0],
    height: size[1],
    stale: null,
    factor,
    named: false,
    behind: choice.behind,
    above: choice.above,
  };
}
