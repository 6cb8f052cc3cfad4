/** Sparklines of the runs on the screen: one question for a screen of like runs. */
import { signal } from '@preact/signals';
import { type Shape, shapeOf } from '../charts/shape';
import { sparkGroups } from '../components/sparkline';
import type { RunRow } from './answers';
import { isAbort } from './api';
import { paced } from './pace';
import { askPoints } from './points';

const EVERY_MS = 2000;
const KEPT = 400;

interface Kept {
  version: string;
  spark: Shape | undefined;
}

/** Holds the newest sparklines. */
export class Sparks {
  private readonly kept = new Map<string, Kept>();
  private readonly drawn = signal(0);
  private wanted: RunRow[] = [];
  private controller = new AbortController();
  private readonly pace = paced(() => this.load(), EVERY_MS);
  private asked = false;

  /** The sparkline of a row, as far as it is there. */
  of(row: RunRow): Shape | undefined {
    void this.drawn.value;
    const kept = this.kept.get(row.run_id);
    return kept?.version.startsWith(`${row.metric?.name}\u0000`) ? kept.spark : undefined;
  }

  /** Tells which rows are on the screen. */
  want(rows: RunRow[]): void {
    this.wanted = rows;
    if (!rows.some((r) => this.outdated(r))) return;
    // What was never drawn is asked for at once, what only grew waits for its turn.
    if (!this.asked || rows.some((r) => r.metric && !this.kept.has(r.run_id))) {
      this.asked = true;
      queueMicrotask(() => void this.load());
    } else this.pace.ask();
  }

  /** Calls off what is under way. */
  end(): void {
    this.controller.abort();
    this.pace.end();
  }

  private outdated(row: RunRow): boolean {
    return row.metric !== null && this.kept.get(row.run_id)?.version !== version(row);
  }

  private async load(): Promise<void> {
    const rows = this.wanted.filter((r) => this.outdated(r));
    if (rows.length === 0) return;
    for (const row of rows)
      this.kept.set(row.run_id, { version: version(row), spark: this.kept.get(row.run_id)?.spark });
    if (this.controller.signal.aborted) this.controller = new AbortController();
    await Promise.all(
      sparkGroups(rows).map(async (group) => {
        try {
          const answer = await askPoints(
            {
              axis: 'step',
              from: null,
              to: null,
              buckets: group.buckets,
              smooth: null,
              queries: group.rows.map((r) => ({ run_id: r.run_id, metric: r.metric!.name, limit: 1 })),
            },
            this.controller.signal,
          );
          group.rows.forEach((row, at) => {
            const mine = answer.series.filter((s) => s.query === at);
            const spark = mine.length > 0 ? shapeOf(answer.x, mine, []) : undefined;
            this.kept.set(row.run_id, { version: version(row), spark });
          });
        } catch (error) {
          for (const row of group.rows) this.kept.delete(row.run_id);
          if (!isAbort(error)) return;
        }
      }),
    );
    for (const id of this.kept.keys()) {
      if (this.kept.size <= KEPT) break;
      this.kept.delete(id);
    }
    this.drawn.value = this.drawn.peek() + 1;
  }
}

const version = (row: RunRow) => `${row.metric?.name}\u0000${row.points}`;
