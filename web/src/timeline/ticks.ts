/** Ticks of the ruler: round times, not too many. */
import type { Window } from './sweep';

/** Ticks of a window, at most about `most`, and how far apart they stand; microseconds. */
export function ticksOf({ from, to }: Window, most: number): { step: number; ticks: number[] } {
  const least = (to - from) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(least));
  const step = ([1, 2, 5, 10].find((f) => f * power >= least * 0.999999) ?? 10) * power;
  const ticks: number[] = [];
  for (let at = Math.ceil(from / step - 1e-9); at * step <= to && ticks.length < 1000; at++) {
    const tick = at * step;
    ticks.push(tick === 0 ? 0 : Number(tick.toPrecision(15)));
  }
  return { step, ticks };
}
