/** What a plot shows, put together from a chart's data and the page's choices. */
import { computed } from '@preact/signals';
import type uPlot from 'uplot';
import { type Onset, onsetsOn } from '../health/words';
import { zone } from '../lib/clock';
import { slotDash } from '../lib/colour';
import type { Axis } from '../lib/points';
import { themePainted } from '../lib/theme';
import type { Zone } from '../lib/time';
import type { Board, Loaded } from './board';
import { valueRange, zeroBelongs } from './extent';
import { type Ink, readInk } from './ink';
import type { Range } from './range';
import type { ChartInfo } from './sections';
import { divided, type Line, type Shape } from './shape';
import * as view from './view';

/** How a line looks. */
export interface Look {
  stroke: string;
  dash: number[];
  /** 1, or less for what steps back. */
  alpha: number;
}

/** What is else about plots that stand below each other and share an x axis that none of them draws. */
export interface LaneFrame {
  /** Width of the value axis, the same in all of them. */
  yWidth: number;
  /** Whether the value axis has no ticks. */
  bare: boolean;
  /** Draws behind the lines. */
  paint: ((u: uPlot) => void) | null;
}

/** Everything a plot shows. */
export interface PlotModel {
  shape: Shape;
  looks: Look[];
  range: Range;
  y: [low: number, high: number];
  log: boolean;
  envelope: boolean;
  axis: Axis;
  zone: Zone;
  unit: string;
  ink: Ink;
  width: number;
  height: number;
  /** How old the end of the line is, in words, when it should have gone on; else `null`. */
  stale: string | null;
  /** What the values were divided by, so that their distance is a number. */
  factor: number;
  /** Whether what a restart threw away is named. */
  named: boolean;
  /** Since when something was wrong. */
  onsets?: Onset[];
  lane?: LaneFrame;
  /** Draws behind the lines, and above them. */
  behind?: (u: uPlot) => void;
  above?: (u: uPlot) => void;
}

/** Larger values are divided before they are drawn. */
const LARGEST = 1e20;

/** Choices of one card. */
export interface CardChoice {
  /** Series that are switched off. */
  hidden: ReadonlySet<string>;
  /** The series that stands out. */
  hover: string | null;
  named: boolean;
  stale: string | null;
  size: [width: number, height: number];
}

/** Colours of the theme, read once. */
export const ink = computed(() => {
  void themePainted.value;
  return readInk();
});

/** What tells a series from the others in lists of hidden ones. */
export const seriesId = (labels: Record<string, string>) => JSON.stringify(labels);

/** Puts a model together; reads signals, so that an effect around it runs again. */
export function modelOf(board: Board, chart: ChartInfo, loaded: Loaded, card: CardChoice): PlotModel {
  const log = view.isLog(chart.name);
  const range = board.rangeOf(loaded.axis);
  const envelope = view.envelope.value && !view.smooth.value;
  const lines = loaded.shape.lines.filter((l) => !card.hidden.has(seriesId(l.labels)));
  const factor = factorOf(lines);
  const shape = factor > 1 ? divided({ ...loaded.shape, lines }, factor) : { ...loaded.shape, lines };
  const extents = shape.lines.map((l) => ({ y: l.raw, min: l.min, max: l.max }));
  const zero = zeroBelongs(chart.name, chart.unit, chart.kind);
  const choice = { envelope, clip: view.clip.value, log, zero };
  return {
    shape,
    looks: lines.map((line) => lookOf(board, line, card.hover)),
    range,
    y: valueRange(shape.x, extents, range.from, range.to, choice) ?? (log ? [1, 10] : [0, 1]),
    log,
    envelope,
    axis: loaded.axis,
    zone: zone.value,
    unit: chart.unit,
    ink: ink.value,
    width: card.size[0],
    height: card.size[1],
    stale: card.stale,
    factor,
    named: card.named,
    onsets: onsetsOn(board, loaded.axis),
  };
}

/** A power of ten for values whose distances or ticks would be no numbers any more; else 1. */
export function factorOf(lines: Line[]): number {
  let largest = 0;
  for (const line of lines)
    for (const v of line.raw) if (Number.isFinite(v)) largest = Math.max(largest, Math.abs(v));
  return largest > LARGEST ? 10 ** Math.floor(Math.log10(largest)) : 1;
}

function lookOf(board: Board, line: Line, hover: string | null): Look {
  const slot = board.slot(line.labels);
  const back = hover !== null && hover !== seriesId(line.labels);
  return {
    stroke: ink.value.series(slot),
    dash: line.ghost ? [2, 2] : slotDash(slot),
    alpha: (line.ghost ? 0.6 : 1) * (back ? 0.3 : 1),
  };
}
