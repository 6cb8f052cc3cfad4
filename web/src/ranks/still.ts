/** How far each rank came in a job that stands still: what the verdict says of its culprits, what the series say of the rest. */
import type { Culprit } from '../health/answers';
import { type MetricRow, unspell } from '../lib/answers';
import type { Crew } from './crew';

const ENTERED = 'train_collective_sequence';
const COMPLETED = 'train_collective_completed';
const STEP = /^train_step_(seconds|wait_seconds|tokens)$/;

type Numbers = Map<number, number>;

/** The latest value of a metric by group and rank. */
function latest(metrics: MetricRow[], name: string, rankOf: Crew['rankOf']): Map<string, Numbers> {
  const groups = new Map<string, Numbers>();
  for (const row of metrics) {
    const [rank, last] = row.name === name ? [rankOf(row.labels), unspell(row.last)] : [null, null];
    if (rank === null || last === null || !Number.isFinite(last)) continue;
    const group = row.labels.group ?? '';
    groups.set(group, (groups.get(group) ?? new Map<number, number>()).set(rank, last));
  }
  return groups;
}

/** The group that most ranks are inside of an operation of; of equals the one with more ranks. */
function stuckGroup(entered: Map<string, Numbers>, completed: Map<string, Numbers>): string {
  const inside = (group: string) => {
    const done = completed.get(group);
    return [...entered.get(group)!].filter(([rank, n]) => n > (done?.get(rank) ?? n)).length;
  };
  const size = (group: string) => entered.get(group)!.size;
  return (
    [...entered.keys()].toSorted(
      (a, b) => inside(b) - inside(a) || size(b) - size(a) || (a < b ? -1 : 1),
    )[0] ?? ''
  );
}

/** A row of every rank that the run's series or the verdict know of. */
export function standingOf(metrics: MetricRow[], crew: Crew, culprits: Culprit[]): Culprit[] {
  const [entered, completed] = [
    latest(metrics, ENTERED, crew.rankOf),
    latest(metrics, COMPLETED, crew.rankOf),
  ];
  const group = stuckGroup(entered, completed);
  const rows = new Map<number, Culprit>();
  const rowOf = (rank: number): Culprit => {
    const known = rows.get(rank);
    if (known) return known;
    const sequence = entered.get(group)?.get(rank) ?? null;
    const done = completed.get(group)?.get(rank) ?? null;
    const made: Culprit = {
      rank,
      host: crew.hostOf(rank) || null,
      last_step: null,
      last_step_time: null,
      sequence,
      completed: done,
      state: sequence !== null && done !== null && sequence > done ? 'waits in it' : '',
    };
    rows.set(rank, made);
    return made;
  };
  for (const { name, labels, last_step: step, last_time_ms: time } of metrics) {
    const rank = STEP.test(name) && step !== null ? crew.rankOf(labels) : null;
    if (rank === null) continue;
    const row = rowOf(rank);
    if (step! > (row.last_step ?? -1)) Object.assign(row, { last_step: step, last_step_time: time });
  }
  for (const rank of entered.get(group)?.keys() ?? []) rowOf(rank);
  for (const culprit of culprits) rows.set(culprit.rank, culprit);
  return [...rows.values()];
}
