/** What a plot draws itself, behind and above uPlot's lines. */
import uPlot from 'uplot';
import type { Onset } from '../health/words';
import { formatCount, formatTicks } from '../lib/number';
import { formatSpan } from '../lib/time';
import { hatch, type Ink } from './ink';
import type { PlotModel } from './model';
import type { Range } from './range';
import { type Line, type Mark, sampleAt } from './shape';

/** Marks closer than this share one text, CSS pixels. */
const MARK_WIDTH = 96;
/** Opacity of the ground behind what followed an onset. */
const TINT = 0.06;

/** What lies behind the lines: hatched gaps and the min-max bands. */
export function drawBehind(u: uPlot, model: PlotModel): void {
  const ratio = uPlot.pxRatio;
  const { shape, ink, envelope, looks, log } = model;
  const { ctx, bbox } = u;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  for (const onset of model.onsets ?? []) tint(u, onset, ink);
  for (const hole of shape.holes) drawHole(u, model, hole, ratio);
  if (envelope) {
    shape.lines.forEach((line, at) => {
      ctx.fillStyle = alpha(looks[at].stroke, 0.18 * looks[at].alpha);
      band(u, shape.x, line, log);
    });
  }
  ctx.restore();
  ctx.fillStyle = ink.text3;
}

function drawHole(u: uPlot, model: PlotModel, hole: Range, ratio: number): void {
  const { ink, axis } = model;
  const { ctx, bbox } = u;
  const left = Math.max(bbox.left, u.valToPos(hole.from, 'x', true));
  const right = Math.min(bbox.left + bbox.width, u.valToPos(hole.to, 'x', true));
  if (right - left < 2 * ratio) return;
  hatch(ctx, { x: left, y: bbox.top, w: right - left, h: bbox.height }, ink.line2, ratio);
  if (right - left < 60 * ratio) return;
  const length = hole.to - hole.from;
  const text =
    axis === 'step'
      ? `no data for ${formatTicks([length])[0]} steps`
      : `no data ${formatSpan(axis === 'time' ? length / 1000 : length)}`;
  label(ctx, ink, text, (left + right) / 2, bbox.top + bbox.height / 2, right - left, ratio);
}

/** What lies above the lines: marks on the frame and notes. */
export function drawAbove(u: uPlot, model: PlotModel): void {
  const ratio = uPlot.pxRatio;
  const { ctx } = u;
  ctx.save();
  for (const onset of model.onsets ?? []) drawOnset(u, model, onset, ratio);
  drawMarks(u, model, ratio);
  if (model.shape.lost && model.named) drawLost(u, model, ratio);
  if (model.stale) drawStale(u, model, model.stale, ratio);
  ctx.restore();
}

const severity = (ink: Ink, { level }: Onset) => (level === 'page' ? ink.crit : ink.warn);

/** What follows an onset, up to where it ended, stands on a faint ground. */
function tint(u: uPlot, onset: Onset, ink: Ink): void {
  const { ctx, bbox } = u;
  const right = bbox.left + bbox.width;
  const from = Math.max(bbox.left, u.valToPos(onset.x, 'x', true));
  const to = onset.end === null ? right : Math.min(right, u.valToPos(onset.end, 'x', true));
  if (to <= from) return;
  ctx.fillStyle = alpha(severity(ink, onset), TINT);
  ctx.fillRect(from, bbox.top, to - from, bbox.height);
}

/** A dotted line where it began, with its place where there is room for words. */
function drawOnset(u: uPlot, model: PlotModel, onset: Onset, ratio: number): void {
  const { ink, range, axis } = model;
  if (onset.x < range.from || onset.x > range.to) return;
  const { ctx, bbox } = u;
  const x = u.valToPos(onset.x, 'x', true);
  const colour = severity(ink, onset);
  ctx.strokeStyle = colour;
  ctx.lineWidth = 1.5 * ratio;
  ctx.setLineDash([2 * ratio, 2 * ratio]);
  ctx.beginPath();
  ctx.moveTo(x, bbox.top);
  ctx.lineTo(x, bbox.top + bbox.height);
  ctx.stroke();
  if (!model.named) return;
  const text = axis === 'step' ? `onset ${formatCount(onset.x)}` : 'onset';
  ctx.font = scaled(ink.fontStrong, ratio);
  const left = x - ctx.measureText(text).width - 8 * ratio > bbox.left;
  ctx.textAlign = left ? 'right' : 'left';
  ctx.textBaseline = 'middle';
  // Below the words of what is not finite, which stand at the frame.
  halo(ctx, ink, text, x + (left ? -6 : 6) * ratio, bbox.top + 26 * ratio, ratio, colour);
}

