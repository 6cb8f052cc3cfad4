/** What the server answers about spans, and how it is asked. */
import type { Spelled } from '../lib/answers';
import { askJson } from '../lib/api';

/** A process with spans. */
export interface LaneAnswer {
  rank: number | null;
  instance: string;
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
    linked_from: { trace: string; id: string; name: string; rank: number | null; instance: string }[];
  };
  others: { ranks: number; median_us: number; min_us: number; max_us: number } | null;
  texts_hidden: boolean;
}

/** A span's key: ranks that seed their generators alike make equal ids. */
export interface SpanKey {
  trace: string;
  id: string;
  instance: string;
}

/** A key as the address holds it. */
export const writeKey = ({ trace, id, instance }: SpanKey) => `${trace}.${id}.${instance}`;

/** Reads a key; `null` for what is none. */
export function readKey(text: string): SpanKey | null {
  const found = /^([0-9a-f]{32})\.([0-9a-f]{16})\.(.*)$/s.exec(text);
  return found && { trace: found[1], id: found[2], instance: found[3] };
}

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
  const query = new URLSearchParams({ part: 'span', ...key });
  return askJson<SpanAnswer>(pathOf(runId, query), { signal });
}
