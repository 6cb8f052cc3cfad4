/** Server-sent events by `fetch`, so that a refusal can be told; resumes where it was cut. */
import { signal } from '@preact/signals';
import { ApiError, refusal, tokenWanted } from './api';

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

/** Whether the server will say no again, whoever asks once more; 401 is asked about, and 429 passes. */
const isFinal = (error: unknown) =>
  error instanceof ApiError &&
  error.status >= 400 &&
  error.status < 500 &&
  ![401, 408, 429].includes(error.status);

/**
 * Follows `topics` until the returned function is called; stands still while the tab is hidden. A page that
 * also asks by itself may be `optional` about it: a refusal is the end of it, and nothing is lost.
 */
export function follow(topics: string, take: (event: StreamEvent) => void, optional = false): () => void {
  let lastId = '';
  let ended = false;
  let attempt = 0;
  let current: AbortController | null = null;
  let timer: ReturnType<typeof setTimeout> | undefined;

  const connect = async () => {
    const controller = new AbortController();
    current = controller;
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
      const parser = new EventParser();
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        for (const event of parser.push(value)) {
          if (event.id) lastId = event.id;
          if (event.event !== 'ping') take(event);
        }
      }
    } catch (error) {
      // Told by `lostSince`; asked again below.
      if (optional && isFinal(error)) ended = true;
    }
    if (ended || controller.signal.aborted || tokenWanted.value) return;
    lostSince.value ??= Date.now();
    timer = setTimeout(connect, Math.min(LONGEST_WAIT_MS, 500 * 2 ** attempt++));
  };

  const visibility = () => {
    clearTimeout(timer);
    if (document.hidden) current?.abort();
    else connect();
  };
  document.addEventListener('visibilitychange', visibility);
  if (!document.hidden) connect();
  return () => {
    ended = true;
    clearTimeout(timer);
    current?.abort();
    lostSince.value = null;
    document.removeEventListener('visibilitychange', visibility);
  };
}
