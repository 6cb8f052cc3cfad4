/** The range of the fleet's pages, as the address holds it. */
import { computed, signal } from '@preact/signals';
import type { RangeAnswer } from '../explore/answer';
import type { Ranged } from '../explore/range_control';
import { parseDuration, parseSpan, presetFor, rangeOf, USUAL } from '../explore/span';
import { param, setParams } from '../lib/address';

/** Follows the clock unless the address fixes both ends or says `live=0`. */
export class FleetRange implements Ranged {
  /** What is shown when the address says nothing. */
  private readonly usual = signal('');
  private fitted = false;
  readonly asOf = signal(Date.now());
  readonly span = computed(() => parseSpan(param('from') || `-${this.usual.value}`, param('to')));
  readonly range = computed(() => rangeOf(this.span.value, this.asOf.value));
  /** Whether it moves with the clock. */
  readonly live = computed(() => 'last' in this.span.value && param('live') !== '0');

  constructor(last = '3h') {
    this.usual.value = last;
  }

  /**
   * Shows less of the past, where the address says nothing and these answers have nothing but young samples. Once
   * only: a range does not change under the reader.
   */
  fit(answers: RangeAnswer[]): void {
    const firsts = answers.flatMap(({ x, series }) =>
      series.flatMap((s) => {
        const at = s.present.indexOf(1);
        return at < 0 ? [] : x[at];
      }),
    );
    if (this.fitted || firsts.length === 0) return;
    this.fitted = true;
    const { from, to } = this.range.peek();
    const short = presetFor(to - Math.min(...firsts), to - from);
    if (short && param('from') === '') this.usual.value = short;
  }

  choose = (from: string | null, to: string | null): void => {
    // The control says nothing for the range that other pages start with.
    const wanted = from === null && to === null ? `-${USUAL}` : from;
    setParams({ from: wanted === `-${this.usual.peek()}` ? null : wanted, to }, true);
  };

  /** Lets a range that moves end now. */
  moveOn(): void {
    if (this.live.peek()) this.asOf.value = Date.now();
  }
}

/** Switches between following the clock and standing still. */
export const toggleLive = () => setParams({ live: param('live') === '0' ? null : '0' });

/** Ends of `bins` whole bins that hold a range, so that a picture which moves on does not flicker. */
export function binned(range: { from: number; to: number }, bins: number): { from: number; to: number } {
  const step = Math.max(1000, Math.ceil((range.to - range.from) / bins / 1000) * 1000);
  const to = Math.ceil(range.to / step) * step;
  return { from: to - bins * step, to };
}

/** A duration of the Prometheus API in which a rate finds two samples of agents and scrapes. */
export function rateWindow(step: number): string {
  const least = parseDuration('1m')!;
  return `${Math.ceil(Math.max(least, 2 * step) / 1000)}s`;
}
