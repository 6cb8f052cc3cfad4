/** The range of a value axis. */

/** What is drawn, as far as the range cares: columns on one x. */
export interface Extents {
  y: ArrayLike<number>;
  min: ArrayLike<number>;
  max: ArrayLike<number>;
}

/** How the range is chosen. */
export interface ExtentChoice {
  /** Count the min-max band in. */
  envelope: boolean;
  /** Leave out the lowest and the highest percent. */
  clip: boolean;
  log: boolean;
  /** Zero belongs on the axis. */
  zero: boolean;
}

const BOUND = 8e307;

function percentile(sorted: number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.round(share * (sorted.length - 1))))];
}

/** Range over what lies between `from` and `to`; `null` when nothing finite does. */
export function valueRange(
  x: ArrayLike<number>,
  lines: Extents[],
  from: number,
  to: number,
  choice: ExtentChoice,
): [low: number, high: number] | null {
  let low = Infinity;
  let high = -Infinity;
  const values: number[] = [];
  const take = (value: number) => {
    if (!Number.isFinite(value) || (choice.log && value <= 0)) return;
    if (value < low) low = value;
    if (value > high) high = value;
  };
  for (const line of lines) {
    for (let at = 0; at < x.length; at++) {
      if (x[at] < from || x[at] > to) continue;
      const value = line.y[at];
      if (choice.clip) {
        if (Number.isFinite(value) && (!choice.log || value > 0)) values.push(value);
        continue;
      }
      take(value);
      if (choice.envelope) {
        take(line.min[at]);
        take(line.max[at]);
      }
    }
  }
  if (choice.clip && values.length > 0) {
    values.sort((a, b) => a - b);
    [low, high] = [percentile(values, 0.01), percentile(values, 0.99)];
  }
  if (low > high) return null;
  return choice.log ? padLog(low, high) : padLinear(low, high, choice.zero);
}

function padLinear(low: number, high: number, zero: boolean): [number, number] {
  let [bottom, top] = [low, high];
  if (zero && bottom > 0) bottom = 0;
  if (zero && top < 0) top = 0;
  if (zero && bottom === 0 && top === 0) return [0, 1];
  if (bottom === top) {
    const half = Math.abs(bottom) * 0.05 || 1;
    return [clamp(bottom - half), clamp(top + half)];
  }
  const pad = (top / 2 - bottom / 2) * 0.1;
  return [clamp(zero && bottom === 0 ? 0 : bottom - pad), clamp(zero && top === 0 ? 0 : top + pad)];
}

function padLog(low: number, high: number): [number, number] {
  if (low === high) return [Math.max(Number.MIN_VALUE, low / 1.5), clamp(high * 1.5)];
  const pad = (high / low) ** 0.05;
  return [Math.max(Number.MIN_VALUE, low / pad), clamp(high * pad)];
}

const clamp = (value: number) => Math.min(BOUND, Math.max(-BOUND, value));

/** Whether zero belongs on the axis of such a metric: counts, rates, shares and sizes. */
export function zeroBelongs(name: string, unit: string, kind: string): boolean {
  if (kind === 'counter' || ['%', 'B', 'B/s', 'W'].includes(unit)) return true;
  return /(utili[sz]ation|_ratio|share|tokens_per|per_second|per_sec|throughput|tokens?_s$|samples_s$|accuracy|_seconds$)/.test(
    name.toLowerCase().replace(/\//g, '_'),
  );
}
