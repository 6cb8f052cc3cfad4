/** Whose spans come first: where one rank works longer than the others, it does. */
import { PHASES } from '../lib/phases';
import { excess, ratiosOf } from '../ranks/ratio';
import { firstAfter, type Lane, type Spans } from './rows';

/** Time of each lane by phase, microseconds: a span's own, without what lies within it or outside the step. */
export function ownTimes({ lanes, phase, home }: Spans): Float64Array[] {
  return lanes.map(({ rows }) => {
    const own = new Float64Array(PHASES.length);
    rows.forEach(({ start, end, span }, at) => {
      for (let one = 0; one < span.length; one++) {
        const length = Math.min(end[one], home.to) - Math.max(start[one], home.from);
        if (length <= 0) continue;
        own[phase[span[one]]] += length;
        const around = parentOf(rows.slice(0, at), start[one], end[one]);
        if (around !== null) own[phase[around]] -= length;
      }
    });
    return own.map((value) => Math.max(0, value));
  });
}

/** The innermost span of these rows that a time lies in. */
function parentOf(rows: Lane['rows'], from: number, to: number): number | null {
  for (let at = rows.length - 1; at >= 0; at--) {
    const { start, end, reach, span } = rows[at];
    const one = firstAfter(reach, from);
    if (one < span.length && start[one] <= from && to <= end[one] + 1) return span[one];
  }
  return null;
}

/** The lane that works longer than the others, and how much longer. */
export interface Slowest {
  lane: number;
  /** Its own work to the median of the others. */
  ratio: number;
}

const WAITING = PHASES.findIndex((p) => p.key === 'communication');
/** Fewer processes than this have no usual distance. */
const LANES_LEAST = 3;

/** Who works longest, where that is far outside what is usual: work is all but communication, since the others wait. */
export function slowest(lanes: Lane[], own: Float64Array[]): Slowest | null {
  if (lanes.length < LANES_LEAST) return null;
  const values = Float64Array.from(own, (times) => times.reduce((sum, t) => sum + t, 0) - times[WAITING]);
  const grid = {
    ranks: lanes.map((_, at) => at),
    values,
    seen: new Float64Array([0]),
    from: 0,
    to: 0,
    columns: 1,
    stepped: false,
  };
  const { of, limit } = ratiosOf(grid, 'peers');
  let first = 0;
  for (let at = 1; at < of.length; at++) if (of[at] > of[first]) first = at;
  return excess(of[first], 'high') >= limit[0] ? { lane: first, ratio: of[first] } : null;
}

/** Lanes by rank; those without one behind, by name. */
export function byRank(lanes: Lane[]): number[] {
  const places = lanes.map((_, at) => at);
  return places.sort((a, b) => {
    const [one, other] = [lanes[a], lanes[b]];
    const far = (one.rank ?? Infinity) - (other.rank ?? Infinity);
    if (far !== 0 && !Number.isNaN(far)) return far;
    return one.instance < other.instance ? -1 : Number(one.instance > other.instance);
  });
}
