import { expect, test } from 'vitest';
import { differencesOf } from '../../src/compare/config';
import type { RunDetail } from '../../src/lib/answers';
import { alarmCount, type MissingAnswer, type MissingPlace, type MissingRow } from '../../src/lib/missing';
import { byHost, countText, ranges } from '../../src/missing/places';

const place = (host: string | null, more: Partial<MissingPlace> = {}): MissingPlace => ({
  host,
  gpu: null,
  pid: null,
  rank: null,
  ...more,
});

const row = (alarm: boolean, names: string[]): MissingRow => ({
  reason: 'r',
  text: 't',
  hint: null,
  command: null,
  since: null,
  alarm,
  metrics: names.map((display) => ({ name: display, display, unit: '' })),
  places: [],
});

test('numbers that follow each other are a range, and what is no number stays', () => {
  expect(ranges(['3', '0', '1', '2', '7', '10', '11'])).toBe('0–3, 7, 10, 11');
  expect(ranges(['1', '1'])).toBe('1');
  expect(ranges(['b', 'a', ''])).toBe(', a, b');
});

test('places are told host by host, a process by its rank where it has one', () => {
  const places = [
    place('host-10', { gpu: '1' }),
    place('host-2', { gpu: '0' }),
    place('host-2', { gpu: '1' }),
    place('host-2', { gpu: '2' }),
    place('host-3', { pid: '42', rank: '7' }),
    place('host-3', { pid: '43' }),
    place('host-4', { rank: '1' }),
    place('host-4', { rank: '2' }),
    place(null),
  ];
  expect(byHost(places)).toEqual([
    { host: '', what: '' },
    { host: 'host-2', what: 'GPU 0–2' },
    { host: 'host-3', what: 'rank 7 · process 43' },
    { host: 'host-4', what: 'ranks 1, 2' },
    { host: 'host-10', what: 'GPU 1' },
  ]);
});

test('the count says what there are several of', () => {
  expect(countText([])).toBe('');
  expect(countText([place('a')])).toBe('');
  expect(countText([place('a'), place('b')])).toBe('2 hosts');
  expect(countText([place('a', { gpu: '0' }), place('a', { gpu: '1' })])).toBe('2 GPUs');
  // Two series of one card are one card.
  expect(countText([place('a', { gpu: '0' }), place('a', { gpu: '0' })])).toBe('');
  expect(countText([place('a', { gpu: '0' }), place('b', { gpu: '0' })])).toBe('2 GPUs on 2 hosts');
  expect(countText([place('a', { gpu: '0' }), place('a')])).toBe('');
});

test('only faults are counted, each series once', () => {
  const answer: MissingAnswer = {
    run_id: '',
    expected: 14,
    present: 11,
    missing: [row(true, ['a', 'b']), row(true, ['b']), row(false, ['c'])],
    capture: [],
  };
  expect(alarmCount(answer)).toBe(2);
});

test('what processes report of their capture is no difference between runs', () => {
  const run = (text: string) =>
    ({
      run_id: text,
      run: text,
      attributes: { 'capture/host-1/rank-0': text, 'system/platform': text },
    }) as unknown as RunDetail;
  expect(differencesOf([run('a'), run('b')]).map((d) => d.key)).toEqual(['system/platform']);
});
