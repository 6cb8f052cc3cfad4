/** What of a run is looked at, as a time. */
import { afterEach, expect, test } from 'vitest';
import { Board } from '../../src/charts/board';
import { RunRange } from '../../src/charts/run_range';
import { StepMap } from '../../src/charts/step_map';
import { shift, widen } from '../../src/explore/range_control';
import type { Health } from '../../src/health/answers';
import { param, setParams } from '../../src/lib/address';
import type { Attempt, RunDetail } from '../../src/lib/answers';
import { verdictOf } from '../stories/health';

const HOUR = 3_600_000;
const START = 1_700_000_000_000;

afterEach(() => setParams({ from: null, to: null, tfrom: null, tto: null, axis: null }));

/** Two hours: steps 0 to 100, then an hour from step 50 to 200. */
function runOf(axis: string | null): { board: Board; range: RunRange } {
  setParams({ axis });
  const board = new Board('r');
  const attempt = (number: number, from: number, to: number): Attempt => ({
    number,
    started_ms: from,
    ended_ms: to,
    job_token: '',
    restart_count: 0,
  });
  board.detail.value = {
    state: 'finished',
    started_ms: START,
    created_ms: START,
    ended_ms: START + 2 * HOUR,
    last_time_ms: START + 2 * HOUR,
    attempts_list: [attempt(1, START, START + HOUR), attempt(2, START + HOUR, START + 2 * HOUR)],
  } as RunDetail;
  const times = [0, 1, 1.1, 2].map((h) => START + h * HOUR);
  board.stepMap.value = new StepMap(Float64Array.of(0, 100, 50, 200), Float64Array.from(times));
  return { board, range: new RunRange(board) };
}

const choose = (range: RunRange, from: number, to: number) =>
  range.choose(String(START + from * HOUR), String(START + to * HOUR));
const hours = (range: RunRange) => {
  const { from, to } = range.range.value;
  return [from, to].map((time) => Number(((time - START) / HOUR).toFixed(2)));
};

test('all of it is this run, and has nothing beside it', () => {
  const { range } = runOf('time');
  expect([range.name.value, range.whole.value, hours(range)]).toEqual(['This run', true, [0, 2]]);
  shift(range, -0.5);
  expect(param('from')).toBe('');
});

test('a part of it zooms the time and the steps of that time', () => {
  const { range } = runOf(null);
  choose(range, 0.25, 0.75);
  expect([param('from'), param('to')]).toEqual(['25', '75']);
  expect([range.name.value, range.whole.value, hours(range)]).toEqual(['30 min', false, [0.25, 0.75]]);
  range.choose(null, null);
  expect([param('from'), param('tfrom'), range.whole.value]).toEqual(['', '', true]);
});

test('a time past the last step, or between two attempts, has the nearest step', () => {
  const { range } = runOf(null);
  choose(range, 0.5, 1.05);
  expect([param('from'), param('to')]).toEqual(['50', '100']);
  choose(range, 1.55, 99);
  expect(hours(range)[1]).toBe(2);
});

test('relative axes zoom in seconds, and arrows stop at the ends', () => {
  const { range } = runOf('relative');
  choose(range, 0.5, 1);
  expect([param('from'), param('to')]).toEqual(['1800', '3600']);
  shift(range, -0.5);
  expect(hours(range)).toEqual([0.25, 0.75]);
  shift(range, -9);
  expect(hours(range)).toEqual([0, 0.5]);
  widen(range, 99);
  expect(range.whole.value).toBe(true);
});

test('the menu leads to shorter ends, to what is wrong and to attempts', () => {
  const { board, range } = runOf('time');
  const verdict = verdictOf({ level: 'page', claim: 'Rank 17 is slow', cleared: null });
  verdict.onset = { step: null, time: START + 1.5 * HOUR };
  board.health.value = { verdicts: [verdict], history: [] } as unknown as Health;
  const menu = range.menu();
  expect(menu.map((item) => item.text)).toEqual([
    'This run',
    'Its last 15 min',
    'Its last 1 h',
    'Around: Rank 17 is slow',
    'Attempt 2',
    'Attempt 1',
  ]);
  menu[3].run();
  expect(hours(range)).toEqual([1.25, 2]);
  menu[5].run();
  expect(hours(range)).toEqual([0, 1]);
});
