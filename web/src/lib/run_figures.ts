/** Figures of the runs on the screen: one question for a screen, asked anew while runs go on. */
import { signal } from '@preact/signals';
import type { Figure } from '../health/answers';
import type { RunRow } from './answers';
import { askJson, isAbort } from './api';
import { paced } from './pace';

/** What the list shows of a run beside its row. */
export interface RunFigures {
  run_id: string;
  gpus: Figure;
  gpu_model: string | null;
  tokens_per_second: Figure;
  mfu_ratio: Figure;
  ettr_ratio: Figure;
  usd: Figure;
}

interface Answer {
  runs: RunFigures[];
  /** What the server did not reach in time. */
  later: string[];
}

/** The server answers no more at once. */
const ASKED_MAX = 100;
/** The server reckons whole series anew as often at most. */
const EVERY_MS = 15_000;
/** The server has looked at all that came after as long. */
const LATE_MS = 60_000;
const KEPT = 1000;

/** Holds the newest figures. */
export class FigureList {
  private readonly kept = new Map<string, { figures: RunFigures; version: string; at: number }>();
  private readonly drawn = signal(0);
  private wanted: RunRow[] = [];
  private readonly controller = new AbortController();
  private busy = false;
  private readonly pace = paced(() => this.load(), EVERY_MS);

  /** The figures of a row; `undefined` until they are there. */
  of(row: RunRow): RunFigures | undefined {
    void this.drawn.value;
    return this.kept.get(row.run_id)?.figures;
  }

  /** Tells which rows are on the screen. */
  want(rows: RunRow[]): void {
    this.wanted = rows;
    // What was never told is asked for at once, what only went on waits for its turn.
    if (rows.some((row) => !this.kept.has(row.run_id))) queueMicrotask(() => void this.load());
    else if (rows.some((row) => this.outdated(row))) this.pace.ask();
  }

  /** Calls off what is under way. */
  end(): void {
    this.controller.abort();
    this.pace.end();
  }

  private outdated(row: RunRow): boolean {
    const kept = this.kept.get(row.run_id);
    if (!kept) return true;
    return Date.now() - kept.at >= EVERY_MS && (kept.version !== versionOf(row) || !isSettled(row, kept.at));
  }

  private async load(): Promise<void> {
    if (this.busy || this.controller.signal.aborted) return;
    if (document.hidden) return this.pace.ask();
    const rows = this.wanted.filter((row) => this.outdated(row)).slice(0, ASKED_MAX);
    if (rows.length === 0) return;
    this.busy = true;
    let again = false;
    try {
      const query = new URLSearchParams(rows.map((row) => ['run_id', row.run_id]));
      const answer = await askJson<Answer>(`runs/figures?${query}`, { signal: this.controller.signal });
      const versions = new Map(rows.map((row) => [row.run_id, versionOf(row)]));
      for (const figures of answer.runs) {
        const { run_id } = figures;
        this.kept.delete(run_id);
        this.kept.set(run_id, { figures, version: versions.get(run_id) ?? '', at: Date.now() });
      }
      again = answer.runs.length > 0;
      for (const id of this.kept.keys()) {
        if (this.kept.size <= KEPT) break;
        this.kept.delete(id);
      }
      this.drawn.value = this.drawn.peek() + 1;
    } catch (error) {
      // The columns stay as they are; the list itself tells what is wrong.
      if (isAbort(error)) return;
    } finally {
      this.busy = false;
    }
    // Rows that came on the screen meanwhile, and those that were not reached.
    if (again && this.wanted.some((row) => !this.kept.has(row.run_id))) await this.load();
    else if (this.wanted.some((row) => !isSettled(row, Date.now()))) this.pace.ask();
  }
}

/** Whether figures told at `at` stay: the run is over, and all that came of it had been looked at. */
const isSettled = (row: RunRow, at: number) =>
  row.state !== 'running' && at - (row.last_time_ms ?? 0) > LATE_MS;
const versionOf = (row: RunRow) => `${row.state} ${row.points}`;
