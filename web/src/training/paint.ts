/** What the plots of the Training tab draw beside their lines: skipped iterations, and parts of a step. */
import uPlot from 'uplot';
import { hatch, type Ink } from '../charts/ink';
import { alpha } from '../charts/overlay';
import { formatCount } from '../lib/number';
import { token } from '../lib/theme';
import type { Grown } from './fold';
import type { Stack } from './parts';

/** Marks closer than this are one, CSS pixels. */
const NEAR = 10;

/** Small triangles on the lower edge, where iterations were skipped. */
export function paintSkips(u: uPlot, skips: Grown[], ink: Ink): void {
  const { ctx, bbox } = u;
  const ratio = uPlot.pxRatio;
  const bottom = bbox.top + bbox.height;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.fillStyle = ink.text2;
  ctx.font = ink.font.replace(/^\d+/, (size) => `${Number(size) * ratio}`);
  ctx.textAlign = 'center';
  ctx.textBaseline = 'bottom';
  for (const { at, by } of merged(skips, (x) => u.valToPos(x, 'x', true), NEAR * ratio)) {
    if (at < bbox.left - 5 * ratio || at > bbox.left + bbox.width + 5 * ratio) continue;
    ctx.beginPath();
    ctx.moveTo(at - 4 * ratio, bottom);
    ctx.lineTo(at + 4 * ratio, bottom);
    ctx.lineTo(at, bottom - 6 * ratio);
    ctx.fill();
    if (by > 1) ctx.fillText(formatCount(by), at, bottom - 7 * ratio);
  }
  ctx.restore();
}

function merged(skips: Grown[], place: (x: number) => number, near: number): { at: number; by: number }[] {
  const groups: { at: number; by: number }[] = [];
  for (const { x, by } of skips) {
    const at = place(x);
    const last = groups[groups.length - 1];
    if (last && at - last.at < near) last.by += by;
    else groups.push({ at, by });
  }
  return groups;
}

/** Columns of shares that stand on each other; what no span tells of is hatched. `edges` are their left and right ends. */
export function paintStack(
  u: uPlot,
  stack: Stack,
  edges: { left: Float64Array; right: Float64Array },
  ink: Ink,
  only: string | null,
): void {
  const { ctx, bbox } = u;
  const ratio = uPlot.pxRatio;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  const bottoms = new Float64Array(stack.x.length);
  for (const part of stack.parts) {
    const faint = only !== null && only !== part.key;
    ctx.beginPath();
    for (let at = 0; at < stack.x.length; at++) {
      const share = part.share[at];
      if (!(share > 0)) continue;
      const from = Math.round(u.valToPos(edges.left[at], 'x', true));
      const to = Math.max(from + 1, Math.round(u.valToPos(edges.right[at], 'x', true)));
      const base = u.valToPos(bottoms[at] * 100, 'y', true);
      bottoms[at] += share;
      const top = u.valToPos(bottoms[at] * 100, 'y', true);
      if (to >= bbox.left && from <= bbox.left + bbox.width) ctx.rect(from, top, to - from, base - top);
    }
    ctx.fillStyle = part.token === null ? ink.sunk : alpha(token(part.token), faint ? 0.2 : 0.8);
    ctx.fill();
    if (part.token !== null) continue;
    // One hatching through all columns: each with its own would be noise.
    ctx.clip();
    const box = { x: bbox.left, y: bbox.top, w: bbox.width, h: bbox.height };
    hatch(ctx, box, faint ? ink.line2 : ink.text3, ratio);
  }
  ctx.restore();
}
