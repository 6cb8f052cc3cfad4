/** A chart as a PNG with its title, query and time. */
import { fileName, save } from '../lib/download';
import { visible } from '../lib/text';
import { formatFull } from '../lib/time';
import type { Ink } from './ink';

/** Saves the picture of a plot. */
export function saveImage(
  canvas: HTMLCanvasElement,
  ink: Ink,
  title: string,
  query: string,
  run: string,
): void {
  const ratio = window.devicePixelRatio || 1;
  const [head, foot] = [26 * ratio, 20 * ratio];
  const sheet = document.createElement('canvas');
  sheet.width = canvas.width;
  sheet.height = canvas.height + head + foot;
  const ctx = sheet.getContext('2d')!;
  ctx.fillStyle = ink.panel;
  ctx.fillRect(0, 0, sheet.width, sheet.height);
  ctx.drawImage(canvas, 0, head);
  ctx.textBaseline = 'middle';
  ctx.fillStyle = ink.text;
  ctx.font = `600 ${12 * ratio}px ${ink.font.replace(/^\d+px /, '')}`;
  ctx.fillText(visible(title), 10 * ratio, head / 2);
  ctx.fillStyle = ink.text3;
  ctx.font = `${11 * ratio}px ${ink.font.replace(/^\d+px /, '')}`;
  ctx.fillText(
    `${visible(query)} · ${formatFull(Date.now(), 'utc')}`,
    10 * ratio,
    sheet.height - foot / 2,
    sheet.width - 20 * ratio,
  );
  sheet.toBlob((blob) => blob && save(blob, `${fileName(run, title)}.png`), 'image/png');
}
