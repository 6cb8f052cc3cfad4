/** Paints spans into pixels. */
import type { Strip } from './layout';
import { ROWS_MAX } from './rows';
import { sweep, type Traits, type Window } from './sweep';

/** Colours as pixels. */
export interface SpanInk {
  /** One for each of `PHASES`. */
  phases: Uint32Array;
  /** What is not looked for. */
  dim: number;
  /** Between spans that touch, and hatching. */
  panel: number;
  error: number;
  /** Where ticks stand. */
  grid: number;
}

/** How the picture is measured, in device pixels. */
export interface Measure {
  width: number;
  height: number;
  /** What is filled of a row. */
  filled: number;
  ratio: number;
  /** Where lines of the ruler stand. */
  ticks: number[];
}

/** A piece of a block that is long enough for words. */
export interface Label {
  left: number;
  right: number;
  top: number;
  /** Place of the span in the answer's columns. */
  span: number;
  /** How many spans it stands for. */
  count: number;
  phase: number;
  lit: boolean;
}

/** Device pixels from one hatching line to the next, and of a line. */
const HATCH = 5;
const HATCH_LINE = 2;
/** Shorter pieces have no words, CSS pixels. */
const LABEL_PX = 28;

const HATCHED = 1;
const ERROR = 2;

/** What of a row is painted over what; and of each piece, its span, how many it holds, its phase and whether it is lit. */
interface Scratch {
  line: Uint32Array;
  mask: Uint8Array;
  owner: Int32Array;
  span: Uint32Array;
  count: Uint32Array;
  phase: Uint8Array;
  lit: Uint8Array;
}

let scratch = scratchOf(0);

function scratchOf(width: number): Scratch {
  const pieces = (width + 1) * ROWS_MAX;
  return {
    line: new Uint32Array(width),
    mask: new Uint8Array(width),
    owner: new Int32Array(width),
    span: new Uint32Array(pieces),
    count: new Uint32Array(pieces),
    phase: new Uint8Array(pieces),
    lit: new Uint8Array(pieces),
  };
}

/** Fills `pixels`; gives the pieces that have room for words. */
export function paintStrips(
  pixels: Uint32Array,
  strips: Strip[],
  window: Window,
  traits: Traits,
  ink: SpanInk,
  measure: Measure,
): Label[] {
  const { width, height, ratio } = measure;
  pixels.fill(0);
  if (scratch.line.length !== width) scratch = scratchOf(width);
  const labels: Label[] = [];
  for (let y = 0; y < height && measure.ticks.length > 0; y++)
    for (const x of measure.ticks) pixels[y * width + x] = ink.grid;
  for (const strip of strips) {
    const top = Math.round(strip.top * ratio);
    paintLine(strip, window, traits, ink, measure);
    copyLine(pixels, top, ink, measure);
    collect(labels, top, ratio);
  }
  return labels;
}

function paintLine(
  { rows }: Strip,
  window: Window,
  traits: Traits,
  ink: SpanInk,
  { width, ticks }: Measure,
): void {
  const { line, mask, owner, span, count, phase, lit } = scratch;
  line.fill(0);
  for (const x of ticks) line[x] = ink.grid;
  mask.fill(0);
  owner.fill(-1);
  let pieces = 0;
  for (const row of rows)
    sweep(row, window, width, traits, (block) => {
      if (pieces === span.length) return;
      const { left, right, merged, error } = block;
      line.fill(block.lit ? ink.phases[block.phase] : ink.dim, left, right);
      mask.fill((merged ? HATCHED : 0) | (error ? ERROR : 0), left, right);
      // Neighbours of one colour are told apart by what is between them.
      if (right - left >= 3 && right < width) line[right - 1] = ink.panel;
      owner.fill(pieces, left, right);
      span[pieces] = row.span[block.first];
      count[pieces] = block.end - block.first;
      phase[pieces] = block.phase;
      lit[pieces] = Number(block.lit);
      pieces++;
    });
}

function copyLine(pixels: Uint32Array, top: number, ink: SpanInk, measure: Measure): void {
  const { line, mask } = scratch;
  const { width, height, filled, ratio } = measure;
  const first = mask.findIndex((m) => m !== 0);
  const last = first < 0 ? -1 : mask.findLastIndex((m) => m !== 0);
  const marked = Math.max(2, Math.round(2 * ratio));
  for (let down = 0; down < filled; down++) {
    const y = top + down;
    if (y < 0 || y >= height) continue;
    const start = y * width;
    pixels.set(line, start);
    for (let x = Math.max(0, first); x <= last; x++) {
      if (mask[x] & HATCHED && (x + y) % HATCH < HATCH_LINE) pixels[start + x] = ink.panel;
      if (mask[x] & ERROR && down < marked) pixels[start + x] = ink.error;
    }
  }
}

/** What is seen of each piece, as far as it is long enough. */
function collect(labels: Label[], top: number, ratio: number): void {
  const { owner, span, count, phase, lit } = scratch;
  const least = LABEL_PX * ratio;
  let left = 0;
  for (let x = 1; x <= owner.length; x++) {
    if (x < owner.length && owner[x] === owner[left]) continue;
    const piece = owner[left];
    if (piece >= 0 && x - left >= least) {
      const what = { span: span[piece], count: count[piece], phase: phase[piece], lit: lit[piece] === 1 };
      labels.push({ ...what, left, right: x, top });
    }
    left = x;
  }
}
