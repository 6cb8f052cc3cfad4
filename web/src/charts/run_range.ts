/** What of a run is looked at, as a time: the other face of the zoom of its charts. */
import { computed, signal } from '@preact/signals';
import type { MenuItem } from '../components/menu';
import type { Ranged } from '../explore/range_control';
import { PRESETS, parseDuration, presetName } from '../explore/span';
import { verdictsOf } from '../health/answers';
import { ordered } from '../health/words';
import { now } from '../lib/clock';
import { shown } from '../lib/text';
import { formatSpan } from '../lib/time';
import type { Board } from './board';
import { confine, type Range } from './range';
import * as view from './view';

/** Verdicts and attempts that the menu leads to at most. */
const PLACES = 3;
/** What is shown around a verdict, at least, ms. */
const AROUND_MS = 60_000;

/** The range of one run. */
export class RunRange implements Ranged {
  readonly asOf = signal(Date.now());

  constructor(private readonly board: Board) {}

  /** From the run's start to its end, or to its newest point. */
  readonly full = computed<Range>(() => {
    const detail = this.board.detail.value;
    const drawn = this.board.full.time.value;
    const from = drawn?.from ?? detail?.started_ms ?? detail?.created_ms ?? 0;
    const live = detail?.state === 'running' || detail?.state === 'stale';
    const end = live ? detail?.last_time_ms : (detail?.ended_ms ?? detail?.last_time_ms);
    return { from, to: Math.max(from + 1, end ?? now.value, drawn?.to ?? 0) };
  });

  private readonly zoomed = computed<Range | null>(() => {
    if (view.pageAxis.value !== 'relative') {
      const onTime = view.zoomOf('time');
      const onStep = view.zoomOf('step');
      return onTime ?? (onStep && this.timesOf(onStep));
    }
    const zoom = view.zoomOf('relative');
    const start = this.board.detail.value?.started_ms ?? 0;
    return zoom && { from: start + zoom.from * 1000, to: start + zoom.to * 1000 };
  });

  readonly range = computed<Range>(() => this.zoomed.value ?? this.full.value);
  readonly span = computed(() => this.range.value);
  /** Whether all of the run is shown. */
  readonly whole = computed(() => view.zoomOf(view.pageAxis.value) === null && this.zoomed.value === null);
  readonly name = computed(() =>
    this.whole.value ? 'This run' : formatSpan((this.range.value.to - this.range.value.from) / 1000),
  );

  private timesOf({ from, to }: Range): Range | null {
    const map = this.board.stepMap.value;
    const [start, end] = [map?.timeOf(from) ?? null, map?.timeOf(to) ?? null];
    return start !== null && end !== null && start < end ? { from: start, to: end } : null;
  }

  /** Shows a time of the run; all of it for `null`. */
  choose = (from: string | null, to: string | null): void => {
    const wanted = from === null || to === null ? null : { from: Number(from), to: Number(to) };
    const range = wanted && confine(wanted, this.full.peek());
    if (range === null) view.resetZoom();
    else this.show(range);
  };

  private show(range: Range): void {
    const axis = view.pageAxis.peek();
    if (axis === 'time') view.setZoom('time', range);
    else if (axis === 'relative') {
      const start = this.board.detail.peek()?.started_ms ?? 0;
      view.setZoom('relative', { from: (range.from - start) / 1000, to: (range.to - start) / 1000 });
    } else {
      const map = this.board.stepMap.peek();
      const steps = map && { from: map.nearest(range.from), to: map.nearest(range.to) };
      view.setZoom('time', range, false, steps && steps.from < steps.to ? steps : null);
    }
  }

  /** What the menu offers before a range of one's own. */
  menu = (): MenuItem[] => {
    const { from, to } = this.full.peek();
    const show = (range: Range) => () => this.choose(String(range.from), String(range.to));
    const lasts = PRESETS.filter((last) => parseDuration(last)! < to - from);
    return [
      { text: 'This run', checked: this.whole.peek(), run: () => this.choose(null, null) },
      ...lasts.map((last) => ({
        text: `Its last ${presetName(last)}`,
        run: show({ from: to - parseDuration(last)!, to }),
      })),
      ...this.verdicts().map(([text, range]) => ({ text, run: show(range) })),
      ...this.attempts().map(([text, range]) => ({ text, run: show(range) })),
    ];
  };

  private verdicts(): [string, Range][] {
    const { to: end } = this.full.peek();
    const all = verdictsOf(this.board.health.peek()).filter((v) => v.level !== 'info');
    return ordered(all)
      .flatMap((verdict): [string, Range][] => {
        const from = verdict.onset?.time ?? verdict.since;
        if (from === null || from === undefined) return [];
        const to = verdict.cleared ?? end;
        const beside = Math.max(AROUND_MS, (to - from) / 4);
        return [[`Around: ${shown(verdict.claim, 40)}`, { from: from - beside, to: to + beside }]];
      })
      .slice(0, PLACES);
  }

  private attempts(): [string, Range][] {
    const detail = this.board.detail.peek();
    const all = detail?.attempts_list.filter((a) => a.started_ms !== null) ?? [];
    if (all.length < 2) return [];
    const { to } = this.full.peek();
    return all
      .slice(-PLACES)
      .reverse()
      .map((a) => [`Attempt ${a.number}`, { from: a.started_ms!, to: a.ended_ms ?? to }]);
  }
}
