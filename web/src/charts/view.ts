/** How the charts of a run are looked at: read from the address, written to it. */
import { computed } from '@preact/signals';
import { param, setParams } from '../lib/address';
import type { Axis, Smooth } from '../lib/points';
import type { Range } from './range';

const AXES: Axis[] = ['step', 'relative', 'time'];

/** The page's x axis. */
export const pageAxis = computed<Axis>(() => AXES.find((a) => a === param('axis')) ?? 'step');

/** What the server smooths by; `null` for nothing. */
export const smooth = computed<Smooth | null>(() => parseSmooth(param('smooth')));

/** Reads `ema:0.9` or `window:21`. */
export function parseSmooth(text: string): Smooth | null {
  const [kind, amount] = text.split(':');
  const value = Number(amount);
  if (kind === 'ema' && value > 0 && value < 1) return { kind: 'ema', weight: value };
  if (kind === 'window' && Number.isInteger(value) && value % 2 === 1 && value > 1 && value <= 10_000)
    return { kind: 'window', size: value };
  return null;
}

/** Whether value axes are logarithmic. */
export const logAll = computed(() => param('log') === '1');
/** Charts whose axis is the other way round. */
export const logSwitched = computed(() => list('logs'));
/** Whether the min-max band is drawn. */
export const envelope = computed(() => param('env') !== '0');
/** Whether the highest and lowest percent are left out of the scale. */
export const clip = computed(() => param('clip') === '1');
/** Words that a chart's name must contain. */
export const chartFilter = computed(() => param('charts'));
/** Sections that are not as they are by default: folded or unfolded. */
export const foldSwitched = computed(() => list('fold'));

function list(name: string): string[] {
  return param(name).split(',').filter(Boolean).map(decode);
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Puts a name into a list of the address, or takes it out. */
export function toggleIn(name: string, value: string): void {
  const now = list(name);
  const next = now.includes(value) ? now.filter((v) => v !== value) : [...now, value];
  setParams({ [name]: next.map(encodeURIComponent).join(',') });
}

/** Whether a chart's value axis is logarithmic. */
export function isLog(name: string): boolean {
  return logAll.value !== logSwitched.value.includes(name);
}

// The page's own axis zooms by `from` and `to`; charts over time beside a step axis by `tfrom` and `tto`.
const keysOf = (axis: Axis): [string, string] =>
  axis === pageAxis.value ? ['from', 'to'] : ['tfrom', 'tto'];

/** The zoom of an axis; `null` for all. */
export function zoomOf(axis: Axis): Range | null {
  const [fromKey, toKey] = keysOf(axis);
  const [from, to] = [param(fromKey), param(toKey)];
  if (from === '' || to === '' || !(Number(from) < Number(to))) return null;
  return { from: Number(from), to: Number(to) };
}

const written = (value: number, axis: Axis, width: number) =>
  axis === 'relative'
    ? String(Number(value.toPrecision(12)))
    : width > 20
      ? String(Math.round(value))
      : String(Number(value.toFixed(3)));

/** Zooms an axis, and with `also` its other scale; a history entry unless it goes on from the one before. */
export function setZoom(axis: Axis, range: Range | null, goesOn = false, also?: Range | null): void {
  const changes: Record<string, string | null> = {};
  const put = (on: Axis, to: Range | null) => {
    const [fromKey, toKey] = keysOf(on);
    const width = to ? to.to - to.from : 0;
    changes[fromKey] = to ? written(to.from, on, width) : null;
    changes[toKey] = to ? written(to.to, on, width) : null;
  };
  put(axis, range);
  if (also !== undefined) put(axis === 'step' ? 'time' : 'step', also);
  setParams(changes, !goesOn);
}

/** Takes every zoom away. */
export function resetZoom(): void {
  setParams({ from: null, to: null, tfrom: null, tto: null }, true);
}

/** Sets the page's axis; zooms belong to the old one and go. */
export function setAxis(axis: Axis): void {
  setParams({ axis: axis === 'step' ? null : axis, from: null, to: null, tfrom: null, tto: null });
}
