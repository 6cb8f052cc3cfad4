/** What the timeline says of times, processes and spans. */
import { formatCount, formatValue, THIN } from '../lib/number';
import { PHASES } from '../lib/phases';
import { shown } from '../lib/text';
import type { Lane } from './rows';

const MINUS = '\u2212';

/** A length in microseconds, such as `840 µs`, `12.30 ms` or `1.250 s`. */
export function lengthText(us: number): string {
  const size = Math.abs(us);
  const sign = us < 0 ? MINUS : '';
  if (size < 1000) return `${sign}${formatValue(Number(size.toPrecision(4)))}${THIN}µs`;
  if (size < 1e6) return `${sign}${(size / 1000).toPrecision(4)}${THIN}ms`;
  return `${sign}${formatValue(Number((size / 1e6).toPrecision(4)))}${THIN}s`;
}

/** A place on the ruler whose ticks are `step` apart, microseconds. */
export function rulerText(us: number, step: number): string {
  if (us === 0) return '0';
  const sign = us < 0 ? MINUS : '';
  const size = Math.abs(us);
  if (step >= 1e6) return `${sign}${formatCount(size / 1e6)}${THIN}s`;
  const digits = Math.max(0, -Math.floor(Math.log10(step / 1000) + 1e-9));
  const [whole, part] = (size / 1000).toFixed(digits).split('.');
  return `${sign}${formatCount(Number(whole))}${part ? `.${part}` : ''}${THIN}ms`;
}

/** A process: its rank, or its instance where it has none. */
export function laneName(lane: Pick<Lane, 'rank' | 'instance'>, limit = 24): string {
  return lane.rank === null ? shown(lane.instance || 'no name', limit) : `rank ${lane.rank}`;
}

/** A process and its host. */
export function laneText(lane: Pick<Lane, 'rank' | 'instance' | 'host'>): string {
  return lane.host ? `${laneName(lane)} on ${shown(lane.host, 32)}` : laneName(lane);
}

/** What may be written of a dotted name into a block, the longest first: its last two parts, and the last. */
export function shortNames(name: string): string[] {
  const parts = name.split('.').filter(Boolean);
  if (parts.length < 2) return [name];
  return [parts.slice(-2).join('.'), parts[parts.length - 1]];
}

/** A phase in words. */
export const phaseText = (at: number) => PHASES[at].text;

/** How far the clock of a host was moved. */
export function shiftText(host: string, ms: number): string {
  const size = Math.abs(ms) < 10 ? Math.abs(ms).toFixed(1) : formatCount(Math.abs(ms));
  return `${shown(host, 32)} shifted by ${ms < 0 ? MINUS : '+'}${size}${THIN}ms`;
}
