/** Beside the map: the SM clock of each rank's card against the others', as it is now. */
import type { MetricRow } from '../lib/answers';
import { unspell } from '../lib/answers';
import { token } from '../lib/theme';
import type { Ranks } from './model';
import { ratioTo } from './ratio';
import type { Row } from './rows';
import { type Sheet, useCanvas } from './use_canvas';

const CLOCK = 'system_gpu_sm_clock_mhz';
/** Room right of 1, for what is faster than the others. */
const OVER = 1.08;
/** A clock below this share of the others' stands out. */
const SLOW = 0.95;
/** Fewer cards than this have no others. */
const CARDS = 2;

/** Latest clock of each rank, of its slowest card. */
export function clocksOf(
  metrics: MetricRow[],
  rankOf: (labels: Record<string, string>) => number | null,
): Map<number, number> {
  const clocks = new Map<number, number>();
  for (const row of metrics) {
    const [rank, last] = row.name === CLOCK ? [rankOf(row.labels), unspell(row.last)] : [null, null];
    if (rank === null || last === null || !Number.isFinite(last)) continue;
    clocks.set(rank, Math.min(last, clocks.get(rank) ?? Infinity));
  }
  return clocks;
}

/** Each row's clock over the median of all ranks: of its slowest rank; NaN where none is known. */
export function clockRatios(clocks: Map<number, number>, rows: Row[], ranks: number[]): number[] {
  const all = [...clocks.values()].sort((a, b) => a - b);
  if (all.length < CARDS) return [];
  const half = all.length >> 1;
  const median = all.length % 2 === 1 ? all[half] : (all[half - 1] + all[half]) / 2;
  return rows.map(({ members }) => {
    const own = members.flatMap((m) => clocks.get(ranks[m]) ?? []);
    return own.length > 0 ? ratioTo(Math.min(...own), median) : Number.NaN;
  });
}

/** The clocks of a page's ranks; empty where fewer than two cards are known. */
export function clocks(model: Ranks): number[] {
  const { metrics } = model.board;
  const known = clocksOf(metrics.value ?? [], model.crew.value.rankOf);
  return clockRatios(known, model.rows.value, model.loaded.value?.grid.ranks ?? []);
}

/** In words: how many are known, and the slowest by name. */
function clockText(model: Ranks, ratios: number[]): string {
  const known = ratios.filter(Number.isFinite);
  const least = Math.min(...known);
  const row = model.rows.value[ratios.indexOf(least)];
  const rank = row && model.loaded.value?.grid.ranks[row.members[0]];
  const slowest = least < SLOW ? `, the slowest is rank ${rank} at ${least.toFixed(2)}` : ', all alike';
  return `SM clock of each rank over the median, ${known.length} known${slowest}`;
}

/** The bars; their canvas is as tall as the map. */
export function Clocks({ model, ratios, tall }: { model: Ranks; ratios: number[]; tall: number }) {
  const canvas = useCanvas((sheet) => draw(clocks(model), sheet));
  return (
    <canvas
      class="clocks"
      ref={canvas}
      role="img"
      aria-label={clockText(model, ratios)}
      style={{ height: `${ratios.length * tall}px` }}
    />
  );
}

/** The axis below. */
export function ClockAxis() {
  return (
    <div class="dots-axis clocks-axis quiet" aria-hidden="true">
      SM clock ÷ median
    </div>
  );
}

function draw(ratios: number[], { ctx, width, height, ink }: Sheet): void {
  const tall = height / Math.max(1, ratios.length);
  const left = 8;
  const x = (ratio: number) => left + (Math.min(ratio, OVER) / OVER) * (width - left);
  const gap = tall >= 4 ? 1 : 0;
  ratios.forEach((ratio, at) => {
    if (!Number.isFinite(ratio)) return;
    ctx.fillStyle = ratio < SLOW ? token('--div-5') : ink.line2;
    ctx.fillRect(left, at * tall, Math.max(1, x(ratio) - left), Math.max(0.5, tall - gap));
  });
  ctx.fillStyle = ink.text3;
  ctx.fillRect(Math.round(x(1)), 0, 1, height);
  ctx.font = ink.fontStrong;
  ctx.textBaseline = 'middle';
  ctx.textAlign = 'right';
  ctx.lineWidth = 3;
  ctx.strokeStyle = ink.panel;
  ctx.fillStyle = ink.text;
  let written = Number.NEGATIVE_INFINITY;
  ratios.forEach((ratio, at) => {
    const y = Math.max(7, Math.min(height - 7, (at + 0.5) * tall));
    if (!(ratio < SLOW) || y - written < 13) return;
    written = y;
    const text = ratio.toFixed(2);
    const end = Math.max(left + ctx.measureText(text).width + 4, x(ratio) - 4);
    ctx.strokeText(text, end, y);
    ctx.fillText(text, end, y);
  });
}
