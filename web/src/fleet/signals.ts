/** The signals that cards are coloured by: their order, which side is worse, and where the ramp ends. */
import { formatValue } from '../lib/number';
import { SHADES } from '../lib/ramp';

/** A signal as the page draws it; title, caveat and trust are the server's. */
export interface Signal {
  key: string;
  /** The word on its button. */
  text: string;
  /** The side that is the worse one: of several cards or bins it is kept. */
  worse: 'high' | 'low';
  /** Values at the two ends of the ramp; the first is what calls for no look. */
  ends: [number, number];
  /** Whether 1 lies in the middle and both sides have colours of their own. */
  diverging: boolean;
}

/** All of them, in the order of their keys 1 to 8; what misleads alone comes last. */
export const SIGNALS: Signal[] = [
  { key: 'power_ratio', text: 'power ÷ limit', worse: 'low', ends: [0, 1], diverging: false },
  { key: 'tensor', text: 'tensor active', worse: 'low', ends: [0, 1], diverging: false },
  { key: 'dram', text: 'DRAM active', worse: 'low', ends: [0, 1], diverging: false },
  { key: 'clock_vs_peers', text: 'SM clock vs peers', worse: 'low', ends: [0.9, 1.1], diverging: true },
  { key: 'throttled', text: 'throttled', worse: 'high', ends: [0, 0.5], diverging: false },
  { key: 'temperature_margin', text: 'temp. margin', worse: 'low', ends: [40, 0], diverging: false },
  { key: 'ecc', text: 'ECC errors', worse: 'high', ends: [0, 5], diverging: false },
  { key: 'busy', text: 'GPU busy', worse: 'low', ends: [0, 1], diverging: false },
];

/** The signal of a key, else the first. */
export const signalOf = (key: string): Signal => SIGNALS.find((s) => s.key === key) ?? SIGNALS[0];

/** The shade of a value; `value` is a number. */
export function shadeAt({ ends: [from, to], diverging }: Signal, value: number): number {
  const share = Math.max(0, Math.min(1, (value - from) / (to - from)));
  // Orange, the upper end of the diverging ramp, is worse: a clock below that of the peers.
  return Math.round((diverging ? 1 - share : share) * (SHADES - 1));
}

/** The worse of two values; what is absent gives way. */
export function worseOf(signal: Signal, a: number | null, b: number | null): number | null {
  if (a === null || b === null) return a ?? b;
  return signal.worse === 'low' ? Math.min(a, b) : Math.max(a, b);
}

/** The symbol of a unit that the server names; nothing for a ratio and for what is only counted. */
export function unitText(unit: string): string {
  return { ratio: '', errors: '', celsius: '°C' }[unit] ?? unit;
}

/** A value of a signal; ratios have two decimals. */
export function valueText(value: number | null, unit: string): string {
  if (value === null) return 'absent';
  if (unit === '' || unit === 'ratio') return value.toFixed(2).replace('-', '\u2212');
  return formatValue(Number(value.toPrecision(4)), unitText(unit));
}
