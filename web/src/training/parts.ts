/** The parts of a step over steps: shares that stand on each other, and what they sum up to. */
import { medianStep } from '../charts/shape';
import { PHASES } from '../lib/phases';
import type { Breakdown } from './answers';

/** What no span tells of. */
export const UNATTRIBUTED = 'unattributed';

/** A part of a step. */
export interface Part {
  key: string;
  text: string;
  /** Custom property of its colour; `null` is hatched. */
  token: string | null;
  /** Whether no span tells of it: then it is not zero but unknown. */
  absent: boolean;
  /** Share of each column's wall time, 0 to 1; NaN where there is none. */
  share: Float64Array;
  /** Seconds of all that is shown. */
  seconds: number;
  /** Share of the wall time of all that is shown. */
  whole: number;
}

/** Parts from the bottom to the top; the unattributed one is the last and always there. */
export interface Stack {
  x: Float64Array;
  parts: Part[];
  wall: Float64Array;
  /** Seconds of all columns. */
  wallSeconds: number;
  iterations: number;
  /** How wide a column is. */
  width: number;
}

const words = new Map(PHASES.map((p) => [p.key, p]));

/** Stacks what came. */
export function stackOf(breakdown: Breakdown): Stack {
  const wall = numbers(breakdown.wall_seconds);
  const counted = breakdown.count;
  // Seconds are means over a bucket's iterations: each bucket counts as often as it has iterations.
  const weighed = (values: Float64Array) =>
    values.reduce((sum, v, at) => (Number.isFinite(v) ? sum + v * (counted[at] ?? 1) : sum), 0);
  const wallSeconds = weighed(wall);
  const keys = [...breakdown.phases.filter((key) => key !== UNATTRIBUTED), UNATTRIBUTED];
  const parts = keys.map((key): Part => {
    const seconds = numbers(
      breakdown.seconds[key] ?? wall.map(() => (key === UNATTRIBUTED ? Number.NaN : 0)),
    );
    const all = weighed(seconds);
    return {
      key,
      text: key === UNATTRIBUTED ? 'unattributed' : (words.get(key)?.text ?? key),
      token: key === UNATTRIBUTED ? null : (words.get(key)?.token ?? '--peer'),
      absent: all === 0 && breakdown.switches.some((s) => s.phase === key),
      share: seconds.map((s, at) => (wall[at] > 0 ? s / wall[at] : Number.NaN)),
      seconds: all,
      whole: wallSeconds > 0 ? all / wallSeconds : Number.NaN,
    };
  });
  const x = Float64Array.from(breakdown.x);
  const usual = medianStep(x);
  return { x, parts, wall, wallSeconds, iterations: breakdown.iterations, width: usual > 0 ? usual : 1 };
}

const numbers = (values: ArrayLike<number | null>) =>
  Float64Array.from(values, (v) => (v === null ? Number.NaN : Number(v)));

/** The column that holds an x; -1 where there is none. */
export function columnAt(x: Float64Array, at: number, width: number): number {
  let [low, high] = [0, x.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x[middle] <= at) low = middle + 1;
    else high = middle;
  }
  const found = low - 1;
  return found >= 0 && at - x[found] < Math.max(width, 1e-9) ? found : -1;
}
