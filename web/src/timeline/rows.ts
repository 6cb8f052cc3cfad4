/** Spans as rows that can be drawn: one or more for each process, each sorted by start. */
import { phaseAt } from '../lib/phases';
import type { LaneAnswer, SpansAnswer } from './answer';

/** Spans that do not overlap, by start; times in microseconds from the origin. */
export interface Row {
  start: Float64Array;
  end: Float64Array;
  /** Greatest end up to here: sorted even where spans overlap after all. */
  reach: Float64Array;
  /** Place of each in the columns of the answer. */
  span: Uint32Array;
}

/** A process and its rows, the outermost first. */
export interface Lane extends LaneAnswer {
  rows: Row[];
}

/** Everything that was read. */
export interface Spans {
  answer: SpansAnswer;
  lanes: Lane[];
  start: Float64Array;
  end: Float64Array;
  /** Place of each span's name's phase in `PHASES`. */
  phase: Uint8Array;
  row: Uint8Array;
  /** First start and last end, microseconds. */
  from: number;
  to: number;
  /** What belongs to the step: its iterations, and what stands before them; all where no step is shown. */
  home: { from: number; to: number };
  /** What times count from: the first start of the step, nanoseconds since the epoch. */
  origin: bigint;
}

/** Rows of one lane; what nests deeper lies in the last one. */
export const ROWS_MAX = 24;
/** Clocks of clients count microseconds: spans may overlap by one without being side by side. */
const TOUCH_US = 1.001;

/** Puts an answer into rows. */
export function spansOf(answer: SpansAnswer): Spans {
  const { spans } = answer;
  const count = spans.lane.length;
  const zero = zeroOf(answer);
  const start = Float64Array.from(spans.start_us, (at) => at - zero);
  const end = Float64Array.from(start, (from, at) => from + Math.max(0, spans.length_us[at]));
  const phaseOf = answer.phases.map(phaseAt);
  const phase = Uint8Array.from(spans.name, (name) => phaseOf[name]);
  const row = new Uint8Array(count);
  const members: number[][] = answer.lanes.map(() => []);
  for (let at = 0; at < count; at++) members[spans.lane[at]]?.push(at);
  const lanes = answer.lanes.map((lane, at) => ({
    ...lane,
    rows: rowsOf(members[at], { start, end, row, depth: spans.depth }),
  }));
  let [from, to] = [Infinity, -Infinity];
  for (let at = 0; at < count; at++) {
    if (start[at] < from) from = start[at];
    if (end[at] > to) to = end[at];
  }
  const origin = BigInt(answer.origin_ns) + BigInt(Math.round(zero * 1000));
  const home = homeOf(answer, start, end) ?? { from, to };
  return { answer, lanes, start, end, phase, row, from, to, home, origin };
}

/** Where the step begins, microseconds from the answer's origin: what it lies in may have begun hours ago. */
function zeroOf({ step, spans }: SpansAnswer): number {
  let zero = Infinity;
  if (step !== null)
    spans.iteration.forEach((of, at) => {
      if (of === step && spans.start_us[at] < zero) zero = spans.start_us[at];
    });
  return Number.isFinite(zero) ? zero : 0;
}

/** From what stands before the first iteration of a step to the end of the last. */
function homeOf(
  { step, spans }: SpansAnswer,
  start: Float64Array,
  end: Float64Array,
): { from: number; to: number } | null {
  let [from, to] = [0, -Infinity];
  spans.iteration.forEach((of, at) => {
    if (of === step && end[at] > to) to = end[at];
  });
  if (step === null || !(to > 0)) return null;
  for (let at = 0; at < start.length; at++) if (end[at] <= 0 && start[at] < from) from = start[at];
  return { from, to };
}

interface Columns {
  start: Float64Array;
  end: Float64Array;
  row: Uint8Array;
  depth: number[];
}

/** Each span goes to the first row from its depth on where it overlaps none. */
function rowsOf(members: number[], { start, end, row, depth }: Columns): Row[] {
  members.sort((a, b) => start[a] - start[b] || depth[a] - depth[b] || end[b] - end[a]);
  const rows: number[][] = [];
  const ends: number[] = [];
  for (const at of members) {
    let to = Math.min(Math.max(0, depth[at]), ROWS_MAX - 1);
    while (to < ROWS_MAX - 1 && (ends[to] ?? -Infinity) > start[at] + TOUCH_US) to++;
    while (rows.length <= to) {
      rows.push([]);
      ends.push(-Infinity);
    }
    rows[to].push(at);
    ends[to] = Math.max(ends[to], end[at]);
    row[at] = to;
  }
  return rows.map((spans) => {
    const of: Row = {
      start: Float64Array.from(spans, (at) => start[at]),
      end: Float64Array.from(spans, (at) => end[at]),
      reach: new Float64Array(spans.length),
      span: Uint32Array.from(spans),
    };
    let far = -Infinity;
    of.end.forEach((value, at) => {
      far = Math.max(far, value);
      of.reach[at] = far;
    });
    return of;
  });
}

/** The first of sorted values that is greater than `than`; their number where none is. */
export function firstAfter(values: Float64Array, than: number): number {
  let [low, high] = [0, values.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > than) high = middle;
    else low = middle + 1;
  }
  return low;
}
