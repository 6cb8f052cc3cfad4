/** When and what the pages ask the server. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Board } from '../../src/charts/board';
import { shortGpu } from '../../src/components/run_columns';
import { setParams } from '../../src/lib/address';
import type { MetricRow, RunRow } from '../../src/lib/answers';
import { paced } from '../../src/lib/pace';
import { FigureList } from '../../src/lib/run_figures';
import { RunList, scopeFilter } from '../../src/lib/run_list';
import { encodePoints } from '../stories/tgp1';

interface Asked {
  path: string;
  body: { axis: string; from: number | null; queries: { metric: string }[] };
  signal: AbortSignal;
  answer: (response: Response) => void;
}

let asked: Asked[] = [];

beforeEach(() => {
  asked = [];
  vi.useFakeTimers();
  vi.stubGlobal('fetch', (path: string, init: RequestInit) => {
    const signal = init.signal as AbortSignal;
    return new Promise<Response>((answer, refuse) => {
      signal?.addEventListener('abort', () => refuse(new DOMException('', 'AbortError')));
      asked.push({ path, body: init.body ? JSON.parse(String(init.body)) : null, signal, answer });
    });
  });
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
  setParams({ from: null, to: null, smooth: null });
});

const soon = () => vi.advanceTimersByTimeAsync(1);

function metric(display: string, last_step: number | null): MetricRow {
  return {
    name: display,
    display,
    labels: {},
    scale: '',
    points: 2,
    last_step,
    last: 1,
    first_time_ms: 0,
    last_time_ms: 1,
    unit: '',
    kind: 'gauge',
    help: '',
    caveat: '',
  };
}

function pointsOf(question: Asked, value: number): Response {
  const columns = { last: [value, value], count: [1, 1] };
  const series = question.body.queries.map(({ metric: name }, query) => ({
    query,
    run_id: 'r',
    metric: name,
    display: name,
    labels: {},
    attempt: 1,
    unit: '',
    interval: 1,
    total: 1,
    columns,
    non_finite: [],
  }));
  return new Response(
    new Uint8Array(
      encodePoints({ axis: question.body.axis, from: 0, to: 9, points_read: 2 }, [0, 9], series),
    ),
  );
}

function boardOf(...metrics: MetricRow[]): Board {
  const board = new Board('r');
  board.metrics.value = metrics;
  for (const { display } of metrics) board.see(display, true, 400);
  return board;
}

test('charts that come on the screen together are one question an axis', async () => {
  boardOf(metric('loss', 9), metric('acc', 9), metric('system/x', null));
  await soon();
  expect(asked.map((a) => [a.body.axis, a.body.queries.map((q) => q.metric)])).toEqual([
    ['step', ['loss', 'acc']],
    ['time', ['system/x']],
  ]);
});

test('a zoom calls off what is under way, and the old picture stays until the new one is there', async () => {
  const board = boardOf(metric('loss', 9));
  await soon();
  asked[0].answer(pointsOf(asked[0], 1));
  await soon();
  const shown = board.state('loss').loaded;
  expect(shown.value?.shape.lines[0].raw[0]).toBe(1);
  expect(board.full.step.value).toEqual({ from: 0, to: 9 });
  setParams({ from: '2', to: '5' });
  board.want();
  await soon();
  setParams({ from: '3', to: '5' });
  board.want();
  await soon();
  expect(asked.map((a) => [a.body.from, a.signal.aborted])).toEqual([
    [null, false],
    [2, true],
    [3, false],
  ]);
  expect(shown.value?.shape.lines[0].raw[0]).toBe(1);
  asked[2].answer(pointsOf(asked[2], 7));
  await soon();
  expect(shown.value?.shape.lines[0].raw[0]).toBe(7);
  expect(board.full.step.value).toEqual({ from: 0, to: 9 });
});

test('what is there is not asked for again, unless it may have grown', async () => {
  const board = boardOf(metric('loss', 9));
  await soon();
  asked[0].answer(pointsOf(asked[0], 1));
  await soon();
  board.want();
  await soon();
  expect(asked).toHaveLength(1);
  void board.load(true);
  void board.load(true);
  await soon();
  expect(asked).toHaveLength(2);
});

test('steps and times are joined by one pair of questions, however many wait for them', async () => {
  const board = boardOf(metric('loss', 9));
  await soon();
  asked = [];
  const waiting = [board.readStepMap(), board.readStepMap(), board.readStepMap()];
  await soon();
  expect(asked.map((a) => a.body.axis)).toEqual(['step', 'time']);
  for (const question of asked) question.answer(pointsOf(question, 1));
  await Promise.all(waiting);
  expect(board.stepMap.value?.timeOf(9)).toBe(9);
  void board.readStepMap();
  await soon();
  expect(asked).toHaveLength(4);
});

test('an error is the card’s own and goes with the next answer', async () => {
  const board = boardOf(metric('loss', 9));
  await soon();
  asked[0].answer(new Response('{"error":{"message":"store is full"}}', { status: 503 }));
  await soon();
  expect(String(board.state('loss').error.value)).toContain('store is full');
  void board.load(true);
  await soon();
  asked[1].answer(pointsOf(asked[1], 1));
  await soon();
  expect(board.state('loss').error.value).toBeNull();
});

function runsAnswer(names: string[], next: string | null): Response {
  const runs = names.map((run) => ({ run_id: run, run }) as RunRow);
  return new Response(JSON.stringify({ runs, next, total: 500, matching: 500, counts: {} }));
}

test('the list keeps its later pages when the first one is read again', async () => {
  const list = new RunList();
  const many = Array.from({ length: 200 }, (_, at) => `a${at}`);
  void list.show({
    scope: { organization: '', workspace: 'w', project: 'a b' },
    filter: 'tag:x',
    state: '',
    sort: '',
    metric: '',
  });
  await soon();
  expect(new URL(asked[0].path, 'http://x').searchParams.get('filter')).toBe(
    'organization:- workspace:w project:"a b" tag:x',
  );
  asked[0].answer(runsAnswer(many, 'c1'));
  await soon();
  void list.reach(300);
  await soon();
  expect(asked[1].path).toContain('cursor=c1');
  asked[1].answer(runsAnswer(['b0', 'b1'], null));
  await soon();
  void list.refresh();
  await soon();
  asked[2].answer(runsAnswer(['new', ...many.slice(0, 199)], 'c1'));
  await soon();
  const names = list.rows.value.map((r) => r.run);
  expect([names[0], names.at(-1), names.length, new Set(names).size]).toEqual(['new', 'b1', 203, 203]);
});

test('figures are asked for once for a screen, then for what was not reached and what has grown', async () => {
  const figure = (value: number) => ({ value, unit: '', reason: null });
  const answer = (ids: string[], later: string[], value: number) =>
    new Response(
      JSON.stringify({ runs: ids.map((run_id) => ({ run_id, ettr_ratio: figure(value) })), later }),
    );
  const row = (run_id: string, points = 1) => ({ run_id, state: 'finished', points }) as RunRow;
  const list = new FigureList();
  const told = (id: string) => list.of(row(id))?.ettr_ratio.value;
  list.want([row('a'), row('b')]);
  list.want([row('a'), row('b')]);
  await soon();
  expect(asked.map((a) => a.path)).toEqual(['/api/tg/v1/runs/figures?run_id=a&run_id=b']);
  asked[0].answer(answer(['a'], ['b'], 0.5));
  await soon();
  expect([told('a'), told('b')]).toEqual([0.5, undefined]);
  expect(asked[1].path).toBe('/api/tg/v1/runs/figures?run_id=b');
  // A run that is gone is not asked for again and again.
  asked[1].answer(answer([], [], 0));
  await soon();
  expect(asked).toHaveLength(2);
  list.want([row('a', 9)]);
  await vi.advanceTimersByTimeAsync(1000);
  expect(asked).toHaveLength(2);
  await vi.advanceTimersByTimeAsync(15_000);
  list.want([row('a', 10)]);
  await vi.advanceTimersByTimeAsync(15_000);
  expect(asked.map((a) => a.path)).toContainEqual('/api/tg/v1/runs/figures?run_id=a');
  asked[2].answer(answer(['a'], [], 0.75));
  await soon();
  expect([told('a'), asked.length]).toEqual([0.75, 3]);
  list.end();
});

test('a GPU is named shortly', () => {
  const models = [
    'NVIDIA H100 80GB HBM3',
    'NVIDIA RTX A6000',
    'Tesla V100-SXM2-16GB',
    'AMD Instinct MI300X',
    'x',
  ];
  expect(models.map(shortGpu)).toEqual(['H100', 'RTX A6000', 'V100', 'MI300X', 'x']);
});

test('a scope is a filter', () => {
  expect(scopeFilter(null)).toBe('');
});

test('what is asked for often happens at its pace, and once more at the end', async () => {
  let done = 0;
  const pace = paced(() => {
    done += 1;
  }, 1000);
  for (let at = 0; at < 10; at++) pace.ask();
  await vi.advanceTimersByTimeAsync(0);
  expect(done).toBe(1);
  pace.ask();
  pace.ask();
  await vi.advanceTimersByTimeAsync(999);
  expect(done).toBe(1);
  await vi.advanceTimersByTimeAsync(1001);
  expect(done).toBe(2);
  pace.ask();
  pace.end();
  await vi.advanceTimersByTimeAsync(5000);
  expect(done).toBe(2);
});