function drawMarks(u: uPlot, model: PlotModel, ratio: number): void {
  const { shape, ink, range } = model;
  const { ctx, bbox } = u;
  ctx.strokeStyle = ink.crit;
  ctx.lineWidth = ratio;
  for (const low of [false, true]) {
    const edge = low ? bbox.top + bbox.height : bbox.top;
    const way = low ? -ratio : ratio;
    const inside = shape.marks.filter(
      (m) => (m.kind === '-Inf') === low && m.x >= range.from && m.x <= range.to,
    );
    let written = Number.NEGATIVE_INFINITY;
    for (const group of grouped(inside, (x) => u.valToPos(x, 'x', true), MARK_WIDTH * ratio)) {
      ctx.fillStyle = ink.crit;
      for (const at of group.places) triangle(ctx, at, edge, way);
      if (group.places.length === 1) {
        ctx.setLineDash([2 * ratio, 2 * ratio]);
        ctx.beginPath();
        ctx.moveTo(group.places[0], bbox.top);
        ctx.lineTo(group.places[0], bbox.top + bbox.height);
        ctx.stroke();
      }
      const text = group.kinds.join(', ') + (group.count > 1 ? ` ×${group.count}` : '');
      const at = group.places[group.places.length - 1];
      ctx.font = scaled(ink.fontStrong, ratio);
      const width = ctx.measureText(text).width;
      const right = at + 8 * ratio + width < bbox.left + bbox.width;
      ctx.textAlign = right ? 'left' : 'right';
      ctx.textBaseline = 'middle';
      const beside = right ? at + 7 * ratio : group.places[0] - 7 * ratio;
      // At the right end a text stands to the left, where that of the marks before may be already.
      if ((right ? beside : beside - width) < written) continue;
      written = right ? beside + width : group.places[group.places.length - 1];
      const below = group.places.length > 1 ? 14 : 7;
      halo(ctx, ink, text, beside, edge + way * below, ratio, ink.crit);
    }
  }
}

function drawLost(u: uPlot, model: PlotModel, ratio: number): void {
  const { shape, ink, range } = model;
  const lost = shape.lost!;
  const ghost = shape.lines.find((l) => l.ghost && l.attempt === lost.attempt)!;
  const at = sampleAt(shape.x, { ...ghost, spacing: Infinity }, lost.x);
  if (at < 0 || shape.x[at] < range.from || shape.x[at] > range.to) return;
  const [x, y] = [u.valToPos(shape.x[at], 'x', true), u.valToPos(ghost.raw[at], 'y', true)];
  const { ctx, bbox } = u;
  const text = `attempt ${lost.attempt}, ${formatTicks([Math.round(lost.steps)])[0]} steps not kept`;
  const up = y - 22 * ratio > bbox.top;
  const end = up ? y - 14 * ratio : y + 14 * ratio;
  ctx.strokeStyle = ink.peer;
  ctx.lineWidth = ratio;
  ctx.setLineDash([]);
  ctx.beginPath();
  ctx.moveTo(x, y + (up ? -3 : 3) * ratio);
  ctx.lineTo(x, end);
  ctx.stroke();
  ctx.font = scaled(ink.font, ratio);
  const half = ctx.measureText(text).width / 2;
  const middle = Math.min(Math.max(x, bbox.left + half + 4), bbox.left + bbox.width - half - 4);
  ctx.textAlign = 'center';
  ctx.textBaseline = up ? 'bottom' : 'top';
  halo(ctx, ink, text, middle, end, ratio, ink.text2);
}

