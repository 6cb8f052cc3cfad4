/** What the timeline shows: what was asked and read, how it is looked at, and what is chosen. */
import { batch, computed, signal } from '@preact/signals';
import type { Board } from '../charts/board';
import { param, setParams } from '../lib/address';
import { isAbort } from '../lib/api';
import {
  askSpan,
  askSpans,
  isKeyOf,
  readKey,
  type SpanAnswer,
  type SpanKey,
  type SpansAnswer,
  type SpansQuestion,
  writeKey,
} from './answer';
import { readRanks } from './choice';
import { place } from './layout';
import { byRank, ownTimes, slowest } from './order';
import { firstAfter, type Row, type Spans, spansOf } from './rows';
import type { Window } from './sweep';

/** More lanes than this show one row each until they are opened. */
const OPEN_LANES = 8;
/** The address follows a gesture once it rests, ms. */
const REST_MS = 250;
/** Narrowest window, microseconds. */
const WINDOW_LEAST = 0.5;
/** All times that can be asked for, ms since the epoch. */
const ALL_TIME = { from: 0, to: 9e12 };

/** The timeline of one run. */
export class Timeline {
  /** What was read last; stays until the next is complete. */
  readonly loaded = signal<Spans | null>(null);
  readonly error = signal<unknown>(null);
  /** The span that was chosen, whole. */
  readonly detail = signal<SpanAnswer | null>(null);
  readonly detailError = signal<unknown>(null);
  /** Place of the span that the keys are on; -1 for none. */
  readonly cursor = signal(-1);
  /** Where the pointer is, microseconds. */
  readonly pointed = signal<number | null>(null);
  /** The lane that should be scrolled to; a new object each time. */
  readonly sought = signal<{ lane: number } | null>(null);
  /** Set while a gesture goes on; else the address has the window. */
  private readonly moving = signal<Window | null>(null);

  private asking: AbortController | null = null;
  /** The question that what is shown answers. */
  private answered = '';
  private askingSpan: AbortController | null = null;
  private rest: ReturnType<typeof setTimeout> | undefined;

  // Each part of the address by itself: a change of one must not put all the others together again.
  private readonly asked = {
    whole: computed(() => param('whole')),
    step: computed(() => param('step')),
    ranks: computed(() => param('ranks')),
    span: computed(() => param('span')),
    order: computed(() => param('order')),
    nest: computed(() => param('nest')),
    open: computed(() => param('open')),
    find: computed(() => param('find')),
    group: computed(() => param('group')),
    t0: computed(() => param('t0')),
    t1: computed(() => param('t1')),
  };

  constructor(readonly board: Board) {}

  /** Hosts of the run's ranks, from its sessions. */
  readonly hosts = computed(() => {
    const hosts = new Map<number, string>();
    for (const { rank, host } of this.board.detail.value?.sessions ?? [])
      if (rank !== null) hosts.set(rank, host);
    return hosts;
  });

  /** Whether all of the run is asked for, not one step. */
  readonly whole = computed(() => this.asked.whole.value === '1');

  /** The step that is asked for; `null` for the newest. */
  readonly step = computed(() =>
    /^\d{1,15}$/.test(this.asked.step.value) ? Number(this.asked.step.value) : null,
  );

  readonly choice = computed(() => readRanks(this.asked.ranks.value, this.hosts.value));

  // Sessions beat all the time; what is asked changes with the ranks alone.
  private readonly ranks = computed(() => this.choice.value.ranks);

  readonly question = computed<SpansQuestion>(() => ({
    step: this.step.value,
    range: this.whole.value ? ALL_TIME : null,
    ranks: this.ranks.value,
  }));

  /** The span that is chosen. */
  readonly chosen = computed<SpanKey | null>(() => readKey(this.asked.span.value));

  /** Its place in what was read; -1 where it is not there. */
  readonly chosenAt = computed(() => {
    const [spans, key] = [this.loaded.value, this.chosen.value];
    return spans && key ? placeOf(spans, key) : -1;
  });

  /** The step of a span that the address names without its step, and that is not in what was read. */
  readonly stepToOpen = computed<number | null>(() => {
    const [spans, key, span] = [this.loaded.value, this.chosen.value, this.detail.value?.span];
    if (!spans || !key || !span || this.chosenAt.value >= 0) return null;
    if (this.asked.step.value !== '' || this.whole.value || !isKeyOf(key, span)) return null;
    return span.iteration === spans.answer.step ? null : span.iteration;
  });

  /** Own time of each lane by phase. */
  readonly own = computed(() => (this.loaded.value ? ownTimes(this.loaded.value) : []));

