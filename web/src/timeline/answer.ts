/** What the server answers about spans, and how it is asked. */
import type { Spelled } from '../lib/answers';
import { askJson } from '../lib/api';

/** A process with spans. */
export interface LaneAnswer {
  rank: number | null;
  instance: string;
  /** Lives of the process that its spans are of: more than one where it was started again. */
  incarnations: number[];
  host: string;
  spans: number;
  depth: number;
  /** How far the clock of its host was moved, milliseconds; `null` where that cannot be told. */
  clock_shift_ms: number | null;
}

/** Spans as columns; times are microseconds from `origin_ns`. */
export interface SpansAnswer {
  run_id: string;
  origin_ns: string;
  step: number | null;
  names: string[];
  phases: (string | null)[];
  groups: (string | null)[];
  traces: string[];
  lanes: LaneAnswer[];
  spans: {
    lane: number[];
    name: number[];
    trace: number[];
    id: string[];
    start_us: number[];
    length_us: number[];
    depth: number[];
    /** 2 is an error. */
    status: number[];
    iteration: (number | null)[];
    /** Place among the incarnations of its lane; left out where no lane has two. */
    incarnation?: number[];
  };
  total: number;
  left_out: number;
  steps: { first: number; last: number } | null;
  texts_hidden: boolean;
  switch: string | null;
  text: string | null;
}

/** A value of an attribute. */
export type AttributeValue = Spelled | boolean | string;

/** One span, whole. */
export interface SpanAnswer {
  span: {
    name: string;
    rank: number | null;
    instance: string;
    incarnation: number;
    host: string;
    trace: string;
    id: string;
    start_us: number;
    length_us: number;
    origin_ns: string;
    status: number;
    status_text: string;
    kind: string;
    /** Whether it ends before it starts. */
    reversed: boolean;
    scope: string;
    iteration: number | null;
    parent: string | null;
    attributes: [string, AttributeValue][];
    events: { at_us: number; name: string; attributes: [string, AttributeValue][] }[];
    links: { trace: string; id: string; attributes: [string, AttributeValue][] }[];
    /** Events and links that were too many to be kept. */
    parts_left_out: number;
    linked_from: (SpanKey & { name: string; rank: number | null })[];
  };
  others: { ranks: number; median_us: number; min_us: number; max_us: number } | null;
  texts_hidden: boolean;
}

/** A span's key: ranks that seed their generators alike make equal ids, and so does one that is restarted. */
export interface SpanKey {
  trace: string;
  id: string;
  instance: string;
  /** Which life of the process; `null` is the latest that has such a span. */
  incarnation: number | null;
}

/** A key as the address holds it. */
export const writeKey = ({ trace, id, instance, incarnation }: SpanKey) =>
  `${trace}.${id}${incarnation === null ? '' : `-${incarnation}`}.${instance}`;

/** Reads a key; `null` for what is none. */
export function readKey(text: string): SpanKey | null {
  const found = /^([0-9a-f]{32})\.([0-9a-f]{16})(?:-(\d{1,10}))?\.(.*)$/s.exec(text);
  if (!found) return null;
  const [, trace, id, incarnation, instance] = found;
  return { trace, id, instance, incarnation: incarnation === undefined ? null : Number(incarnation) };
}

/** Whether a key, which may leave the life open, is that of a span. */
export const isKeyOf = (key: SpanKey, span: SpanKey) =>
  key.trace === span.trace &&
  key.id === span.id &&
  key.instance === span.instance &&
  (key.incarnation === null || key.incarnation === span.incarnation);

/** Which spans are asked for. */
export interface SpansQuestion {
  /** An iteration; `null` leaves it to the server. */
  step: number | null;
  /** From and to, ms since the epoch, instead of a step. */
  range: { from: number; to: number } | null;
  /** Such as `0-7,12`; empty for all. */
  ranks: string;
}

/** Spans of one answer. */
export const SPANS_MAX = 100_000;

const pathOf = (runId: string, query: URLSearchParams) =>
  `runs/${encodeURIComponent(runId)}/timeline?${query}`;

/** Asks for spans. */
export function askSpans(runId: string, ask: SpansQuestion, signal: AbortSignal): Promise<SpansAnswer> {
  const query = new URLSearchParams({ part: 'spans', limit: String(SPANS_MAX) });
  if (ask.range) {
    query.set('from', String(Math.floor(ask.range.from)));
    query.set('to', String(Math.ceil(ask.range.to)));
  } else if (ask.step !== null) query.set('step', String(ask.step));
  if (ask.ranks) query.set('ranks', ask.ranks);
  return askJson<SpansAnswer>(pathOf(runId, query), { signal });
}

/** Asks for one span. */
export function askSpan(runId: string, key: SpanKey, signal: AbortSignal): Promise<SpanAnswer> {
  const { trace, id, instance, incarnation } = key;
  const query = new URLSearchParams({ part: 'span', trace, id, instance });
  if (incarnation !== null) query.set('incarnation', String(incarnation));
  return askJson<SpanAnswer>(pathOf(runId, query), { signal });
}
