/** The Alerts page: what was read, what is chosen, and how both are kept together. */
import { batch, computed, effect, signal } from '@preact/signals';
import { askRange, type RangeAnswer, type Series } from '../explore/answer';
import { gridOf } from '../explore/span';
import { FleetRange } from '../fleet/range';
import { param, setParams } from '../lib/address';
import { ApiError, isAbort, tokenEntered } from '../lib/api';
import { firing, tellDuty } from '../lib/duty';
import {
  type Alert,
  askBacktest,
  askDeliveries,
  askHistory,
  askRule,
  askRules,
  askSilences,
  askSummary,
  type Backtest,
  type DeliveriesAnswer,
  type HistoryAnswer,
  type Rule,
  type RuleDetail,
  type Silence,
  type Summary,
} from './answers';
import { lookedQuery, STRIP_QUERY, STRIP_STEPS, stripsOf } from './strip';
import { keeper, type Row, rowsOf, SECTIONS } from './words';

/** Tabs of the page. */
export const TABS = ['firing', 'pending', 'silenced', 'history', 'rules'] as const;
/** One of them. */
export type AlertTab = (typeof TABS)[number];

/** Ranges of a back-test, and the one that is shown first. */
export const TESTED = ['1d', '3d', '14d'] as const;
/** Evaluations of a back-test at most. */
const TEST_STEPS = 720;
const DAY_MS = 86_400_000;
/** Messages that are shown under the rule. */
const DELIVERIES = 20;

/** What the strips show. */
export interface Strips {
  answer: RangeAnswer;
  by: Map<string, Series[]>;
  looked: Series | null;
}

/** What a rule would have done. */
export interface Tried {
  rule: string;
  from: number;
  to: number;
  seconds: number;
  answer: Backtest;
}

/** All of it. */
export class Alerts {
  readonly range = new FleetRange('6h');
  readonly summary = signal<Summary | null>(null);
  readonly summaryError = signal<unknown>(null);
  readonly rules = signal<Rule[]>([]);
  readonly rulesError = signal<unknown>(null);
  readonly strips = signal<Strips | null>(null);
  readonly silences = signal<Silence[] | null>(null);
  readonly silencesError = signal<unknown>(null);
  readonly deliveries = signal<DeliveriesAnswer | null>(null);
  readonly deliveriesError = signal<unknown>(null);
  readonly history = signal<HistoryAnswer | null>(null);
  readonly historyError = signal<unknown>(null);
  readonly detail = signal<{ rule: string; answer: RuleDetail | null } | null>(null);
  readonly tried = signal<Tried | null>(null);
  readonly triedError = signal<unknown>(null);
  /** Rows that are unfolded. */
  readonly open = signal<ReadonlySet<string>>(new Set());

  readonly tab = computed<AlertTab>(() => TABS.find((t) => t === param('tab')) ?? 'firing');
  readonly filter = computed(() => param('f'));
  readonly rows = computed(() => rowsOf(this.summary.value?.groups ?? [], keeper(this.filter.value)));
  /** Rows as they stand on the page: the tab of what fires shows the others below. */
  readonly shown = computed<Row[]>(() => {
    const tab = this.tab.value;
    return SECTIONS.filter((s) => tab === 'firing' || tab === s).flatMap((s) => this.rows.value.get(s)!);
  });
  /** The chosen row; the first one where the address names none. */
  readonly row = computed<Row | null>(() => {
    const rows = this.shown.value;
    const wanted = param('sel');
    const found = wanted && rows.find((r) => r.alerts.some((a) => a.fingerprint === wanted));
    return found || (param('rule') ? null : (rows[0] ?? null));
  });
  /** The chosen alert. */
  readonly alert = computed<Alert | null>(() => {
    const row = this.row.value;
    return row?.alerts.find((a) => a.fingerprint === param('sel')) ?? row?.alerts[0] ?? null;
  });
  /** The rule of the panel; empty for none. */
  readonly ruleName = computed(() => param('rule') || (this.alert.value?.rule ?? ''));
  readonly rule = computed(() => this.rules.value.find((r) => r.name === this.ruleName.value) ?? null);
  readonly byName = computed(() => new Map(this.rules.value.map((r) => [r.name, r])));
  /** How long a back-test looks back, ms. */
  readonly tests = computed(() => TESTED.find((t) => t === param('test')) ?? TESTED[0]);

  /** What is asked for; reading it follows every part of it. */
  readonly question = computed(() =>
    JSON.stringify([this.range.span.value, this.range.live.value, this.tab.value, tokenEntered.value]),
  );