  /** Who works longest in this step; `null` where nobody stands out or no step is shown. */
  readonly slow = computed(() => {
    const spans = this.loaded.value;
    if (!spans || spans.answer.step === null) return null;
    return slowest(spans.lanes, this.own.value);
  });

  /** Lanes in the order in which they are shown. */
  readonly order = computed(() => {
    const order = byRank(this.loaded.value?.lanes ?? []);
    const first = this.slow.value;
    if (!first || this.asked.order.value === 'rank') return order;
    return [first.lane, ...order.filter((lane) => lane !== first.lane)];
  });

  /** Whether lanes have all their rows unless they were switched. */
  readonly open = computed(() => {
    const wanted = this.asked.nest.value;
    return wanted === '' ? (this.loaded.value?.lanes.length ?? 0) <= OPEN_LANES : wanted === '1';
  });

  private readonly switched = computed(() => new Set(this.asked.open.value.split(',').filter(Boolean)));

  readonly placed = computed(() => {
    const lanes = this.loaded.value?.lanes ?? [];
    return place(lanes, this.order.value, (lane) => this.isOpen(lane));
  });

  /** Which spans are looked for; `null` when none are. */
  readonly lit = computed<Uint8Array | null>(() => {
    const spans = this.loaded.value;
    const [words, group] = [
      this.asked.find.value.toLowerCase().split(/\s+/).filter(Boolean),
      this.asked.group.value,
    ];
    if (!spans || (words.length === 0 && group === '')) return null;
    const { names, groups } = spans.answer;
    const fits = names.map(
      (name, at) =>
        words.every((word) => name.toLowerCase().includes(word)) &&
        (group === '' || (groups[at] ?? '-') === group),
    );
    return Uint8Array.from(spans.answer.spans.name, (name) => Number(fits[name]));
  });

  /** What of the time is shown. */
  readonly window = computed<Window>(() => this.moving.value ?? this.addressed.value);

  private readonly addressed = computed<Window>(() => {
    const [from, to] = [this.asked.t0.value, this.asked.t1.value];
    if (from === '' || to === '' || !(Number(from) < Number(to))) return this.home.value;
    return { from: Number(from) * 1000, to: Number(to) * 1000 };
  });

  /** All that was read. */
  readonly full = computed<Window>(() => {
    const spans = this.loaded.value;
    return spans && spans.from <= spans.to ? widened(spans) : { from: 0, to: 1000 };
  });

  /** What is shown at first: the step, or all. */
  readonly home = computed<Window>(() => {
    const [spans, full] = [this.loaded.value, this.full.value];
    return spans && spans.home.from <= spans.home.to ? confined(widened(spans.home), full) : full;
  });

  /** Whether nothing is zoomed. */
  readonly isHome = computed(() => this.window.value === this.home.value);

  /** Whether the newest step is followed: nothing in the address holds the page where it is. */
  readonly follows = computed(() =>
    (['step', 't0', 'span', 'whole'] as const).every((name) => this.asked[name].value === ''),
  );

  /** How a lane is named in the address. */
  private foldKey(lane: number): string {
    const { rank, instance } = this.loaded.peek()!.lanes[lane];
    return rank === null ? encodeURIComponent(instance) : String(rank);
  }

  isOpen(lane: number): boolean {
    return this.open.value !== this.switched.value.has(this.foldKey(lane));
  }

  /** Opens or closes a lane. */
  fold(lane: number): void {
    const next = new Set(this.switched.peek());
    const key = this.foldKey(lane);
    if (!next.delete(key)) next.add(key);
    setParams({ open: [...next].join(',') });
  }

  /** Shows this much of the time, within what was read. */
  show(wanted: Window): void {
    this.moving.value = wanted === this.home.peek() ? wanted : confined(wanted, this.full.peek());
    clearTimeout(this.rest);
    this.rest = setTimeout(() => this.settle(), REST_MS);
  }

  /** Writes the window into the address: one history entry for a gesture. */
  settle(): void {
    clearTimeout(this.rest);
    const now = this.moving.peek();
    if (!now) return;
    const home = now === this.home.peek();
    const digits = now.to - now.from < 100 ? 6 : 3;
    const written = (us: number) => (home ? null : String(Number((us / 1000).toFixed(digits))));
    batch(() => {
      setParams({ t0: written(now.from), t1: written(now.to) }, true);
      this.moving.value = null;
    });
  }

  /** Zooms by a factor around a time, or around the middle. */
  zoom(factor: number, around = this.pointed.peek()): void {
    const { from, to } = this.window.peek();
    const at = around !== null && around >= from && around <= to ? around : (from + to) / 2;
    this.show({ from: at - (at - from) * factor, to: at + (to - at) * factor });
  }

