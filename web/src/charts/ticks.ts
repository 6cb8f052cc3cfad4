/** Where ticks stand and what they say. */
import { formatCount, formatTicks, isBytes } from '../lib/number';
import type { Axis } from '../lib/points';
import { formatRelativeTicks, formatTimeTicks, type Zone } from '../lib/time';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const TIME_STEPS = [
  1,
  2,
  5,
  10,
  20,
  50,
  100,
  200,
  500,
  SECOND,
  2 * SECOND,
  5 * SECOND,
  10 * SECOND,
  15 * SECOND,
  30 * SECOND,
  MINUTE,
  2 * MINUTE,
  5 * MINUTE,
  10 * MINUTE,
  15 * MINUTE,
  30 * MINUTE,
  HOUR,
  2 * HOUR,
  3 * HOUR,
  6 * HOUR,
  12 * HOUR,
  DAY,
  2 * DAY,
  7 * DAY,
  14 * DAY,
  30 * DAY,
  90 * DAY,
  365 * DAY,
];

function decimalStep(least: number, factors = [1, 2, 5, 10]): number {
  const power = 10 ** Math.floor(Math.log10(least));
  for (const factor of factors) if (factor * power >= least * 0.999999) return factor * power;
  return 10 * power;
}

function multiples(low: number, high: number, step: number): number[] {
  if (!(step > 0) || !Number.isFinite(step)) return [];
  const ticks: number[] = [];
  const first = Math.ceil(low / step - 1e-9);
  for (let at = first; at * step <= high + step * 1e-9 && ticks.length < 100; at++) {
    const tick = at * step;
    ticks.push(tick === 0 ? 0 : Number(tick.toPrecision(15)));
  }
  return ticks;
}

/** Ticks of a linear value axis, at most about `most` of them. */
export function valueTicks(low: number, high: number, most: number, unit = ''): number[] {
  const least = ((high / 2 - low / 2) / Math.max(1, most)) * 2;
  if (!(least > 0) || !Number.isFinite(least)) return [low];
  if (isBytes(unit) && least >= 1024) {
    const power = 1024 ** Math.floor(Math.log2(least) / 10);
    const factor = 2 ** Math.ceil(Math.log2(least / power));
    return multiples(low, high, power * factor);
  }
  return multiples(low, high, decimalStep(least, [1, 2, 2.5, 5, 10]));
}

/** Ticks of a logarithmic axis: whole powers, and 2 and 5 or more between where there is room. */
export function logTicks(low: number, high: number, most: number): number[] {
  const [from, to] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const inside = (ticks: number[]) => ticks.filter((t) => t >= low * 0.999999 && t <= high * 1.000001);
  const every = (factors: number[], stride = 1) => {
    const ticks: number[] = [];
    for (let power = from; power <= to && ticks.length < 400; power += stride)
      for (const f of factors) ticks.push(Number(`${f}e${power}`));
    return inside(ticks);
  };
  for (const factors of [
    [1, 2, 3, 4, 5, 6, 7, 8, 9],
    [1, 2, 3, 4, 6, 8],
    [1, 2, 3, 5],
    [1, 2, 5],
    [1, 3],
    [1],
  ]) {
    const ticks = every(factors);
    if (ticks.length >= 2 && ticks.length <= most + 1) return ticks;
  }
  const powers = every([1], Math.max(1, Math.ceil((to - from) / Math.max(1, most))));
  return powers.length >= 2 ? powers : valueTicks(low, high, most);
}

/** Labels of a logarithmic axis; each has as many digits as it needs, unless all are alike. */
export function formatLogTicks(values: number[], unit: string): string[] {
  const close = values.length > 1 && values[values.length - 1] < values[0] * 10;
  return close ? formatTicks(values, unit) : values.map((v) => formatTicks([v], unit)[0]);
}

/** Ticks of an x axis and their labels. */
export function xTicks(
  axis: Axis,
  low: number,
  high: number,
  most: number,
  zone: Zone,
): [ticks: number[], labels: string[]] {
  const least = (high - low) / Math.max(1, most);
  if (axis === 'step') {
    const step = Math.max(1, decimalStep(least));
    const ticks = multiples(low, high, step);
    return [ticks, ticks.map(formatCount)];
  }
  const unit = axis === 'time' ? 1 : 1000;
  // A clock time with milliseconds is twice as long as one without.
  const room = axis === 'time' && least < SECOND ? least * 2 : least * unit;
  const step = TIME_STEPS.find((s) => s >= room) ?? decimalStep(room / DAY) * DAY;
  const ticks = multiples(low, high, step / unit);
  return [
    ticks,
    axis === 'time' ? formatTimeTicks(ticks, step, zone) : formatRelativeTicks(ticks, step / unit),
  ];
}
