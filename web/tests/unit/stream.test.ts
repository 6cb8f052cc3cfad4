/** One connection for all that follow something. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { tokenWanted } from '../../src/lib/api';
import { follow, lostSince } from '../../src/lib/stream';

interface Connection {
  topics: string;
  lastId: string | undefined;
  signal: AbortSignal;
  send: (text: string) => void;
  refuse: (status: number) => void;
  end: () => void;
  over: boolean;
}

let open: Connection[] = [];
const ends: (() => void)[] = [];

/** Follows until the test ends. */
function listen(topics: string, optional = false): { heard: string[]; leave: () => void } {
  const heard: string[] = [];
  const leave = follow(topics, (event) => heard.push(event.event), optional);
  ends.push(leave);
  return { heard, leave };
}

beforeEach(() => {
  open = [];
  vi.useFakeTimers();
  vi.stubGlobal('fetch', (path: string, init: RequestInit) => {
    const topics = new URL(path, 'http://x').searchParams.get('topics')!;
    const headers = init.headers as Record<string, string>;
    let send!: ReadableStreamDefaultController<Uint8Array>;
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => {
        send = controller;
      },
    });
    const signal = init.signal as AbortSignal;
    return new Promise<Response>((answer, fail) => {
      const connection: Connection = {
        topics,
        lastId: headers['last-event-id'],
        signal,
        send: (text) => {
          answer(new Response(body));
          send.enqueue(new TextEncoder().encode(text));
        },
        refuse: (status) => {
          connection.over = true;
          answer(new Response('{}', { status }));
        },
        end: () => {
          connection.over = true;
          send.close();
        },
        over: false,
      };
      signal.addEventListener('abort', () => fail(new DOMException('', 'AbortError')));
      open.push(connection);
    });
  });
});

afterEach(() => {
  for (const end of ends.splice(0)) end();
  vi.useRealTimers();
  vi.unstubAllGlobals();
  tokenWanted.value = false;
});

const soon = (ms = 1) => vi.advanceTimersByTimeAsync(ms);
const live = () => open.filter((c) => !c.signal.aborted && !c.over).map((c) => c.topics);
const event = (name: string, id: number, data = '{}') => `event: ${name}\nid: ${id}\ndata: ${data}\n\n`;

test('a page and the bar share it, and each hears its own', async () => {
  const page = listen('run:7');
  const bar = listen('alerts');
  await soon();
  expect(live()).toEqual(['alerts,run:7']);
  open[0].send(event('run', 1, '{"run_id":"7"}') + event('alerts', 2) + event('run', 3, '{"run_id":"8"}'));
  await soon();
  expect([page.heard, bar.heard]).toEqual([['run'], ['alerts']]);
});

test('who comes later widens it where it was, and who leaves is waited for', async () => {
  const page = listen('runs');
  await soon();
  open[0].send(event('ping', 41));
  await soon();
  listen('alerts');
  await soon();
  expect(live()).toEqual(['alerts,runs']);
  expect(open[1].lastId).toBe('41');
  page.leave();
  await soon(500);
  expect(live()).toEqual(['alerts,runs']);
  await soon(1000);
  expect(live()).toEqual(['alerts']);
});

test('a refusal ends who can do without, and nobody else', async () => {
  const bar = listen('alerts');
  await soon();
  open[0].send(event('ping', 1));
  await soon();
  listen('fleet', true);
  await soon();
  open[1].refuse(403);
  await soon();
  expect([live(), lostSince.value]).toEqual([['alerts'], null]);
  open[2].send(event('alerts', 2));
  await soon();
  expect(bar.heard).toEqual(['alerts']);
});

test('what is cut is told of and taken up again; without followers nothing is', async () => {
  const page = listen('runs');
  await soon();
  open[0].send(event('runs', 5));
  await soon();
  open[0].end();
  await soon();
  expect(lostSince.value).not.toBeNull();
  await soon(500);
  expect([open.length, open[1].lastId]).toEqual([2, '5']);
  open[1].send(event('ping', 6));
  await soon();
  expect(lostSince.value).toBeNull();
  page.leave();
  expect(live()).toEqual([]);
  await soon(60_000);
  expect(open).toHaveLength(2);
});