function drawStale(u: uPlot, model: PlotModel, text: string, ratio: number): void {
  const { shape, ink, looks } = model;
  const { ctx, bbox } = u;
  shape.lines.forEach((line, index) => {
    if (line.ghost) return;
    const at = line.y.findLastIndex(Number.isFinite);
    if (at < 0 || line.attempt !== shape.lines[shape.lines.length - 1].attempt) return;
    const [x, y] = [u.valToPos(shape.x[at], 'x', true), u.valToPos(line.y[at], 'y', true)];
    if (x > bbox.left + bbox.width + 1) return;
    ctx.beginPath();
    ctx.arc(x, y, 3 * ratio, 0, 7);
    ctx.fillStyle = ink.panel;
    ctx.fill();
    ctx.setLineDash([]);
    ctx.lineWidth = 1.4 * ratio;
    ctx.strokeStyle = looks[index].stroke;
    ctx.stroke();
    if (index !== shape.lines.length - 1) return;
    ctx.font = scaled(ink.font, ratio);
    ctx.textAlign = 'right';
    const above = y - 20 * ratio > bbox.top;
    ctx.textBaseline = above ? 'bottom' : 'top';
    halo(ctx, ink, text, x, y + (above ? -6 : 6) * ratio, ratio, ink.text3);
  });
}

/** A colour of the tokens with an opacity. */
export function alpha(colour: string, opacity: number): string {
  if (opacity >= 1) return colour;
  return (
    colour +
    Math.round(Math.max(0, opacity) * 255)
      .toString(16)
      .padStart(2, '0')
  );
}

const scaled = (font: string, ratio: number) =>
  font.replace(/(\d+)px/, (_, size: string) => `${Number(size) * ratio}px`);

function halo(
  ctx: CanvasRenderingContext2D,
  ink: Ink,
  text: string,
  x: number,
  y: number,
  ratio: number,
  colour: string,
): void {
  ctx.setLineDash([]);
  ctx.lineJoin = 'round';
  ctx.lineWidth = 3 * ratio;
  ctx.strokeStyle = ink.panel;
  ctx.strokeText(text, x, y);
  ctx.fillStyle = colour;
  ctx.fillText(text, x, y);
}

function label(
  ctx: CanvasRenderingContext2D,
  ink: Ink,
  text: string,
  x: number,
  y: number,
  room: number,
  ratio: number,
): void {
  ctx.font = scaled(ink.font, ratio);
  ctx.textAlign = 'center';
  ctx.textBaseline = 'middle';
  if (ctx.measureText(text).width + 8 * ratio <= room) halo(ctx, ink, text, x, y, ratio, ink.text2);
}

/** Marks that stand closer than their text is wide. */
interface MarkGroup {
  places: number[];
  kinds: string[];
  count: number;
}

function grouped(marks: Mark[], place: (x: number) => number, width: number): MarkGroup[] {
  const groups: MarkGroup[] = [];
  for (const mark of marks) {
    const at = place(mark.x);
    const near = groups[groups.length - 1];
    if (!near || at - near.places[0] >= width) {
      groups.push({ places: [at], kinds: [mark.kind], count: mark.count });
      continue;
    }
    if (at !== near.places[near.places.length - 1]) near.places.push(at);
    if (!near.kinds.includes(mark.kind)) near.kinds.push(mark.kind);
    near.count += mark.count;
  }
  return groups;
}

function triangle(ctx: CanvasRenderingContext2D, at: number, edge: number, way: number): void {
  const half = Math.abs(way) * 4;
  ctx.beginPath();
  ctx.moveTo(at - half, edge);
  ctx.lineTo(at + half, edge);
  ctx.lineTo(at, edge + way * 6);
  ctx.fill();
}

/** Fills the min-max band of one line, in the pieces between its breaks. */
function band(u: uPlot, x: Float64Array, line: Line, log: boolean): void {
  const { ctx } = u;
  const ends = new Set(line.breaks.map((b) => b.to));
  let piece: number[] = [];
  const fill = () => {
    if (piece.some((at) => line.max[at] > line.min[at])) {
      ctx.beginPath();
      for (const at of piece) ctx.lineTo(u.valToPos(x[at], 'x', true), u.valToPos(line.max[at], 'y', true));
      for (const at of piece.toReversed())
        ctx.lineTo(u.valToPos(x[at], 'x', true), u.valToPos(line.min[at], 'y', true));
      ctx.fill();
    }
    piece = [];
  };
  for (let at = 0; at < x.length; at++) {
    if (!Number.isFinite(line.min[at]) || !Number.isFinite(line.max[at]) || (log && line.min[at] <= 0))
      continue;
    if (ends.has(x[at])) fill();
    piece.push(at);
  }
  fill();
}
