/**
 * Server-sent events by `fetch`, so that a refusal can be told; resumes where it was cut. A tab has one connection
 * for all that follow something: a browser opens six to a server, and tabs share them.
 */
import { effect, signal } from '@preact/signals';
import { ApiError, refusal, tokenEntered, tokenWanted } from './api';

/** One event. */
export interface StreamEvent {
  id: string;
  event: string;
  data: string;
}

/** When the connection was lost, ms; `null` while it stands or none is wanted. */
export const lostSince = signal<number | null>(null);

/** Cuts a stream of text into events; feed it pieces of any size. */
export class EventParser {
  private rest = '';
  private id = '';
  private event = '';
  private data: string[] = [];

  /** Takes more text and gives the events that are whole. */
  push(text: string): StreamEvent[] {
    const events: StreamEvent[] = [];
    const lines = (this.rest + text).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop() ?? '';
    for (const line of lines) {
      if (line === '') {
        if (this.data.length > 0)
          events.push({ id: this.id, event: this.event || 'message', data: this.data.join('\n') });
        this.event = '';
        this.data = [];
        continue;
      }
      const colon = line.indexOf(':');
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
      if (field === 'id') this.id = value;
      else if (field === 'event') this.event = value;
      else if (field === 'data') this.data.push(value);
    }
    return events;
  }
}

const LONGEST_WAIT_MS = 10_000;
/** What nobody follows any more is sent for so long: the next page may want it again. */
const LEFT_MS = 1000;

/** Whether the server will say no again, whoever asks once more; 401 is asked about, and 429 passes. */
const isFinal = (error: unknown) =>
  error instanceof ApiError &&
  error.status >= 400 &&
  error.status < 500 &&
  ![401, 408, 429].includes(error.status);

/** Somebody who wants news. */
interface Follower {
  topics: string[];
  take: (event: StreamEvent) => void;
  /** Whether it does without. */
  optional: boolean;
}

const followers = new Set<Follower>();
/** Topics that the server has agreed to. */
const agreed = new Set<string>();
let connection: AbortController | null = null;
/** What the connection is about. */
let asked = '';
let lastId = '';
let attempt = 0;
let timer: ReturnType<typeof setTimeout> | undefined;
/** When the timer ends, by `performance.now()`. */
let due = Infinity;

const wanted = () => [...new Set([...followers].flatMap((f) => f.topics))].sort().join(',');

/** Looks at the connection in a while, or sooner where that is planned. */
function later(ms: number): void {
  const at = performance.now() + ms;
  if (at >= due) return;
  clearTimeout(timer);
  due = at;
  timer = setTimeout(look, ms);
}

function stop(): void {
  clearTimeout(timer);
  due = Infinity;
  connection?.abort();
  connection = null;
}

/** Sees to it that the connection is about what is wanted. */
function look(): void {
  due = Infinity;
  const topics = wanted();
  if (document.hidden || tokenWanted.peek() || topics === '') return;
  if (connection && topics === asked) return;
  stop();
  asked = topics;
  connection = new AbortController();
  void connect(topics, connection);
}

async function connect(topics: string, controller: AbortController): Promise<void> {
  try {
    const headers = {
      accept: 'text/event-stream',
      ...(lastId ? { 'last-event-id': lastId } : {}),
    };
    const url = `/api/tg/v1/stream?topics=${encodeURIComponent(topics)}`;
    const answer = await fetch(url, { headers, signal: controller.signal, cache: 'no-store' });
    if (!answer.ok || !answer.body) throw await refusal(answer);
    lostSince.value = null;
    attempt = 0;
    for (const topic of topics.split(',')) agreed.add(topic);
    const parser = new EventParser();
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done || controller.signal.aborted) break;
      for (const event of parser.push(value)) deliver(event);
    }
  } catch (error) {
    // Told by `lostSince`; asked again below.
    if (!controller.signal.aborted && isFinal(error) && doWithout()) {
      connection = null;
      later(0);
      return;
    }
  }
  if (controller.signal.aborted) return;
  connection = null;
  if (tokenWanted.value) return;
  lostSince.value ??= Date.now();
  later(Math.min(LONGEST_WAIT_MS, 500 * 2 ** attempt++));
}

/** Lets those go that can do without what was refused: those whose topics it never agreed to, if any. */
function doWithout(): boolean {
  const optional = [...followers].filter((f) => f.optional);
  const refused = optional.filter((f) => f.topics.some((topic) => !agreed.has(topic)));
  for (const follower of refused.length > 0 ? refused : optional) followers.delete(follower);
  return optional.length > 0;
}

/** What an event is about, as a topic. */
function topicOf({ event, data }: StreamEvent): string {
  if (event !== 'run') return event;
  return `run:${(JSON.parse(data) as { run_id: string }).run_id}`;
}

function deliver(event: StreamEvent): void {
  if (event.id) lastId = event.id;
  if (event.event === 'ping') return;
  const topic = topicOf(event);
  for (const { topics, take } of [...followers]) if (topics.includes(topic)) take(event);
}

document.addEventListener('visibilitychange', () => {
  if (document.hidden) stop();
  else later(0);
});

// Who has logged in may see more than who asked before, or is somebody else.
effect(() => {
  if (tokenEntered.value === 0) return;
  stop();
  agreed.clear();
  later(0);
});

/**
 * Follows `topics` until the returned function is called; stands still while the tab is hidden. A page that
 * also asks by itself may be `optional` about it: a refusal is the end of it, and nothing is lost.
 */
export function follow(topics: string, take: (event: StreamEvent) => void, optional = false): () => void {
  const follower = { topics: topics.split(','), take, optional };
  followers.add(follower);
  later(0);
  return () => {
    followers.delete(follower);
    if (followers.size > 0) {
      later(LEFT_MS);
      return;
    }
    stop();
    lastId = '';
    attempt = 0;
    lostSince.value = null;
  };
}