  /** Moves by a share of the window. */
  pan(share: number): void {
    const { from, to } = this.window.peek();
    const by = (to - from) * share;
    this.show({ from: from + by, to: to + by });
  }

  /** Brings a time into the middle. */
  centre(us: number): void {
    const { from, to } = this.window.peek();
    this.show({ from: us - (to - from) / 2, to: us + (to - from) / 2 });
  }

  /** Reads what is asked for now; what is shown already is read again only if `again`. */
  async load(again: boolean): Promise<void> {
    const question = this.question.peek();
    if (!again && this.answered === JSON.stringify(question)) return;
    this.asking?.abort();
    const asking = new AbortController();
    this.asking = asking;
    try {
      let answer = await askSpans(this.board.runId, question, asking.signal);
      // Where no span tells an iteration, all there are have to do.
      if (answer.total === 0 && answer.steps === null && !question.range) {
        const { text, switch: line } = answer;
        const all = await askSpans(this.board.runId, { ...question, range: ALL_TIME }, asking.signal);
        answer = all.total > 0 ? { ...all, text, switch: line } : answer;
      }
      if (this.asking !== asking) return;
      this.take(answer);
      // The newest step, once it is there, is that step.
      this.answered = JSON.stringify({ ...question, step: question.range ? null : answer.step });
    } catch (failure) {
      if (!isAbort(failure) && this.asking === asking) this.error.value = failure;
    }
  }

  private take(answer: SpansAnswer): void {
    // A way home that is not written yet would become a zoom into what comes.
    if (this.moving.peek() === this.home.peek()) this.settle();
    batch(() => {
      this.loaded.value = spansOf(answer);
      this.error.value = null;
      this.cursor.value = -1;
    });
  }

  /** Reads the span that is chosen. */
  async loadSpan(): Promise<void> {
    this.askingSpan?.abort();
    this.detailError.value = null;
    const key = this.chosen.peek();
    if (!key) {
      this.detail.value = null;
      return;
    }
    const asking = new AbortController();
    this.askingSpan = asking;
    try {
      const answer = await askSpan(this.board.runId, key, asking.signal);
      if (this.askingSpan === asking) this.detail.value = answer;
    } catch (failure) {
      if (isAbort(failure) || this.askingSpan !== asking) return;
      this.detail.value = null;
      this.detailError.value = failure;
    }
  }

  /** Chooses a span of what was read. */
  choose(at: number): void {
    const spans = this.loaded.peek();
    if (!spans || at < 0) return;
    this.cursor.value = at;
    setParams({ span: writeKey(keyOf(spans, at)), ...this.pinned() });
  }

  /** Chooses a span by its key, read or not. */
  chooseKey(key: SpanKey, step: number | null = null): void {
    const spans = this.loaded.peek();
    const at = spans ? placeOf(spans, key) : -1;
    if (at >= 0) {
      this.choose(at);
      this.reveal(at);
    } else
      setParams({
        span: writeKey(key),
        ...(step === null ? this.pinned() : { step: String(step), whole: null, t0: null, t1: null }),
      });
  }

  /** The step that is shown stays when something in it was chosen. */
  private pinned(): Record<string, string> {
    const step = this.loaded.peek()?.answer.step ?? null;
    return step === null || param('step') !== '' ? {} : { step: String(step) };
  }

  /** Opens another step; what was zoomed and chosen belongs to the old one. */
  openStep(step: number | 'newest' | 'whole'): void {
    const at = typeof step === 'number' ? String(step) : null;
    setParams({ step: at, whole: step === 'whole' ? '1' : null, t0: null, t1: null, span: null });
  }

  /** The step before or after. */
  turn(by: number): boolean {
    const answer = this.loaded.peek()?.answer;
    if (!answer?.steps || answer.step === null) return false;
    const next = answer.step + by;
    if (next < answer.steps.first || next > answer.steps.last) return false;
    this.openStep(next);
    return true;
  }

  /** Moves the window and the lanes so that a span is seen. */
  reveal(at: number): void {
    const spans = this.loaded.peek();
    if (!spans) return;
    const { from, to } = this.window.peek();
    const [start, end] = [spans.start[at], spans.end[at]];
    const width = to - from;
    if (end < from || start > to || end - start > width) {
      const wide = Math.max(width, (end - start) * 1.2);
      const middle = (start + end) / 2;
      this.show({ from: middle - wide / 2, to: middle + wide / 2 });
    }
    this.sought.value = { lane: spans.answer.spans.lane[at] };
  }

