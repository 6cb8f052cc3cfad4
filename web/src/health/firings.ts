/** Alerts of a run on its axes: when each fired, and which verdict it tells of. */
import type { Board } from '../charts/board';
import { askJson } from '../lib/api';
import type { Axis } from '../lib/points';
import { type Level, type Verdict, verdictsOf } from './answers';

/** A time in which an alert fired. Times are ms since the epoch. */
export interface Firing {
  rule: string;
  labels: Record<string, string>;
  severity: string;
  /** Since when its condition held; `null` where that is not known. */
  pending_since: number | null;
  start: number;
  /** `null` where it fires still. */
  end: number | null;
  fingerprint: string;
}

/** Firings of a run that are drawn at most. */
const FIRINGS = 200;

/** Asks for those of a run, the latest first. */
export async function askFirings(runId: string, signal?: AbortSignal): Promise<Firing[]> {
  const query = new URLSearchParams({ run_id: runId, limit: String(FIRINGS) });
  return (await askJson<{ firings: Firing[] }>(`alerts/history?${query}`, { signal })).firings;
}

/** The starter rules' alerts by the class of a verdict, as a regular expression; other classes raise none. */
export const ALERTS: Record<string, string> = {
  straggler: 'Straggler(Page|Warn)',
  consistently_last: 'Straggler(Page|Warn)',
  node: 'Straggler(Page|Warn)',
  stage_imbalance: 'StageImbalance',
  slowdown: 'RunSlowdown',
  hang: 'RunHang',
  silent: 'RankSilent',
};

const RULES = new Map(Object.entries(ALERTS).map(([of, rule]) => [of, new RegExp(`^(${rule})$`)]));

/** Whether an alert tells of a verdict: by its rule, its rank where it has one, and its time. */
export function tellsOf(firing: Firing, verdict: Verdict): boolean {
  if (!RULES.get(verdict.class)?.test(firing.rule)) return false;
  const { rank } = firing.labels;
  if (rank !== undefined && verdict.ranks.length > 0 && !verdict.ranks.map(String).includes(rank))
    return false;
  const from = verdict.onset?.time ?? verdict.since ?? -Infinity;
  return (firing.end ?? Infinity) >= from && firing.start <= (verdict.cleared ?? Infinity);
}

/** The alert that tells of a verdict: one that fires still before one that ended. */
export function alertOf(board: Board, verdictId: string): Firing | null {
  const verdict = verdictsOf(board.health.value).find((v) => v.id === verdictId);
  const told = verdict ? board.firings.value.filter((firing) => tellsOf(firing, verdict)) : [];
  return told.find((firing) => firing.end === null) ?? told[0] ?? null;
}

/** A page wakes somebody, a ticket waits for the day. */
export function levelOf(severity: string): Level {
  if (severity === 'page' || severity === 'critical') return 'page';
  return severity === 'ticket' || severity === 'warning' || severity === 'warn' ? 'warn' : 'info';
}

/** A time on an axis: a step by the run's own map, the nearest one where it has none at that very time. */
export function placeOf(board: Board, axis: Axis, time: number): number | null {
  if (axis === 'time') return time;
  if (axis === 'relative') {
    const start = board.detail.value?.started_ms ?? null;
    return start === null ? null : (time - start) / 1000;
  }
  return board.stepMap.value?.nearest(time) ?? null;
}

/** Firings that lie over each other on an axis, as one band. */
export interface Band {
  from: number;
  /** Where it began to fire; before that it was pending. */
  fired: number;
  to: number | null;
  level: Level;
  firings: Firing[];
}

const LEVELS: Level[] = ['info', 'warn', 'page'];
const worse = (a: Level, b: Level) => (LEVELS.indexOf(a) > LEVELS.indexOf(b) ? a : b);

/** Bands of the firings that no verdict accounts for; `gap` is how near two of them may come. */
export function bandsOn(board: Board, axis: Axis, gap: number): Band[] {
  const verdicts = verdictsOf(board.health.value).filter((v) => v.level !== 'info');
  const alone = board.firings.value.filter((firing) => !verdicts.some((v) => tellsOf(firing, v)));
  const single = alone.flatMap((firing): Band[] => {
    const from = placeOf(board, axis, firing.pending_since ?? firing.start);
    const fired = placeOf(board, axis, firing.start);
    if (from === null || fired === null) return [];
    const to = firing.end === null ? null : placeOf(board, axis, firing.end);
    return [{ from, fired, to, level: levelOf(firing.severity), firings: [firing] }];
  });
  const bands: Band[] = [];
  for (const band of single.sort((a, b) => a.from - b.from)) {
    const last = bands.at(-1);
    if (!last || (last.to !== null && band.from > last.to + gap)) bands.push(band);
    else {
      last.to = last.to === null || band.to === null ? null : Math.max(last.to, band.to);
      last.fired = Math.min(last.fired, band.fired);
      last.level = worse(last.level, band.level);
      last.firings.push(...band.firings);
    }
  }
  return bands;
}

/** What a band is called: the rule, or how many alerts there were. */
export function bandText({ firings }: Band): string {
  const rules = [...new Set(firings.map((f) => f.rule))];
  return rules.length === 1 ? rules[0] : `${firings.length} alerts`;
}
