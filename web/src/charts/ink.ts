/** What a canvas draws with: the tokens, read once per theme. */
import { slotProperty } from '../lib/colour';
import { token } from '../lib/theme';

/** Colours and fonts for canvases. */
export interface Ink {
  panel: string;
  sunk: string;
  grid: string;
  line2: string;
  text: string;
  text2: string;
  text3: string;
  crit: string;
  warn: string;
  peer: string;
  font: string;
  fontStrong: string;
  series: (slot: number) => string;
}

/** Reads the tokens now. */
export function readInk(): Ink {
  const sans = token('--sans');
  const colours = Array.from({ length: 10 }, (_, slot) => token(slotProperty(slot)));
  return {
    panel: token('--panel'),
    sunk: token('--sunk'),
    grid: token('--grid'),
    line2: token('--line2'),
    text: token('--text'),
    text2: token('--text2'),
    text3: token('--text3'),
    crit: token('--crit'),
    warn: token('--warn'),
    peer: token('--peer'),
    font: `11px ${sans}`,
    fontStrong: `600 11px ${sans}`,
    series: (slot) => colours[slot % colours.length],
  };
}

/** Fills a rectangle with lines at 45 degrees. */
export function hatch(
  ctx: CanvasRenderingContext2D,
  box: { x: number; y: number; w: number; h: number },
  colour: string,
  ratio: number,
): void {
  ctx.save();
  ctx.beginPath();
  ctx.rect(box.x, box.y, box.w, box.h);
  ctx.clip();
  ctx.strokeStyle = colour;
  ctx.lineWidth = ratio;
  ctx.setLineDash([]);
  ctx.beginPath();
  for (let x = box.x - box.h; x < box.x + box.w; x += 7 * ratio) {
    ctx.moveTo(x, box.y + box.h);
    ctx.lineTo(x + box.h, box.y);
  }
  ctx.stroke();
  ctx.restore();
}
