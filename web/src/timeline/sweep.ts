/** What of a row is seen at a zoom: spans wide enough by themselves, the others merged. */
import { PHASES } from '../lib/phases';
import { firstAfter, type Row } from './rows';

/** From and to, microseconds. */
export interface Window {
  from: number;
  to: number;
}

/** Something to draw, in device pixels; the same object is handed out again and again. */
export interface Block {
  left: number;
  right: number;
  /** Places in the row; the end is not included. */
  first: number;
  end: number;
  /** Whether it holds several spans of less than a pixel. */
  merged: boolean;
  /** The phase that most of its time belongs to, place in `PHASES`. */
  phase: number;
  error: boolean;
  /** Whether any of it is looked for. */
  lit: boolean;
}

/** What is known of spans by their place in the answer's columns. */
export interface Traits {
  phase: Uint8Array;
  status: ArrayLike<number>;
  /** Whether a span is looked for; `null` when nothing is. */
  lit: Uint8Array | null;
}

const time = new Float64Array(PHASES.length);

/** Hands over each block of a row within a window that is `width` pixels wide. */
export function sweep(
  row: Row,
  window: Window,
  width: number,
  traits: Traits,
  visit: (block: Block) => void,
): void {
  const { start, end, span } = row;
  const scale = width / (window.to - window.from);
  const pixel = (at: number) => Math.floor((at - window.from) * scale);
  const block: Block = {
    left: 0,
    right: 0,
    first: 0,
    end: 0,
    merged: false,
    phase: 0,
    error: false,
    lit: true,
  };
  const count = start.length;
  let at = firstAfter(row.reach, window.from);
  while (at < count && start[at] < window.to) {
    block.first = at;
    block.left = Math.max(0, pixel(start[at]));
    block.phase = traits.phase[span[at]];
    block.error = traits.status[span[at]] === 2;
    block.lit = !traits.lit || traits.lit[span[at]] === 1;
    if ((end[at] - start[at]) * scale >= 1) {
      block.right = Math.min(width, Math.max(block.left + 1, pixel(end[at])));
      at++;
    } else {
      block.right = block.left + 1;
      at = merge(at, row, window.to, traits, block, pixel, scale);
    }
    block.end = at;
    block.merged = at - block.first > 1;
    if (block.left < width && block.right > 0) visit(block);
  }
}

/** Takes further spans of less than a pixel into a block as long as no pixel lies between. */
function merge(
  from: number,
  { start, end, span }: Row,
  until: number,
  { phase, status, lit }: Traits,
  block: Block,
  pixel: (at: number) => number,
  scale: number,
): number {
  let at = from;
  time.fill(0);
  let anyLit = block.lit;
  while (at < start.length && start[at] < until && (end[at] - start[at]) * scale < 1) {
    const left = pixel(start[at]);
    if (left > block.right) break;
    const here = !lit || lit[span[at]] === 1;
    // Among what is looked for and what is not, the former gives the colour.
    if (here && !anyLit) {
      anyLit = true;
      time.fill(0);
    }
    if (here || !anyLit) time[phase[span[at]]] += end[at] - start[at] + 1e-9;
    if (status[span[at]] === 2) block.error = true;
    if (left + 1 > block.right) block.right = left + 1;
    at++;
  }
  block.lit = anyLit;
  for (let p = 0; p < time.length; p++) if (time[p] > time[block.phase]) block.phase = p;
  return at;
}