  /** The next or previous span of the kind that is chosen, or of those looked for; -1 where there is none. */
  nextOfKind(forward: boolean): number {
    const spans = this.loaded.peek();
    if (!spans) return -1;
    const { name } = spans.answer.spans;
    const lit = this.lit.peek();
    const now = this.keyed();
    if (!lit && now < 0) return -1;
    const fits = lit ? (at: number) => lit[at] === 1 : (at: number) => name[at] === name[now];
    return nextSpan(spans, this.order.peek(), now, forward, fits);
  }

  /** The span before or after the one that the keys are on, in its row; the first that is seen without one. */
  beside(by: 1 | -1): number {
    const [spans, now] = [this.loaded.peek(), this.keyed()];
    if (!spans) return -1;
    if (now < 0) return this.firstSeen();
    const { span } = spans.lanes[spans.answer.spans.lane[now]].rows[spans.row[now]];
    return span[span.indexOf(now) + by] ?? -1;
  }

  /** A span in the row above or below the one that the keys are on, at about its time. */
  across(by: 1 | -1): number {
    const [spans, now] = [this.loaded.peek(), this.keyed()];
    if (!spans) return -1;
    if (now < 0) return this.firstSeen();
    const { lanes, answer, start, row } = spans;
    const rows = this.order.peek().flatMap((lane) => lanes[lane].rows);
    const from = rows.indexOf(lanes[answer.spans.lane[now]].rows[row[now]]);
    for (let at = from + by; rows[at]; at += by)
      if (rows[at].span.length > 0) return nearest(rows[at], start[now]);
    return -1;
  }

  private keyed(): number {
    return this.cursor.peek() >= 0 ? this.cursor.peek() : this.chosenAt.peek();
  }

  private firstSeen(): number {
    const spans = this.loaded.peek();
    const row = spans?.lanes[this.order.peek()[0]]?.rows.find((r) => r.span.length > 0);
    return row ? nearest(row, Math.max(this.window.peek().from, row.start[0])) : -1;
  }

  /** Calls everything off. */
  end(): void {
    this.asking?.abort();
    this.askingSpan?.abort();
    clearTimeout(this.rest);
  }
}

const widened = ({ from, to }: Window): Window => {
  const margin = Math.max((to - from) * 0.01, 1);
  return { from: from - margin, to: to + margin };
};

/** Keeps a window inside what was read; gives `full` itself when it shows all. */
export function confined(wanted: Window, full: Window): Window {
  const width = Math.max(wanted.to - wanted.from, WINDOW_LEAST);
  if (!(width < (full.to - full.from) * 0.999)) return full;
  const from = Math.min(Math.max(wanted.from, full.from), full.to - width);
  return { from, to: from + width };
}

/** The span of a row that is at a time, or the next one, or the last. */
function nearest(row: Row, time: number): number {
  return row.span[Math.min(row.span.length - 1, firstAfter(row.reach, time))];
}

/** The key of a span. */
export function keyOf({ answer }: Spans, at: number): SpanKey {
  const { spans, traces, lanes } = answer;
  const { instance, incarnations } = lanes[spans.lane[at]];
  const incarnation = incarnations[spans.incarnation?.[at] ?? 0];
  return { trace: traces[spans.trace[at]], id: spans.id[at], instance, incarnation };
}

/** The place of a span by its key, the last that has it; -1 where it is not there. */
export function placeOf(spans: Spans, key: SpanKey): number {
  const ids = spans.answer.spans.id;
  for (let at = ids.lastIndexOf(key.id); at >= 0; at = at > 0 ? ids.lastIndexOf(key.id, at - 1) : -1)
    if (isKeyOf(key, keyOf(spans, at))) return at;
  return -1;
}

/** The next span that fits: in its lane by time, then in the lanes below. */
export function nextSpan(
  { answer, start, row }: Spans,
  order: number[],
  now: number,
  forward: boolean,
  fits: (at: number) => boolean,
): number {
  const { lane } = answer.spans;
  const place = new Map(order.map((of, at) => [of, at]));
  const side = forward ? 1 : -1;
  const compare = (a: number, b: number) =>
    place.get(lane[a])! - place.get(lane[b])! || start[a] - start[b] || row[a] - row[b] || a - b;
  let best = -1;
  for (let at = 0; at < lane.length; at++) {
    if (at === now || !fits(at)) continue;
    if (now >= 0 && compare(at, now) * side <= 0) continue;
    if (best < 0 || compare(at, best) * side < 0) best = at;
  }
  return best;
}
