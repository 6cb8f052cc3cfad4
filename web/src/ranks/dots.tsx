/** Beside the map: how far each row is from alike at the cursor, on one scale. */

import { token } from '../lib/theme';
import type { Ranks } from './model';
import { worstRatio } from './paint';
import { excess } from './ratio';
import { type Sheet, useCanvas } from './use_canvas';
import { ratioText } from './words';

const EDGE = 16;
/** Rows that are named. */
const LABELS = 3;
/** From where on a rank's own step time is told of, and pages. */
const THRESHOLDS = [
  { ratio: 1.05, colour: '--warn' },
  { ratio: 1.1, colour: '--crit' },
] as const;

/** The dots; their canvas is as tall as the map. */
export function Dots({ model, tall }: { model: Ranks; tall: number }) {
  const canvas = useCanvas((sheet) => draw(model, sheet));
  return (
    <canvas
      class="dots"
      ref={canvas}
      role="img"
      aria-label="How far each rank is from the median at the cursor"
      style={{ height: `${model.rows.value.length * tall}px` }}
    />
  );
}

/** Ends of the dots' scale: the map's, or as far as the farthest row is. */
export function dotScale(ratios: number[], low: number, high: number): [number, number] {
  const finite = ratios.filter(Number.isFinite);
  return [Math.min(low, ...finite), Math.max(high, ...finite)];
}

/** The colour of what is far from alike: by its side of the ramp. */
export function sideColours(model: Ranks): (ratio: number) => string {
  const [better, worse] = [token('--div-1'), token('--div-5')];
  const low = model.worse.value === 'low';
  return (ratio) => (ratio >= 1 === low ? better : worse);
}

function draw(model: Ranks, { ctx, width, height, ink }: Sheet): void {
  const [loaded, ratios, rows, column] = [
    model.loaded.value,
    model.ratios.value,
    model.rows.value,
    model.shown.value,
  ];
  if (!loaded || !ratios || column < 0 || rows.length === 0) return;
  const worse = model.worse.value;
  const all = rows.map((row) => worstRatio(ratios.of, loaded.grid.columns, row, column, worse));
  const [low, high] = dotScale(all, model.scale.value.low, model.scale.value.high);
  const x = (ratio: number) => EDGE + ((ratio - low) / (high - low)) * (width - 2 * EDGE);
  const tall = height / rows.length;
  ctx.fillStyle = ink.line2;
  ctx.fillRect(Math.round(x(1)), 0, 1, height);
  if (model.loadedChoice.value?.id === 'own' && model.base.value === 'peers') {
    ctx.setLineDash([4, 3]);
    ctx.lineWidth = 1;
    for (const { ratio, colour } of THRESHOLDS) {
      if (ratio > high) continue;
      ctx.strokeStyle = token(colour);
      ctx.beginPath();
      ctx.moveTo(Math.round(x(ratio)) + 0.5, 0);
      ctx.lineTo(Math.round(x(ratio)) + 0.5, height);
      ctx.stroke();
    }
    ctx.setLineDash([]);
  }
  const radius = Math.max(0.8, Math.min(3, tall / 2 - 0.5));
  const sides = sideColours(model);
  const named = new Set(model.named.value.slice(0, LABELS).map((s) => s.row));
  all.forEach((ratio, at) => {
    if (!Number.isFinite(ratio)) return;
    const y = (at + 0.5) * tall;
    const noted = excess(ratio, worse) >= ratios.limit[column];
    ctx.fillStyle = noted ? sides(ratio) : ink.text2;
    if (noted) ctx.fillRect(Math.min(x(1), x(ratio)), y - 0.5, Math.abs(x(ratio) - x(1)), 1);
    ctx.beginPath();
    ctx.arc(x(ratio), y, noted ? Math.max(2.5, radius) : radius, 0, 7);
    ctx.fill();
    if (!noted || !rows[at].members.some((m) => named.has(m))) return;
    ctx.font = ink.fontStrong;
    ctx.textBaseline = 'middle';
    const text = ratioText(ratio);
    const half = ctx.measureText(text).width / 2;
    const middle = Math.max(half + 2, Math.min(width - half - 2, x(ratio)));
    const below = y + 11 < height ? y + 11 : y - 11;
    ctx.textAlign = 'center';
    ctx.lineWidth = 3;
    ctx.strokeStyle = ink.panel;
    ctx.strokeText(text, middle, below);
    ctx.fillText(text, middle, below);
  });
}
