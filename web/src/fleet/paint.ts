/** Paints the strips of cards into pixels. */
import type { Gpu } from './answers';
import type { Row } from './layout';
import { type Signal, shadeAt, worseOf } from './signals';

/** Colours as pixels. */
export interface StripInk {
  shades: Uint32Array;
  /** Under the hatching of what is absent, and its lines. */
  absent: number;
  hatch: number;
  /** Between cells. */
  gap: number;
}

/** What is painted, in device pixels. */
export interface Strips {
  rows: Row[];
  signal: Signal;
  bins: number;
  /** Pixels of the whole width. */
  width: number;
  /** Device pixels in a CSS pixel. */
  ratio: number;
  /** CSS pixels that are scrolled away above. */
  top: number;
}

/** Device pixels from one hatching line to the next. */
const HATCH = 6;
/** Columns of cells and rows lie this far apart, CSS pixels. */
const COLUMN_GAP = 5;
const ROW_GAP = 3;
const COMPACT_GAP = 1;

/** Left edge and width of a column in device pixels. */
export function columnSpan(column: number, columns: number, width: number, ratio: number): [number, number] {
  const pitch = width / columns;
  const left = Math.round(column * pitch);
  const gap = pitch > 24 * ratio ? Math.round(COLUMN_GAP * ratio) : 1;
  return [left, Math.max(1, Math.round((column + 1) * pitch) - gap - left)];
}

/** Device pixels of a row that are filled. */
export const filled = (height: number, ratio: number) =>
  Math.max(1, Math.round((height - (height > 12 ? ROW_GAP : COMPACT_GAP)) * ratio));

/** Bins of a folded row: the worst of its cards. */
export function worstBins(cells: (Gpu | null)[], signal: Signal, bins: number): (number | null)[] {
  const worst = new Array<number | null>(bins).fill(null);
  for (const gpu of cells) {
    if (!gpu?.bins) continue;
    for (let at = 0; at < bins; at++) worst[at] = worseOf(signal, worst[at], gpu.bins[at] ?? null);
  }
  return worst;
}

/** Fills `pixels`, which hold `height` lines of `strips.width`, with the rows that are seen. */
export function paintStrips(pixels: Uint32Array, height: number, strips: Strips, ink: StripInk): void {
  pixels.fill(ink.gap);
  const line = new Uint32Array(strips.width);
  // What is absent in the line: 1 where it is hatched.
  const holes = new Uint8Array(strips.width);
  for (const row of strips.rows) {
    const top = Math.round((row.y - strips.top) * strips.ratio);
    const tall = filled(row.height, strips.ratio);
    if (top + tall <= 0 || top >= height) continue;
    const some = lineOf(line, holes, row, strips, ink);
    for (let y = Math.max(0, top); y < Math.min(height, top + tall); y++) {
      pixels.set(line, y * strips.width);
      if (some) hatchLine(pixels, holes, y, strips.width, ink.hatch);
    }
  }
}

/** One line of a row; tells whether something in it is absent. */
function lineOf(line: Uint32Array, holes: Uint8Array, row: Row, strips: Strips, ink: StripInk): boolean {
  const { signal, bins, width, ratio } = strips;
  line.fill(ink.gap);
  holes.fill(0);
  if (row.folded) {
    const [, wide] = columnSpan(0, 1, width, ratio);
    return strip(line, holes, 0, wide, worstBins(row.cells, signal, bins), strips, ink);
  }
  let some = false;
  row.cells.forEach((gpu, column) => {
    if (!gpu) return;
    const [left, wide] = columnSpan(column, row.cells.length, width, ratio);
    some = strip(line, holes, left, wide, gpu.bins, strips, ink) || some;
  });
  return some;
}

/** The pixels of one card; where one pixel stands for several bins, the worst is kept. */
function strip(
  line: Uint32Array,
  holes: Uint8Array,
  left: number,
  wide: number,
  values: (number | null)[] | null,
  { signal, bins }: Strips,
  ink: StripInk,
): boolean {
  let some = false;
  for (let x = 0; x < wide; x++) {
    const first = Math.floor((x * bins) / wide);
    const end = Math.max(first + 1, Math.floor(((x + 1) * bins) / wide));
    let value = values?.[first] ?? null;
    for (let at = first + 1; at < end; at++) value = worseOf(signal, value, values?.[at] ?? null);
    if (value === null) {
      line[left + x] = ink.absent;
      holes[left + x] = 1;
      some = true;
    } else line[left + x] = ink.shades[shadeAt(signal, value)];
  }
  return some;
}

function hatchLine(pixels: Uint32Array, holes: Uint8Array, y: number, width: number, colour: number): void {
  const start = y * width;
  for (let x = 0; x < width; x++) if (holes[x] === 1 && (x + y) % HATCH === 0) pixels[start + x] = colour;
}
