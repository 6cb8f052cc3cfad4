/** Paints the map of ranks into pixels. */
import { parseHex, pixel, type Scale, shadeOf } from '../lib/ramp';
import type { Worse } from './choices';
import { excess } from './ratio';
import type { Row } from './rows';

/** Colours as pixels. */
export interface HeatInk {
  /** From better over alike to worse. */
  shades: Uint32Array;
  absent: number;
  hatch: number;
  /** Between rows. */
  gap: number;
  /** What is no number. */
  bad: number;
}

/** The colours of tokens. */
export function heatInk(
  shades: Uint32Array,
  absent: string,
  hatch: string,
  gap: string,
  bad: string,
): HeatInk {
  const of = (hex: string) => pixel(parseHex(hex));
  return { shades, absent: of(absent), hatch: of(hatch), gap: of(gap), bad: of(bad) };
}

/** What is painted. */
export interface Heat {
  of: Float32Array;
  columns: number;
  rows: Row[];
  worse: Worse;
  scale: Scale;
}

/** Device pixels from one hatching line to the next. */
const HATCH = 6;
/** Rows of fewer device pixels have no gap between them. */
const GAP_FROM = 4;

/** Fills `pixels` of `width` columns, each row `tall` pixels high. */
export function paintHeat(pixels: Uint32Array, width: number, tall: number, heat: Heat, ink: HeatInk): void {
  const { columns, rows } = heat;
  const columnOf = Int32Array.from({ length: width }, (_, x) => Math.floor((x * columns) / width));
  const cells = new Uint32Array(columns);
  const filled = tall >= GAP_FROM ? tall - 1 : tall;
  rows.forEach((row, at) => {
    const absent = coloursOf(cells, row, heat, ink);
    const top = at * tall * width;
    for (let line = 0; line < filled; line++) {
      const start = top + line * width;
      if (line > 0 && !absent) {
        pixels.copyWithin(start, top, top + width);
        continue;
      }
      const y = at * tall + line;
      for (let x = 0; x < width; x++) {
        const colour = cells[columnOf[x]];
        pixels[start + x] = colour !== 0 ? colour : (x + y) % HATCH === 0 ? ink.hatch : ink.absent;
      }
    }
    if (filled < tall) pixels.fill(ink.gap, top + filled * width, top + tall * width);
  });
}

/** Colours of a row's cells, 0 for absent; gives whether any is. */
function coloursOf(cells: Uint32Array, row: Row, heat: Heat, ink: HeatInk): boolean {
  const { of, columns, worse, scale } = heat;
  let absent = false;
  for (let column = 0; column < columns; column++) {
    const ratio = worstRatio(of, columns, row, column, worse);
    if (Number.isNaN(ratio)) {
      cells[column] = 0;
      absent = true;
    } else cells[column] = Math.abs(ratio) === Infinity ? ink.bad : ink.shades[shadeOf(ratio, scale)];
  }
  return absent;
}

/** The worst ratio of a row's ranks in a column; NaN where none has one. */
export function worstRatio(
  of: Float32Array,
  columns: number,
  { members }: Row,
  column: number,
  worse: Worse,
): number {
  let worst = Number.NaN;
  let far = -Infinity;
  for (const member of members) {
    const ratio = of[member * columns + column];
    if (Number.isNaN(ratio)) continue;
    const here = Math.abs(ratio) === Infinity ? Infinity : excess(ratio, worse);
    if (Number.isNaN(worst) || here > far) {
      far = here;
      worst = ratio;
    }
  }
  return worst;
}
