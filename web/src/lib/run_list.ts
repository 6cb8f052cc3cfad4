/** The list of runs: pages of 200 by cursor, kept until the newer one is there. */
import { batch, signal } from '@preact/signals';
import type { RunRow, RunsAnswer, State } from './answers';
import { askJson, isAbort } from './api';
import { quoteValue } from './filter';
import type { Scope } from './route';

const PAGE = 200;

/** What is listed. */
export interface RunQuestion {
  scope: Scope | null;
  filter: string;
  state: string;
  sort: string;
  metric: string;
}

/** A scope as conditions of the filter. */
export function scopeFilter(scope: Scope | null): string {
  if (!scope) return '';
  const one = (key: string, value: string) => `${key}:${value === '' ? '-' : quoteValue(value)}`;
  return [
    one('organization', scope.organization),
    one('workspace', scope.workspace),
    one('project', scope.project),
  ].join(' ');
}

/** Holds what came so far. */
export class RunList {
  readonly rows = signal<RunRow[]>([]);
  readonly total = signal(0);
  readonly matching = signal(0);
  readonly counts = signal<Partial<Record<State, number>>>({});
  readonly warnings = signal<string[]>([]);
  readonly error = signal<unknown>(null);
  /** Whether anything has come yet. */
  readonly known = signal(false);

  private question: RunQuestion = { scope: null, filter: '', state: '', sort: '', metric: '' };
  private next: string | null = null;
  private controller: AbortController | null = null;
  private more: Promise<void> | null = null;

  /** Lists something else; the old rows stay until the new ones are there. */
  async show(question: RunQuestion): Promise<void> {
    this.question = question;
    await this.first(false);
  }

  /** Asks for the first page again and keeps what was loaded behind it. */
  refresh(): Promise<void> {
    return this.first(true);
  }

  /** Sees to it that rows up to `index` are there. */
  async reach(index: number): Promise<void> {
    while (this.next !== null && this.rows.peek().length < Math.min(index, this.matching.peek())) {
      this.more ??= this.page(this.next).finally(() => {
        this.more = null;
      });
      await this.more;
      if (this.error.peek() !== null) return;
    }
  }

  private query(cursor: string | null): string {
    const { scope, filter, state, sort, metric } = this.question;
    const query = new URLSearchParams({ limit: String(PAGE) });
    const whole = [scopeFilter(scope), filter].filter(Boolean).join(' ');
    if (whole) query.set('filter', whole);
    if (state) query.set('state', state);
    if (sort) query.set('sort', sort);
    if (metric) query.set('metric', metric);
    if (cursor) query.set('cursor', cursor);
    return `runs?${query}`;
  }

  private async first(keepTail: boolean): Promise<void> {
    this.controller?.abort();
    const controller = new AbortController();
    this.controller = controller;
    try {
      const answer = await askJson<RunsAnswer>(this.query(null), { signal: controller.signal });
      const tail = keepTail ? tailOf(this.rows.peek(), answer.runs) : [];
      batch(() => {
        this.rows.value = [...answer.runs, ...tail];
        this.total.value = answer.total;
        this.matching.value = answer.matching;
        this.counts.value = answer.counts;
        this.warnings.value = answer.warnings ?? [];
        this.error.value = null;
        this.known.value = true;
      });
      if (tail.length === 0) this.next = answer.next;
    } catch (error) {
      if (!isAbort(error)) this.error.value = error;
    }
  }

  private async page(cursor: string): Promise<void> {
    const asked = this.question;
    try {
      const answer = await askJson<RunsAnswer>(this.query(cursor));
      if (asked !== this.question) return;
      const seen = new Set(this.rows.peek().map((r) => r.run_id));
      this.rows.value = [...this.rows.peek(), ...answer.runs.filter((r) => !seen.has(r.run_id))];
      this.next = answer.next;
    } catch (error) {
      this.error.value = error;
    }
  }
}

/** What follows a new first page: the old later pages, and before them what new runs pushed out. */
function tailOf(old: RunRow[], first: RunRow[]): RunRow[] {
  if (old.length <= PAGE) return [];
  const seen = new Set(first.map((r) => r.run_id));
  const known = new Set(old.map((r) => r.run_id));
  const fresh = first.filter((r) => !known.has(r.run_id)).length;
  const gone = old.slice(0, PAGE).filter((r) => !seen.has(r.run_id));
  return [
    ...gone.slice(gone.length - Math.min(gone.length, fresh)),
    ...old.slice(PAGE).filter((r) => !seen.has(r.run_id)),
  ];
}
