/** Keeps the plot of a lane mounted while it is on the screen, and drawn when what it shows changes. */
import { effect, type ReadonlySignal, type Signal, useComputed, useSignal } from '@preact/signals';
import type { RefObject } from 'preact';
import { useEffect } from 'preact/hooks';
import type uPlot from 'uplot';
import { valueRange, zeroBelongs } from '../charts/extent';
import { plotEvents } from '../charts/gestures';
import { factorOf, ink, type PlotModel } from '../charts/model';
import { Plot } from '../charts/plot';
import { divided } from '../charts/shape';
import * as view from '../charts/view';
import type { MetricRow } from '../lib/answers';
import { now, zone } from '../lib/clock';
import { formatSpan } from '../lib/time';
import type { SystemBoard } from './board';
import { type Drawn, lookOf } from './drawn';
import * as look from './look';
import { paintCeiling, paintMap, paintParts } from './paint';
import type { LaneSpec } from './specs';

/** Width of the value axis of all lanes. */
export const Y_WIDTH = 52;
const SMALLEST = 20;
/** A line that ended longer ago says so: this long, and this many intervals. */
const OLD_MS = 60_000;
const STALE_INTERVALS = 10;

/** Mounts it in `body`, and tells whether it is `seen`. */
export function useLanePlot(
  system: SystemBoard,
  lane: LaneSpec,
  drawn: ReadonlySignal<Drawn | null>,
  seen: Signal<boolean>,
  root: RefObject<HTMLElement | null>,
  body: RefObject<HTMLDivElement | null>,
): void {
  const size = useSignal<[number, number]>([0, 0]);
  const stale = useComputed(() => staleness(system, lane));
  useEffect(() => {
    const { board } = system;
    const box = body.current!;
    let plot: Plot | null = null;
    const events = plotEvents(board, () => look.laneAxis.peek(), root);
    const unmount = () => {
      plot?.destroy();
      plot = null;
    };
    const watch = new IntersectionObserver(
      (changes) => {
        seen.value = changes[changes.length - 1].isIntersecting;
      },
      { rootMargin: '160px' },
    );
    const resize = new ResizeObserver(() => {
      size.value = [box.clientWidth, box.clientHeight];
      if (box.clientWidth > Y_WIDTH) system.width.value = box.clientWidth - Y_WIDTH;
    });
    watch.observe(root.current!);
    resize.observe(box);
    const stopDrawing = effect(() => {
      const picture = drawn.value;
      if (!seen.value) return unmount();
      if (!picture || Math.min(...size.value) < SMALLEST) return;
      plot ??= new Plot(box, events);
      plot.render({
        ...modelOf(system, lane, picture, size.value),
        stale: lane.demoted ? null : stale.value,
      });
      plot.follow(board.cursor[look.laneAxis.peek()].peek());
    });
    const stopMarking = effect(() => {
      const at = board.mark.value?.[look.laneAxis.value] ?? null;
      plot?.mark(at);
    });
    const stopFollowing = effect(() => {
      const at = board.cursor[look.laneAxis.value].value;
      plot?.follow(at);
    });
    return () => {
      for (const stop of [stopDrawing, stopMarking, stopFollowing]) stop();
      watch.disconnect();
      resize.disconnect();
      unmount();
    };
  }, [system, lane.id, lane.metrics[0]]);
}

/** `4 min old` when the run lives but the lane's series have stopped coming. */
function staleness(system: SystemBoard, lane: LaneSpec): string | null {
  const state = system.board.detail.value?.state;
  if (state !== 'running' && state !== 'stale') return null;
  const rows = (system.board.metrics.value ?? []).filter((m) => lane.metrics.includes(m.display));
  const newest = rows.reduce<MetricRow | null>(
    (best, row) => ((row.last_time_ms ?? 0) > (best?.last_time_ms ?? 0) ? row : best),
    null,
  );
  if (newest?.last_time_ms == null) return null;
  const span = newest.last_time_ms - (newest.first_time_ms ?? newest.last_time_ms);
  const age = now.value - newest.last_time_ms;
  const every = newest.points > 1 ? span / (newest.points - 1) : 0;
  if (age <= Math.max(OLD_MS, STALE_INTERVALS * every)) return null;
  return `${formatSpan(Math.floor(age / 60_000) * 60)} old`;
}

function modelOf(system: SystemBoard, lane: LaneSpec, drawn: Drawn, size: [number, number]): PlotModel {
  const axis = look.laneAxis.value;
  const range = system.range();
  const chart = system.chart(lane);
  const log = drawn.show !== 'map' && view.isLog(chart?.name ?? '');
  const factor = factorOf(drawn.shape.lines);
  const shape = factor > 1 ? divided(drawn.shape, factor) : drawn.shape;
  const extents = shape.lines.map((l) => ({ y: l.raw, min: l.min, max: l.max }));
  const ceiling = drawn.show === 'map' || shape.x.length === 0 ? null : system.ceiling(lane);
  if (ceiling !== null) {
    const most = shape.x.map(() => ceiling);
    extents.push({ y: most, min: most, max: most });
  }
  const unit = lane.rate ? '' : (chart?.unit ?? '');
  const zero =
    lane.rate || (lane.subject !== 'run' && zeroBelongs(chart?.name ?? '', unit, chart?.kind ?? ''));
  const how = { envelope: true, clip: view.clip.value, log, zero };
  const spacing = drawn.named[0]?.member.spacing ?? 0;
  const colours = ink.value;
  // Nothing but zeros lies on the lower edge: there is nothing below it.
  const y = valueRange(shape.x, extents, range.from, range.to, how) ?? (log ? [1, 10] : [0, 1]);
  const { compared } = lane;
  const paint =
    drawn.show === 'map' && compared
      ? (u: uPlot) => paintMap(u, drawn, compared, colours)
      : drawn.parts.length > 0
        ? (u: uPlot) => paintParts(u, drawn.x, drawn.parts, colours, spacing)
        : ceiling !== null
          ? (u: uPlot) => paintCeiling(u, ceiling, colours)
          : null;
  return {
    shape,
    looks: drawn.looks.map((one) => lookOf(one, colours)),
    range,
    y: zero && y[0] < 0 && !extents.some((e) => e.min.some((v) => v < 0)) ? [0, y[1]] : y,
    log,
    envelope: true,
    axis,
    zone: zone.value,
    unit,
    ink: colours,
    width: size[0],
    height: size[1],
    stale: null,
    factor,
    named: false,
    lane: { yWidth: Y_WIDTH, bare: drawn.show === 'map' || lane.demoted, paint },
  };
}
