/** The Inference page: what is chosen, what was read, and where the cursor is. */
import { batch, computed, effect, signal } from '@preact/signals';
import { confine, drawable, type Range } from '../charts/range';
import { askProm, askRange, type RangeAnswer } from '../explore/answer';
import { gridOf, parseDuration, type Span, writeSpan } from '../explore/span';
import { askEvents, type FleetEvent } from '../fleet/answers';
import { FleetRange } from '../fleet/range';
import { laneStep } from '../fleet/use_history';
import { param, path, setParams } from '../lib/address';
import { isAbort, tokenEntered } from '../lib/api';
import { now } from '../lib/clock';
import { Palette } from '../lib/colour';
import type { Axis } from '../lib/points';
import { parseRoute } from '../lib/route';
import {
  askDescribed,
  askEngines,
  askPage,
  askScraped,
  type Described,
  type EnginesAnswer,
  type Model,
  type Page,
  type Scraped,
} from './answers';
import {
  type Bounds,
  boundsOf,
  boundsQuestion,
  CHARTS,
  COMPARED,
  type Pictures,
  picturesOf,
  questionsOf,
  replicaQuestion,
} from './charts';
import { ordered, parseOrder, sorted } from './words';

/** The table tells of the end of the range: of so much at most. */
const TABLE_MS = 5 * 60_000;
/** Steps of a chart at most. */
const STEPS = 360;
/** The least a rate is computed over, ms; a target that is scraped more rarely needs more. */
const WINDOW_MS = 60_000;
/** Intervals of a target in a rate's window. */
const INTERVALS = 4;
const EVENTS_MAX = 200;
const SETTLE_MS = 100;

/** Each replica's own line of one figure. */
export interface Split {
  model: string;
  key: string;
  answer: RangeAnswer;
}

const LINES = new Map(
  CHARTS.flatMap((chart) => [...chart.lines, ...(chart.bars ? [chart.bars] : [])]).map((l) => [l.what, l]),
);

const onTime = <T>(made: () => T): Record<Axis, T> => ({ step: made(), time: made(), relative: made() });

/** Everything on the page hangs on this. */
export class Inference {
  readonly range = new FleetRange();
  /** The model of the address; `null` where it names none. */
  readonly named = computed(() => {
    const route = parseRoute(path.value);
    return route.page === 'inference' ? route.model : null;
  });
  readonly split = computed(() => param('split') === 'replicas');
  /** What replicas are compared by. */
  readonly by = computed(() => COMPARED.find((c) => c.key === param('by')) ?? COMPARED[0]);
  /** What is searched in the vocabulary. */
  readonly search = computed(() => param('q'));
  /** The target whose page is compared; the first one that answers where the address names none of the model's. */
  readonly instance = computed(() => {
    const replicas = this.chosen.value?.replicas ?? [];
    const wanted = replicas.find((r) => r.instance === param('target'));
    return (wanted ?? replicas.find((r) => r.up) ?? replicas[0])?.instance ?? null;
  });

  readonly engines = signal<EnginesAnswer | null>(null);
  readonly enginesError = signal<unknown>(null);
  readonly scraped = signal<Scraped[]>([]);
  readonly pictures = signal<Pictures | null>(null);
  readonly picturesError = signal<unknown>(null);
  /** Bounds of the chosen model's buckets. */
  readonly bounds = signal<Bounds>(new Map());
  readonly replicas = signal<Split | null>(null);
  readonly replicasError = signal<unknown>(null);
  readonly events = signal<FleetEvent[]>([]);
  /** The page that was compared, `null` where none was there. */
  readonly page = signal<{ instance: string; page: Page | null } | null>(null);
  readonly pageError = signal<unknown>(null);
  readonly described = signal<ReadonlyMap<string, Described>>(new Map());

  readonly cursor = onTime(() => signal<number | null>(null));
  readonly settled = onTime(() => signal<number | null>(null));
  readonly pinned = signal(false);
  /** A log axis where the chart does not begin with one, and the other way round. */
  readonly logs = signal<ReadonlySet<string>>(new Set());

