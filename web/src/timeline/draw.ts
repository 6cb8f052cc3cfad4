/** Draws the picture of the lanes: pixels first, then words and outlines. */
import { shown } from '../lib/text';
import type { Palette } from './ink';
import { FILLED, PITCH, type Placed, type Strip } from './layout';
import { type Label, paintStrips } from './paint';
import type { Spans } from './rows';
import type { Window } from './sweep';
import { ticksOf } from './ticks';
import { lengthText, shortNames } from './words';

/** Everything that a picture needs. */
export interface Picture {
  spans: Spans;
  strips: Strip[];
  placed: Placed[];
  /** How far it is scrolled, CSS pixels. */
  scrolled: number;
  window: Window;
  lit: Uint8Array | null;
  palette: Palette;
  /** Places of spans that are outlined, and the colour of their outline. */
  outlined: [span: number, colour: string][];
  font: string;
  width: number;
  height: number;
  ratio: number;
}

/** Room of a tick's name, CSS pixels. */
export const TICK_PX = 90;

/** Room of a length in words. */
const LENGTH_PX = 70;

/** Draws again and again on one canvas. */
export class Drawing {
  private image: ImageData | null = null;
  private readonly widths = new Map<string, number>();
  private font = '';

  constructor(private readonly canvas: HTMLCanvasElement) {}

  draw(picture: Picture): void {
    const { width, height, ratio, window, spans } = picture;
    const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (across <= 0 || down <= 0) return;
    if (this.canvas.width !== across) this.canvas.width = across;
    if (this.canvas.height !== down) this.canvas.height = down;
    const ctx = this.canvas.getContext('2d')!;
    if (this.image?.width !== across || this.image.height !== down)
      this.image = ctx.createImageData(across, down);
    const scale = across / (window.to - window.from);
    const ticks = ticksOf(window, width / TICK_PX).ticks.map((t) => Math.floor((t - window.from) * scale));
    const measure = {
      width: across,
      height: down,
      filled: Math.round(FILLED * ratio),
      ratio,
      ticks: ticks.filter((x) => x >= 0 && x < across),
    };
    const traits = { phase: spans.phase, status: spans.answer.spans.status, lit: picture.lit };
    const pixels = new Uint32Array(this.image.data.buffer);
    const labels = paintStrips(pixels, picture.strips, window, traits, picture.palette.pixels, measure);
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.putImageData(this.image, 0, 0);
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.words(ctx, labels, picture);
    this.outlines(ctx, picture, width / (window.to - window.from));
  }

  private words(ctx: CanvasRenderingContext2D, labels: Label[], picture: Picture): void {
    const { ratio, spans, palette, font } = picture;
    if (this.font !== font) this.widths.clear();
    this.font = font;
    ctx.font = font;
    ctx.textBaseline = 'middle';
    for (const label of labels) {
      if (!label.lit) continue;
      const room = (label.right - label.left) / ratio - 8;
      const text = this.fitting(ctx, label, spans, room);
      if (text === '') continue;
      ctx.fillStyle = palette.words[label.phase];
      ctx.fillText(text, label.left / ratio + 4, label.top / ratio + FILLED / 2 + 0.5);
    }
  }

  /** What there is room for: how many, or the name and its length, or as much of the name as fits. */
  private fitting(ctx: CanvasRenderingContext2D, label: Label, spans: Spans, room: number): string {
    const wide = (text: string) => {
      let width = this.widths.get(text);
      if (width === undefined) {
        // Lengths make ever new texts.
        if (this.widths.size > 5000) this.widths.clear();
        width = ctx.measureText(text).width;
        this.widths.set(text, width);
      }
      return width;
    };
    if (label.count > 1) {
      const count = `×${label.count}`;
      return wide(count) <= room ? count : '';
    }
    const { answer, start, end } = spans;
    const whole = answer.names[answer.spans.name[label.span]];
    const names = shortNames(whole).map((name) => shown(name, 40));
    const name = names.find((one) => wide(one) <= room);
    if (name === undefined) {
      const last = names[names.length - 1];
      const chars = Math.floor((room / wide(last)) * last.length) - 1;
      return chars >= 3 ? `${last.slice(0, chars)}…` : '';
    }
    const length = `  ${lengthText(end[label.span] - start[label.span])}`;
    // Digits are all equally wide.
    return wide(name) + LENGTH_PX <= room ? name + length : name;
  }

  private outlines(ctx: CanvasRenderingContext2D, picture: Picture, scale: number): void {
    const { spans, placed, window, scrolled } = picture;
    ctx.lineWidth = 2;
    for (const [at, colour] of picture.outlined) {
      const lane = spans.answer.spans.lane[at];
      const found = placed.find((p) => p.lane === lane);
      if (!found) continue;
      const top = found.top + (found.open ? spans.row[at] * PITCH : 0) - scrolled;
      const left = (spans.start[at] - window.from) * scale;
      const right = Math.max(left + 3, (spans.end[at] - window.from) * scale);
      ctx.strokeStyle = colour;
      // An edge far outside makes strokes that some drivers leave out.
      const [x0, x1] = [Math.max(-10, left), Math.min(picture.width + 10, right)];
      ctx.strokeRect(x0 - 1, top - 1, x1 - x0 + 2, FILLED + 2);
    }
  }
}
