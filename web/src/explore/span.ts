/** The range that is asked for, and the distance of its steps. Times are milliseconds. */
import type { Range } from '../charts/range';
import { formatSpan } from '../lib/time';

const UNITS: [unit: string, ms: number][] = [
  ['w', 604_800_000],
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1000],
  ['ms', 1],
];

/** Presets of the menu, as durations. */
export const PRESETS = ['15m', '1h', '3h', '12h', '1d', '7d', '30d'];
/** What is asked for when the address says nothing. */
export const USUAL = '1h';
/** Steps of a range, at most about: what a wide chart can show. */
const STEPS = 800;
/** What the server answers at most. */
export const STEPS_MAX = 11_000;
const STEP_CHOICES = [
  '1s',
  '2s',
  '5s',
  '10s',
  '15s',
  '30s',
  '1m',
  '2m',
  '5m',
  '10m',
  '15m',
  '30m',
  '1h',
  '2h',
];
const LONG_CHOICES = ['3h', '6h', '12h', '1d', '7d', '30d'];

/** Shares of a range below which what is there is young: most of the picture would be empty. */
const YOUNG = 0.25;

/** The shortest preset that holds `age`, where that is far less than what is shown; `null` where it is not. */
export function presetFor(age: number, width: number): string | null {
  if (!(age >= 0) || age > width * YOUNG) return null;
  return PRESETS.find((preset) => parseDuration(preset)! >= age && parseDuration(preset)! < width) ?? null;
}

/** Reads `90s`, `1h30m` or `15` (seconds); `null` when it is none, or none at all. */
export function parseDuration(text: string): number | null {
  if (/^\d+(\.\d+)?$/.test(text)) return Number(text) > 0 ? Number(text) * 1000 : null;
  const pieces = [...text.matchAll(/(\d+)(ms|[wdhms])/g)];
  if (pieces.length === 0 || pieces.map(([whole]) => whole).join('') !== text) return null;
  const sum = pieces.reduce((ms, [, n, unit]) => ms + Number(n) * UNITS.find(([u]) => u === unit)![1], 0);
  return sum > 0 ? sum : null;
}

/** A preset in words: `15 min`, `1 h`. */
export const presetName = (preset: string) =>
  formatSpan(parseDuration(preset)! / 1000).replace(/ 00 min$/, '');

/** Writes `1h30m`, as Prometheus reads it. */
export function formatDuration(ms: number): string {
  let rest = Math.max(1, Math.round(ms));
  let text = '';
  for (const [unit, size] of UNITS) {
    const count = Math.floor(rest / size);
    if (count > 0) text += `${count}${unit}`;
    rest -= count * size;
  }
  return text;
}

/** A range: the last while, which moves with the clock, or fixed. */
export type Span = { last: string } | Range;

/** Reads `from` and `to` of the address: `from=-3h`, or both as ms since the epoch. */
export function parseSpan(from: string, to: string): Span {
  if (from.startsWith('-') && parseDuration(from.slice(1)) !== null) return { last: from.slice(1) };
  const fixed = { from: Number(from), to: Number(to) };
  return from !== '' && to !== '' && fixed.from < fixed.to ? fixed : { last: USUAL };
}

/** `from` and `to` of the address. */
export function writeSpan(span: Span): { from: string | null; to: string | null } {
  if ('last' in span) return { from: span.last === USUAL ? null : `-${span.last}`, to: null };
  return { from: String(Math.round(span.from)), to: String(Math.round(span.to)) };
}

/** When it is, with `now` as its end when it moves. */
export function rangeOf(span: Span, now: number): Range {
  return 'last' in span ? { from: now - parseDuration(span.last)!, to: now } : span;
}

/** The step that suits a range. */
export function autoStep(range: Range): number {
  const least = (range.to - range.from) / STEPS;
  for (const text of [...STEP_CHOICES, ...LONG_CHOICES]) {
    const step = parseDuration(text)!;
    if (step >= least) return step;
  }
  return Math.ceil(least / 86_400_000) * 86_400_000;
}

/** The times that are asked for: on whole steps, so that a picture that moves on does not flicker. */
export function gridOf(range: Range, step: number): Range {
  const from = Math.ceil(range.from / step) * step;
  return { from, to: Math.max(from, Math.floor(range.to / step) * step) };
}

/** Reads a time as a person pastes it: ISO, `2026-11-30 11:34` (UTC), or seconds, ms or ns since the epoch. */
export function parseTime(text: string): number | null {
  const plain = text.trim();
  if (/^\d+(\.\d+)?$/.test(plain)) {
    const value = Number(plain);
    return value < 1e11 ? value * 1000 : value < 1e14 ? value : value / 1e6;
  }
  const iso = plain.replace(/ UTC$/, 'Z').replace(/^(\d{4}-\d\d-\d\d) /, '$1T');
  const zoned = /(Z|[+-]\d\d:?\d\d)$/.test(iso) || !iso.includes('T') ? iso : `${iso}Z`;
  const time = /^\d{4}-\d\d/.test(zoned) ? Date.parse(zoned) : Number.NaN;
  return Number.isNaN(time) ? null : time;
}