  /** How the table is sorted; `null` for those first that need a look. */
  readonly order = computed(() => parseOrder(param('sort')));
  /** Models as they are listed. */
  readonly models = computed(() => sorted(this.engines.value?.models ?? [], this.order.value));
  /** The one that needed a look first when the page was opened: charts don't change under the reader. */
  private readonly first = signal<string | null>(null);
  readonly chosen = computed<Model | null>(() => {
    const wanted = this.named.value ?? this.first.value;
    return this.models.value.find((m) => m.model === wanted) ?? null;
  });
  /** Targets that are down: engines, and what nobody has ever seen a page of. */
  readonly down = computed(() => {
    const engines = this.engines.value?.targets ?? [];
    const known = new Set(engines.map((t) => t.instance));
    return {
      engines: engines.filter((t) => !t.up),
      others: this.scraped.value.filter((t) => t.health === 'down' && !known.has(t.labels.instance ?? '')),
    };
  });
  /** Seconds since the newest sample of the chosen model. */
  readonly age = computed(() => {
    const newest = Math.max(0, ...(this.chosen.value?.replicas ?? []).map((r) => r.since ?? 0));
    return newest === 0 ? null : Math.max(0, (now.value - newest) / 1000);
  });
  /** The interval of the chosen model's targets, ms. */
  readonly interval = computed(() => {
    const own = new Set(this.chosen.value?.replicas.map((r) => r.instance));
    const found = this.scraped.value.filter((t) => own.has(t.labels.instance ?? ''));
    return Math.max(0, ...found.map((t) => parseDuration(t.scrapeInterval) ?? 0)) || null;
  });

  private palette = new Palette();
  private controller = new AbortController();
  private unzoomed: Span | null = null;
  private settling: ReturnType<typeof setTimeout> | undefined;
  private readonly stopSettling = effect(() => {
    void this.cursor.time.value;
    this.settling ??= setTimeout(() => {
      this.settling = undefined;
      this.settled.time.value = this.cursor.time.peek();
    }, SETTLE_MS);
  });

  /** What is asked for; reading it follows every part of it. */
  readonly question = computed(() =>
    JSON.stringify([
      this.named.value,
      this.range.span.value,
      this.range.live.value,
      this.split.value && this.by.value.key,
      param('target'),
      tokenEntered.value,
    ]),
  );

  /** Reads the models, then what hangs on the chosen one; the old picture stays until the new one is there. */
  async load(): Promise<void> {
    this.controller.abort();
    this.controller = new AbortController();
    const { signal: stop } = this.controller;
    this.range.moveOn();
    const range = this.range.range.peek();
    const to = Math.round(range.to);
    const from = Math.max(Math.round(range.from), to - TABLE_MS);
    if (this.described.peek().size === 0)
      askDescribed(stop).then(
        (found) => (this.described.value = found),
        () => {},
      );
    const scraped = askScraped(stop).catch(() => []);
    try {
      const engines = await askEngines(from, to, this.named.peek(), stop);
      const targets = await scraped;
      if (stop.aborted) return;
      batch(() => {
        this.engines.value = engines;
        if (!engines.models.some((m) => m.model === this.first.peek()))
          this.first.value = ordered(engines.models)[0]?.model ?? null;
        this.scraped.value = targets;
        this.enginesError.value = null;
      });
    } catch (error) {
      if (!isAbort(error)) this.enginesError.value = error;
      return;
    }
    const model = this.chosen.peek();
    if (model) await this.around(model.model, range, stop);
  }

  /** The distance of the charts' steps, and what a rate is computed over. */
  private grid(range: Range): { step: number; window: string } {
    const step = laneStep(range, STEPS);
    const least = Math.max(WINDOW_MS, INTERVALS * (this.interval.peek() ?? 0));
    return { step, window: `${Math.ceil(Math.max(least, 2 * step) / 1000)}s` };
  }

