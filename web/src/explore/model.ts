/** The Explore page: what is asked, what came, and where the cursor is. */
import { batch, computed, effect, type Signal, signal } from '@preact/signals';
import { confine, drawable, type Range } from '../charts/range';
import type { Shape } from '../charts/shape';
import { param, paramList, setParams } from '../lib/address';
import { ApiError, isAbort, tokenEntered } from '../lib/api';
import { Palette } from '../lib/colour';
import type { Axis } from '../lib/points';
import { askRange, type RangeAnswer, ranked, type Series, shapeOfRange, tellingLabels } from './answer';
import { askCensus, askMetrics, type Census, type Described } from './catalogue';
import { askExplained, type Explained } from './explain';
import { autoStep, gridOf, parseDuration, parseSpan, rangeOf, STEPS_MAX, writeSpan } from './span';

/** Series drawn for one query at most. */
export const DRAWN_MAX = 20;
/** Queries on one page at most: each is a card. */
export const QUERIES_MAX = 6;
const SETTLE_MS = 100;
/** Typing stops for so long before the server is asked about a query. */
const EXPLAIN_MS = 250;
/** Queries whose explanations are kept. */
const EXPLAINED_MAX = 60;

/** A query that was run and what came of it. */
export interface Asked {
  query: string;
  answer: Signal<Drawn | null>;
  error: Signal<unknown>;
  running: Signal<boolean>;
}

/** An answer and what is drawn of it. */
export interface Drawn extends RangeAnswer {
  /** All series that came, the highest last value first. */
  order: Series[];
  /** Labels that tell them apart. */
  telling: string[];
  shape: Shape;
}

/** The letter of a query. */
export const letterOf = (at: number) => String.fromCharCode(65 + at);

const onTime = <T>(made: () => T): Record<Axis, T> => ({ step: made(), time: made(), relative: made() });

/** Holds the page's state; queries, range and step are those of the address. */
export class Explore {
  /** What is typed: as many as there are boxes. */
  readonly drafts = signal<string[]>(paramList('q').length > 0 ? paramList('q') : ['']);
  readonly asked = signal<Asked[]>([]);
  readonly census = signal<Census | null>(null);
  readonly metrics = signal<Described[] | null>(null);
  readonly catalogueError = signal<unknown>(null);
  /** What is known of queries, by their text. */
  readonly explained = signal<ReadonlyMap<string, Explained>>(new Map());
  /** What was known last of each box. */
  readonly latest = signal<Explained[]>([]);
  /** Metrics that are described, by name. */
  readonly known = computed(
    () =>
      new Map<string, Described>(
        [...(this.metrics.value ?? []), ...[...this.explained.value.values()].flatMap((e) => e.metrics)].map(
          (m) => [m.name, m],
        ),
      ),
  );
  /** The end of a range that moves: when it was asked last. */
  readonly asOf = signal(Date.now());
  readonly span = computed(() => parseSpan(param('from'), param('to')));
  readonly range = computed(() => rangeOf(this.span.value, this.asOf.value));
  /** The step that the address fixes; `null` for one that suits the range. */
  readonly fixedStep = computed(() => parseDuration(param('step')));
  readonly step = computed(() => this.fixedStep.value ?? autoStep(this.range.value));
  readonly cursor = onTime(() => signal<number | null>(null));
  readonly settled = onTime(() => signal<number | null>(null));
  readonly pinned = signal(false);

  private palette = new Palette();
  private controller = new AbortController();
  private unzoomed: { from: string | null; to: string | null } | null = null;
  private settling: ReturnType<typeof setTimeout> | undefined;
  private readonly stopSettling: () => void;
  private explaining = new AbortController();
  private readonly stopExplaining: () => void;

  constructor() {
    this.stopExplaining = effect(() => {
      const texts = this.drafts.value;
      void tokenEntered.value;
      this.explaining.abort();
      this.explaining = new AbortController();
      const { signal: stop } = this.explaining;
      const first = this.explained.peek().size === 0;
      setTimeout(() => void this.explain(texts, stop), first ? 0 : EXPLAIN_MS);
    });
    this.stopSettling = effect(() => {
      void this.cursor.time.value;
      this.settling ??= setTimeout(() => {
        this.settling = undefined;
        this.settled.time.value = this.cursor.time.peek();
      }, SETTLE_MS);
    });
  }

  /** What the address asks. */
  queries(): string[] {
    return paramList('q')
      .filter((q) => q.trim() !== '')
      .slice(0, QUERIES_MAX);
  }

  /** Whether a draft is what was run. */
  ran(at: number): boolean {
    return this.asked.value[at]?.query === this.drafts.value[at];
  }

  /** Runs what is typed. */
  run(): void {
    const queries = this.drafts.peek().filter((q) => q.trim() !== '');
    this.drafts.value = queries.length > 0 ? queries : [''];
    const same = JSON.stringify(queries) === JSON.stringify(this.queries());
    setParams({ q: queries }, !same);
    if (same) void this.ask();
  }

  /** Types a query into the box at `at`. */
  type(at: number, text: string): void {
    this.drafts.value = this.drafts.peek().with(at, text);
  }

