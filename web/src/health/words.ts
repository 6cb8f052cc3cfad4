/** Verdicts in an order and in words. */
import type { Board } from '../charts/board';
import { param } from '../lib/address';
import { formatCount } from '../lib/number';
import type { Axis } from '../lib/points';
import type { Level, Verdict } from './answers';

const LEVELS: Level[] = ['page', 'warn', 'info'];
const place = (level: Level) => (LEVELS.includes(level) ? LEVELS.indexOf(level) : LEVELS.length);

/** The worst first; of equals the one that costs most. */
export function ordered(verdicts: Verdict[]): Verdict[] {
  return verdicts.toSorted(
    (a, b) => place(a.level) - place(b.level) || (b.gain_ratio ?? 0) - (a.gain_ratio ?? 0),
  );
}

/** Classes that name ranks, so that looking at these ranks helps. */
export const namesRanks = ({ ranks }: Verdict) => ranks.length > 0;

/** Whether nothing goes on: steps say nothing then, only how far each rank came does. */
export const standsStill = ({ class: of }: Verdict) => of === 'hang';

/** The verdict that the Ranks tab is about: the one that the address opens, else the selected rank's, else the worst. */
export function inView(verdicts: Verdict[]): Verdict | null {
  const all = ordered(verdicts);
  const rank = param('rank');
  return (
    all.find((v) => v.id === param('verdict')) ??
    all.find((v) => v.ranks.some((r) => String(r) === rank)) ??
    all[0] ??
    null
  );
}

/** How sure it is, in a few words: `z 49.9 · held 4 of 4 windows`. */
export function standingText({ z, windows }: Verdict): string {
  return [
    z === null || z === undefined ? '' : `z ${z.toFixed(1)}`,
    windows ? `held ${formatCount(windows.held)} of ${formatCount(windows.of)} windows` : '',
  ]
    .filter(Boolean)
    .join(' · ');
}

/** What the numbers of a verdict are called. */
const NAMES: Record<string, string> = {
  own: 'Own step time',
  wait: 'Waited in collectives',
  step: 'Step time',
  stage: 'Step time of the stage',
  communication: 'Least wait of all ranks',
  last: 'Arrived last',
  data: 'Waited for data',
  clock: 'SM clock',
  power: 'Power',
  temperature: 'Temperature',
  thermal: 'Throttled by heat',
  power_cap: 'Throttled by power',
  pcie_width: 'PCIe width',
  pcie_generation: 'PCIe generation',
  memory_faults: 'Memory faults',
};

/** A number of a verdict by name. */
export function numberTitle(name: string): string {
  const text = NAMES[name] ?? name.replace(/_/g, ' ');
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** What is recommended, word by word. */
export const actionWords = ({ action }: Verdict) => (action?.word ?? '').split(',').filter(Boolean);

/** A verdict's span on an axis: where it began, when it was found, and where it ended; nothing where it can't be placed. */
export interface Onset {
  id: string;
  level: Level;
  text: string;
  x: number;
  found: number | null;
  end: number | null;
}

/** A verdict on an axis, `null` where it can't be placed. A step and a time are two scales of it, as far as the run's own map goes. */
export function onsetOf(board: Board, axis: Axis, verdict: Verdict): Onset | null {
  const start = board.detail.value?.started_ms ?? null;
  const map = board.stepMap.value;
  const at = (time: number | null): number | null => {
    if (time === null) return null;
    if (axis === 'time') return time;
    if (axis === 'relative') return start === null ? null : (time - start) / 1000;
    return map?.stepOf(time) ?? null;
  };
  const { id, level, claim, onset, since, cleared } = verdict;
  const step = onset?.step ?? null;
  const x = axis === 'step' && step !== null ? step : at(onset?.time ?? since);
  if (x === null) return null;
  return { id, level, text: claim.replace(/\.$/, ''), x, found: at(since), end: at(cleared) };
}

/** Verdicts on an axis. */
export function onsetsOn(board: Board, axis: Axis): Onset[] {
  const health = board.health.value;
  // What is only worth knowing is not drawn; the worst is drawn last, above the others.
  const all = [...(health?.history ?? []), ...(health?.verdicts ?? [])].filter((v) => v.level !== 'info');
  return ordered(all)
    .toReversed()
    .flatMap((v) => onsetOf(board, axis, v) ?? []);
}