  private controller = new AbortController();
  private ruleController = new AbortController();
  private readonly stopRule = effect(() => {
    const [rule, known] = [this.ruleName.value, this.rule.value !== null];
    void this.tests.value;
    void tokenEntered.value;
    if (rule) queueMicrotask(() => void this.loadRule(rule, known));
  });

  /** Reads everything; the old picture stays until the new one is there. */
  async load(): Promise<void> {
    this.controller.abort();
    this.controller = new AbortController();
    const { signal: stop } = this.controller;
    this.range.moveOn();
    const take = <T>(answer: Promise<T>, set: (value: T) => void, error: { value: unknown } | null) =>
      answer.then(
        (value) =>
          batch(() => {
            if (stop.aborted) return;
            set(value);
            if (error) error.value = null;
          }),
        (reason: unknown) => {
          if (error && !isAbort(reason)) error.value = reason;
        },
      );
    const { from, to } = this.range.range.peek();
    const tab = this.tab.peek();
    await Promise.all([
      take(
        askSummary(stop),
        (summary) => {
          this.summary.value = summary;
          tellDuty(firing, summary.firing);
        },
        this.summaryError,
      ),
      take(askRules(stop), (rules) => (this.rules.value = rules), this.rulesError),
      take(this.askStrips(stop), (strips) => (this.strips.value = strips), null),
      take(
        askDeliveries(DELIVERIES, null, stop),
        (all) => (this.deliveries.value = all),
        this.deliveriesError,
      ),
      take(askSilences(stop), (all) => (this.silences.value = all), this.silencesError),
      tab === 'history' &&
        take(askHistory(from, to, null, stop), (all) => (this.history.value = all), this.historyError),
    ]);
  }

  private async askStrips(stop: AbortSignal): Promise<Strips> {
    const { from, to } = this.range.range.peek();
    const step = Math.max(1000, Math.ceil((to - from) / STRIP_STEPS / 1000) * 1000);
    const grid = gridOf({ from, to }, step);
    const [answer, looked] = await Promise.all([
      askRange(STRIP_QUERY, grid, step, stop),
      askRange(lookedQuery(step), grid, step, stop).catch(() => null),
    ]);
    if (looked) this.range.fit([looked]);
    return { answer, by: stripsOf(answer), looked: looked?.series[0] ?? null };
  }

  /** Reads a rule's tests, and what it would have done. */
  async loadRule(name: string, known: boolean): Promise<void> {
    this.ruleController.abort();
    this.ruleController = new AbortController();
    const { signal: stop } = this.ruleController;
    if (this.detail.peek()?.rule !== name) this.detail.value = null;
    if (this.tried.peek()?.rule !== name) this.tried.value = null;
    const asked = askRule(name, stop).then(
      (answer) => (this.detail.value = { rule: name, answer }),
      (error: unknown) => {
        if (!isAbort(error)) this.detail.value = { rule: name, answer: null };
      },
    );
    await asked;
    if (stop.aborted || (!known && this.detail.peek()?.answer === null)) return;
    const { from, to, seconds } = testedRange(this.tests.peek());
    try {
      const answer = await askBacktest({ rule: name }, from, to, seconds, stop);
      if (!stop.aborted)
        batch(() => {
          this.tried.value = { rule: name, from, to, seconds, answer };
          this.triedError.value = null;
        });
    } catch (error) {
      if (!isAbort(error)) this.triedError.value = error;
    }
  }

  /** Chooses an alert. */
  select(alert: Alert): void {
    setParams({ sel: alert.fingerprint, rule: null });
  }

  /** Folds or unfolds a row. */
  toggle(key: string): void {
    const next = new Set(this.open.peek());
    if (!next.delete(key)) next.add(key);
    this.open.value = next;
  }

  /** Calls off everything. */
  end(): void {
    this.controller.abort();
    this.ruleController.abort();
    this.stopRule();
  }
}

/** What a back-test spans, and how far apart its evaluations are. */
export function testedRange(last: string, now = Date.now()): { from: number; to: number; seconds: number } {
  const span = Number.parseInt(last, 10) * DAY_MS;
  const seconds = Math.max(15, Math.ceil(span / TEST_STEPS / 1000));
  return { from: now - span, to: now, seconds };
}

/** Whether the server has no such thing, as one that is older has not. */
export const isUnknownHere = (error: unknown) =>
  error instanceof ApiError && (error.status === 404 || error.status === 405);
