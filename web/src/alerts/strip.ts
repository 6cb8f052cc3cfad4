/** The strip of an alert: when it was pending, fired, was silenced, and when nobody looked. */
import type { RangeAnswer, Series } from '../explore/answer';
import { groupBy } from '../lib/group';
import type { Alert, Silence } from './answers';

/** What a piece of a strip tells. */
export type Piece = 'pending' | 'firing' | 'silenced' | 'absent';

/** A piece, in shares of the range. */
export interface Segment {
  kind: Piece;
  from: number;
  to: number;
}

/** What is asked for. */
export const STRIP_QUERY = 'ALERTS';
/** Something that the server counts whenever it looks at rules, by how often it stores that. */
export const lookedQuery = (step: number) =>
  `max(present_over_time(truegauge_rule_evaluations_total[${Math.max(60, Math.ceil(step / 1000))}s]))`;
/** Pieces of a strip at most. */
export const STRIP_STEPS = 180;

const NOT_OF_ALERT = new Set(['__name__', 'alertstate', 'alertname']);

/** Labels by which a series is an alert's. */
function identity(labels: Record<string, string>, rule: string): string {
  const rest = Object.entries(labels).filter(([name]) => !NOT_OF_ALERT.has(name));
  return JSON.stringify([rule, rest.sort(([a], [b]) => (a < b ? -1 : 1))]);
}

/** Series of `ALERTS` by the alert that they tell of. */
export function stripsOf(answer: RangeAnswer): Map<string, Series[]> {
  return groupBy(answer.series, (s) => identity(s.labels, s.labels.alertname ?? ''));
}

/** The series of some alerts; an alert may have labels that the server puts on what it tells others. */
export function ofAlerts(strips: Map<string, Series[]>, alerts: Alert[]): Series[] {
  return alerts.flatMap((a) => strips.get(identity(a.labels, a.rule)) ?? likeOf(strips, a));
}

/** The series with most of an alert's labels and no other. */
function likeOf(strips: Map<string, Series[]>, alert: Alert): Series[] {
  let [best, most]: [Series[], number] = [[], 0];
  for (const all of strips.values()) {
    const { labels } = all[0];
    if (labels.alertname !== alert.rule) continue;
    const own = Object.entries(labels).filter(([name]) => !NOT_OF_ALERT.has(name));
    if (own.length >= most && own.every(([name, value]) => alert.labels[name] === value))
      [best, most] = [all, own.length];
  }
  return best;
}

/** Runs of steps for which `is` holds, as pieces. */
function runs(steps: number, is: (at: number) => boolean, kind: Piece): Segment[] {
  const found: Segment[] = [];
  for (let at = 0; at < steps; at++) {
    if (!is(at)) continue;
    const last = found.at(-1);
    if (last && last.to * steps > at - 0.5) last.to = (at + 1) / steps;
    else found.push({ kind, from: at / steps, to: (at + 1) / steps });
  }
  return found;
}

/** When a silence begins to cover an alert; `null` where none is known. */
export function silencedSince(alerts: Alert[], silences: Silence[]): number | null {
  const ids = new Set(alerts.flatMap((a) => a.silenced_by));
  const starts = silences.filter((s) => ids.has(s.id)).map((s) => s.starts_at);
  return starts.length > 0 ? Math.min(...starts) : null;
}

/** The pieces of a strip over an answer's range. */
export function segmentsOf(
  answer: RangeAnswer,
  own: Series[],
  looked: Series | null,
  silenced: number | null,
): Segment[] {
  const steps = answer.x.length;
  const inState = (state: string, at: number) =>
    own.some((s) => s.labels.alertstate === state && s.present[at] > 0);
  const fires = (at: number) => inState('firing', at);
  const isQuiet = (at: number) => silenced !== null && answer.x[at] >= silenced;
  const pends = (at: number) => !fires(at) && inState('pending', at);
  // A series that is nowhere says nothing of when nobody looked.
  const blind = looked !== null && looked.samples > 0;
  return [
    ...runs(steps, (at) => blind && looked.present[at] === 0, 'absent'),
    ...runs(steps, (at) => pends(at) && !isQuiet(at), 'pending'),
    ...runs(steps, (at) => fires(at) && !isQuiet(at), 'firing'),
    ...runs(steps, (at) => isQuiet(at) && (fires(at) || pends(at)), 'silenced'),
  ];
}

/**
 * The pieces with that of now: what began after the last step of the answer is told by the alert itself. A range
 * that ended before it began has none of it.
 */
export function untilNow(
  pieces: Segment[],
  kind: Piece,
  since: number,
  { from, to }: { from: number; to: number },
): Segment[] {
  if (since > to || pieces.some((p) => p.kind === kind)) return pieces;
  return [...pieces, { kind, from: Math.max(0, since - from) / (to - from), to: 1 }];
}

const WORDS: Record<Piece, string> = {
  firing: 'firing',
  pending: 'pending',
  silenced: 'silenced',
  absent: 'nobody looked',
};

/** A strip in words, for those who hear it. */
export function stripText(
  segments: Segment[],
  from: number,
  to: number,
  time: (ms: number) => string,
): string {
  if (segments.length === 0) return 'nothing recorded in this range';
  const at = (share: number) => time(from + share * (to - from));
  return segments
    .toSorted((a, b) => a.from - b.from)
    .slice(0, 12)
    .map((s) => `${WORDS[s.kind]} ${at(s.from)} to ${at(s.to)}`)
    .join(', ');
}
