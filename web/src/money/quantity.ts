/** A number of the server in its unit, as a panel shows it. */
import { formatCount, formatValue, THIN } from '../lib/number';
import { formatSpan } from '../lib/time';

/** Symbols of units that the server spells out. */
const SYMBOLS: Record<string, string> = {
  seconds: 's',
  bytes: 'B',
  watts: 'W',
  joules: 'J',
  hertz: 'Hz',
  celsius: '°C',
  tokens: '',
  tokens_per_second: 'tok/s',
  'tokens/s': 'tok/s',
  tokens_per_joule: 'tok/J',
  'tokens/joule': 'tok/J',
  'tokens/J': 'tok/J',
  flops: 'FLOP/s',
  gpu_hours: 'GPU h',
  joules_per_token: 'J/token',
  requests_per_second: 'req/s',
  count: '',
  none: '',
  '1': '',
};

/** Dollars: cents where cents matter, more digits below ten cents. */
export function formatUsd(value: number): string {
  if (!Number.isFinite(value)) return formatValue(value);
  const size = Math.abs(value);
  const digits =
    size >= 1000 ? formatCount(size) : size >= 0.1 || size === 0 ? size.toFixed(2) : size.toPrecision(2);
  return `${value < 0 ? '\u2212' : ''}$${THIN}${digits}`;
}

/** What stands behind dollars: `/h`, `/Mtok` or nothing. */
function perText(unit: string): string {
  if (/hour|\/h\b/.test(unit)) return /gpu/i.test(unit) ? ' / GPU h' : ' / h';
  if (/mtok/i.test(unit)) return ' / Mtok';
  return '';
}

/** Whether a unit is money. */
const isUsd = (unit: string) => /usd|\$/i.test(unit);

/** Whether a unit is a share, written in percent. */
const isShare = (unit: string) => /^(ratio|share)$|_ratio$/.test(unit);

/** A share in percent, three digits: `31.1 %`. */
export function percent(value: number): string {
  if (!Number.isFinite(value)) return formatValue(value);
  return `${String(Number((value * 100).toPrecision(3))).replace('-', '\u2212')}${THIN}%`;
}

/** Four digits, shares in percent, spans of more than two minutes in words. */
export function quantity(value: number, unit: string): string {
  if (isUsd(unit)) return formatUsd(value) + perText(unit);
  if (isShare(unit)) return percent(value);
  const symbol = SYMBOLS[unit] ?? unit;
  if (symbol === 's' && value >= 120) return formatSpan(value);
  return formatValue(Number(value.toPrecision(4)), symbol);
}
