/** What a lane paints behind its lines: stacked areas and heat maps. */
import uPlot from 'uplot';
import { hatch, type Ink } from '../charts/ink';
import { alpha } from '../charts/overlay';
import { formatValue } from '../lib/number';
import { diverging, SHADES } from '../lib/ramp';
import type { Drawn, Part } from './drawn';
import { badness, valueAt } from './series';
import type { Compared } from './specs';

/** The shade of the ramp for how bad something is; `null` for what cannot be said. */
export const shadeAt = (bad: number) =>
  Number.isFinite(bad) ? Math.round(((bad + 1) / 2) * (SHADES - 1)) : null;

/** A shade of the ramp as CSS. */
export function shadeText(shade: number): string {
  const pixel = diverging.value[shade];
  return `rgb(${pixel & 255} ${(pixel >> 8) & 255} ${(pixel >> 16) & 255})`;
}

/** Areas over each other, each from zero. */
export function paintParts(u: uPlot, x: Float64Array, parts: Part[], ink: Ink, spacing: number): void {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  const zero = u.valToPos(0, 'y', true);
  const place = (at: number) => u.valToPos(x[at], 'x', true);
  for (const { slot, y } of parts) {
    ctx.fillStyle = alpha(ink.series(slot), 0.7);
    let piece: number[] = [];
    const fill = () => {
      if (piece.length === 0) return;
      ctx.beginPath();
      ctx.moveTo(place(piece[0]), zero);
      for (const at of piece) ctx.lineTo(place(at), u.valToPos(y[at], 'y', true));
      ctx.lineTo(place(piece[piece.length - 1]), zero);
      ctx.fill();
      piece = [];
    };
    for (let at = 0; at < x.length; at++) {
      if (!Number.isFinite(y[at])) continue;
      if (piece.length > 0 && x[at] - x[piece[piece.length - 1]] > 2.5 * spacing) fill();
      piece.push(at);
    }
    fill();
  }
  ctx.restore();
}

/** A dashed line that the values can't exceed, with its name. */
export function paintCeiling(u: uPlot, value: number, ink: Ink): void {
  const { ctx, bbox } = u;
  const ratio = uPlot.pxRatio;
  const y = u.valToPos(value, 'y', true);
  ctx.save();
  ctx.strokeStyle = ink.text3;
  ctx.lineWidth = ratio;
  ctx.setLineDash([5 * ratio, 3 * ratio]);
  ctx.beginPath();
  ctx.moveTo(bbox.left, y);
  ctx.lineTo(bbox.left + bbox.width, y);
  ctx.stroke();
  ctx.font = ink.font.replace(/^\d+/, (size) => `${Number(size) * ratio}`);
  ctx.fillStyle = ink.text3;
  ctx.textAlign = 'left';
  ctx.textBaseline = 'top';
  ctx.fillText(`max ${formatValue(value)}`, bbox.left + 6 * ratio, y + 3 * ratio);
  ctx.restore();
}

/** Rows of series over time: each cell by how far it is from the others then. */
export function paintMap(u: uPlot, drawn: Drawn, compared: Compared, ink: Ink): void {
  const { ctx, bbox } = u;
  const { rows, spread, x } = drawn;
  if (rows.length === 0 || !spread) return;
  const ratio = uPlot.pxRatio;
  const width = Math.max(1, Math.ceil(2 * ratio));
  const columns = Math.max(1, Math.floor(bbox.width / width));
  hatch(ctx, { x: bbox.left, y: bbox.top, w: bbox.width, h: bbox.height }, ink.line2, ratio);
  const places = Array.from({ length: columns }, (_, at) => u.posToVal((at + 0.5) * (width / ratio), 'x'));
  const peers = { y: spread.median, spacing: spread.spacing };
  const medians = places.map((place) => valueAt(spread.x, peers, place));
  // Rows that are thinner than a pixel share one, and the worst of them is seen.
  const lines = Math.max(1, Math.min(rows.length, Math.floor(bbox.height)));
  const height = bbox.height / lines;
  for (let line = 0; line < lines; line++) {
    const first = Math.floor((line * rows.length) / lines);
    const own = rows.slice(first, Math.max(first + 1, Math.floor(((line + 1) * rows.length) / lines)));
    const top = Math.round(bbox.top + line * height);
    const bottom = Math.max(top + 1, Math.round(bbox.top + (line + 1) * height) - (height > 4 ? 1 : 0));
    places.forEach((place, column) => {
      const worst = Math.max(
        -Infinity,
        ...own
          .map((row) => badness(valueAt(x, row, place), medians[column], compared))
          .filter(Number.isFinite),
      );
      const shade = shadeAt(worst);
      if (shade === null) return;
      ctx.fillStyle = shadeText(shade);
      ctx.fillRect(bbox.left + column * width, top, width, bottom - top);
    });
  }
}