  /** Puts a query without a mistake into the box at `at`; one that was run is run again. */
  mend(at: number, query: string): void {
    const ran = this.ran(at);
    this.type(at, query);
    if (ran) this.run();
  }

  /** Puts a query where nothing is typed yet, or instead of all, and runs it. */
  open(query: string): void {
    const free = this.drafts.peek().indexOf('');
    this.drafts.value = free < 0 ? [query] : this.drafts.peek().with(free, query);
    setParams({ view: null });
    this.run();
  }

  /** Asks everything anew; to stay `live`, only what was not refused: a mistake is one until it is changed. */
  async ask(live = false): Promise<void> {
    this.controller.abort();
    this.controller = new AbortController();
    const { signal: stop } = this.controller;
    const queries = this.queries();
    const before = this.asked.peek();
    if (JSON.stringify(before.map((a) => a.query)) !== JSON.stringify(queries)) {
      this.palette = new Palette();
      this.asked.value = queries.map(
        (query) =>
          before.find((a) => a.query === query) ?? {
            query,
            answer: signal(null),
            error: signal(null),
            running: signal(false),
          },
      );
    }
    this.asOf.value = Date.now();
    const step = this.step.peek();
    const grid = gridOf(this.range.peek(), step);
    const wanted = this.asked.peek().filter((asked) => !live || !isRefusal(asked.error.peek()));
    await Promise.all(wanted.map((asked) => this.askOne(asked, grid, step, stop)));
  }

  private async askOne(asked: Asked, grid: Range, step: number, stop: AbortSignal): Promise<void> {
    asked.running.value = true;
    try {
      const steps = (grid.to - grid.from) / step;
      if (steps > STEPS_MAX)
        throw new Error(`this range has ${Math.round(steps)} steps, at most ${STEPS_MAX} are read`);
      const answer = await askRange(asked.query, grid, step, stop);
      const order = ranked(answer.series);
      const telling = tellingLabels(answer.series);
      const drawn = order.slice(0, DRAWN_MAX);
      const shape = shapeOfRange(answer, drawn, telling);
      for (const line of shape.lines) this.slot(line.labels);
      batch(() => {
        asked.answer.value = { ...answer, order, telling, shape };
        asked.error.value = null;
        asked.running.value = false;
      });
    } catch (error) {
      if (isAbort(error)) return;
      asked.error.value = error;
      asked.running.value = false;
    }
  }

  private async explain(texts: string[], stop: AbortSignal): Promise<void> {
    if (stop.aborted) return;
    const before = this.explained.peek();
    const wanted = texts.filter((text) => text.trim() !== '' && !before.has(text));
    try {
      const answers = await Promise.all(wanted.map((text) => askExplained(text, stop)));
      const kept = [...before].slice(-EXPLAINED_MAX);
      const all = new Map([...kept, ...wanted.map((text, at) => [text, answers[at]] as const)]);
      batch(() => {
        this.explained.value = all;
        this.latest.value = texts.flatMap((text) => all.get(text) ?? []);
      });
    } catch {
      // Called off, or a server that does not answer: what is known stays.
    }
  }

  /** Reads what is stored and what it costs. */
  async readCatalogue(): Promise<void> {
    try {
      this.census.value = await askCensus();
      this.metrics.value = (await askMetrics()).metrics;
      this.catalogueError.value = null;
    } catch (error) {
      if (!isAbort(error)) this.catalogueError.value = error;
    }
  }

  /** Colour slot of a series: the same labels have the same colour in all queries. */
  slot(labels: Record<string, string>): number {
    const { __name__: _name, ...others } = labels;
    return this.palette.slot(JSON.stringify(others)) - 1;
  }

  /** Puts the cursor of all charts at a time. */
  point(_axis: Axis, x: number | null): void {
    this.cursor.time.value = x;
  }

  /** What the charts span. */
  rangeOf(_axis: Axis): Range {
    return drawable(this.range.value);
  }

  /** Zooms in, or out. */
  zoom(_axis: Axis, range: Range | null, goesOn = false): void {
    if (!range) {
      this.resetZoom();
      return;
    }
    this.unzoomed ??= writeSpan(this.span.peek());
    setParams(writeSpan(confine(range, { from: 0, to: Date.now() + 86_400_000 }) ?? range), !goesOn);
  }

  /** Goes back to the range before the first zoom. */
  resetZoom(): void {
    setParams(this.unzoomed ?? { from: null, to: null }, true);
    this.unzoomed = null;
  }

  /** Asks for another range, chosen and not zoomed. */
  choose(from: string | null, to: string | null): void {
    this.unzoomed = null;
    setParams({ from, to }, true);
  }

  /** Calls off everything. */
  end(): void {
    this.controller.abort();
    this.explaining.abort();
    clearTimeout(this.settling);
    this.stopSettling();
    this.stopExplaining();
  }
}

/** Whether the same question would be refused again. */
function isRefusal(error: unknown): boolean {
  return error instanceof ApiError && [400, 422].includes(error.status);
}