  private async around(model: string, range: Range, stop: AbortSignal): Promise<void> {
    const { step, window } = this.grid(range);
    const grid = gridOf(range, step);
    const span = { from: Math.round(range.from), to: Math.round(range.to) };
    const instance = this.instance.peek();
    const { key } = this.by.peek();
    const take = <T>(answer: Promise<T>, set: (value: T) => void, error: { value: unknown } | null) =>
      answer.then(
        (value) =>
          batch(() => {
            set(value);
            if (error) error.value = null;
          }),
        (reason: unknown) => {
          if (error && !isAbort(reason)) error.value = reason;
        },
      );
    const charts = Promise.all(questionsOf(model, window).map((q) => askRange(q, grid, step, stop)));
    await Promise.all([
      take(
        charts,
        (all) => {
          this.pictures.value = picturesOf(model, window, all);
          this.range.fit(all);
        },
        this.picturesError,
      ),
      take(
        askEvents({ kind: 'engine', ...span, limit: EVENTS_MAX }, stop),
        (all) => (this.events.value = all.events),
        null,
      ),
      take(
        askProm<{ result: { metric: Record<string, string> }[] }>(
          'query',
          { query: boundsQuestion(model, window), time: String(grid.to / 1000) },
          stop,
        ),
        ({ data }) => (this.bounds.value = boundsOf(data.result)),
        null,
      ),
      instance !== null &&
        take(
          askPage(instance, span.to, stop),
          (page) => (this.page.value = { instance, page }),
          this.pageError,
        ),
      this.split.peek() &&
        take(
          askRange(replicaQuestion(model, key, window), grid, step, stop),
          (answer) => (this.replicas.value = { model, key, answer }),
          this.replicasError,
        ),
    ]);
  }

  /** What a metric measures; a histogram is told by its parts. */
  describe(metric: string): Described | undefined {
    const all = this.described.value;
    return all.get(metric) ?? all.get(`${metric}_bucket`);
  }

  /** Colour slot of a line: fixed for what is named, in their order for reasons. */
  slot(labels: Record<string, string>): number {
    const known = LINES.get(labels.what ?? '');
    return known ? known.slot : this.palette.slot(labels.reason ?? JSON.stringify(labels)) - 1;
  }

  /** Dash of a line that has one of its own. */
  dash(labels: Record<string, string>): number[] | undefined {
    return LINES.get(labels.what ?? '')?.dash;
  }

  /** Whether the axis of a chart is logarithmic. */
  isLog(id: string, usual: boolean): boolean {
    return this.logs.value.has(id) !== usual;
  }

  /** Switches the axis of a chart. */
  toggleLog(id: string): void {
    const next = new Set(this.logs.peek());
    if (!next.delete(id)) next.add(id);
    this.logs.value = next;
  }

  /** Puts the cursor of all charts at a time. */
  point(_axis: Axis, x: number | null): void {
    this.cursor.time.value = x;
  }

  /** What the charts span. */
  rangeOf(_axis: Axis): Range {
    return drawable(this.range.range.value);
  }

  /** Zooms in, or out. */
  zoom(_axis: Axis, range: Range | null, goesOn = false): void {
    if (!range) {
      this.resetZoom();
      return;
    }
    this.unzoomed ??= this.range.span.peek();
    setParams(writeSpan(confine(range, { from: 0, to: Date.now() + 86_400_000 }) ?? range), !goesOn);
  }

  /** Goes back to the range before the first zoom. */
  resetZoom(): void {
    const before = this.unzoomed;
    this.unzoomed = null;
    if (before && 'last' in before) this.range.choose(`-${before.last}`, null);
    else setParams(before ? writeSpan(before) : { from: null, to: null }, true);
  }

  /** Calls off everything. */
  end(): void {
    this.controller.abort();
    clearTimeout(this.settling);
    this.stopSettling();
  }
}
