import { expect, test } from 'vitest';
import { differencesOf } from '../../src/compare/config';
import { grouped, groupsOf, parseGroup, shapeOfGroups, tracksOf } from '../../src/compare/groups';
import { distance, extremesOf, lastOf, type Outcome, type Reading } from '../../src/compare/outcome';
import type { RunDetail } from '../../src/lib/answers';
import type { Columns, PointsAnswer } from '../../src/lib/points';

const run = (id: string, attributes: Record<string, unknown>, tags: string[] = []) =>
  ({ run_id: id, run: id, attributes, tags, hosts: ['h'] }) as unknown as RunDetail;

const columns = (runId: string, values: number[], more: Partial<Columns> = {}): Columns => {
  const last = Float64Array.from(values);
  return {
    query: 0,
    runId,
    metric: 'm',
    display: 'm',
    labels: {},
    scale: '',
    attempt: 1,
    unit: '',
    last,
    min: last,
    max: last,
    count: last.map((v) => Number(!Number.isNaN(v))),
    smooth: null,
    nonFinite: [],
    total: 1,
    interval: 1,
    ...more,
  };
};

const answer = (x: number[]): PointsAnswer => ({
  axis: 'step',
  from: x[0],
  to: x[x.length - 1],
  x: Float64Array.from(x),
  series: [],
  pointsRead: 0,
  warnings: [],
});

test('only attributes that differ are listed, the configuration first; absent is a difference', () => {
  const found = differencesOf([
    run('a', { 'a/x': 1, 'config/lr': 0.1, same: 'y', toString: 'mine' }),
    run('b', { 'config/lr': 0.2, same: 'y' }),
  ]);
  expect(found).toEqual([
    { key: 'config/lr', values: ['0.1', '0.2'] },
    { key: 'a/x', values: ['1', null] },
    { key: 'toString', values: ['mine', null] },
  ]);
});

test('a group comes from tags, labels or attributes, and rubbish is each run alone', () => {
  const one = run('a', { 'config/lr': 0.1 }, ['x', 'y']);
  expect(groupsOf('none', one, {})).toEqual(['a']);
  expect(groupsOf('tag', one, {})).toEqual(['x', 'y']);
  expect(groupsOf('rank', one, { rank: '3' })).toEqual(['3']);
  expect(groupsOf('host', one, {})).toEqual(['h']);
  expect(groupsOf('attribute:config/lr', one, {})).toEqual(['0.1']);
  expect(groupsOf('attribute:toString', one, {})).toEqual(['without it']);
  expect(['tag', 'attribute:k', 'x', ''].map(parseGroup)).toEqual(['tag', 'attribute:k', 'none', 'none']);
});

test('what a restart threw away is not in the comparison', () => {
  const [track] = tracksOf([
    columns('a', [Number.NaN, Number.NaN, 7, 8], { attempt: 2 }),
    columns('a', [1, 2, 3, Number.NaN]),
  ]);
  expect(Array.from(track.last)).toEqual([1, 2, 7, 8]);
});

test('a group is its mean with a band, of those that have a sample', () => {
  const runs = new Map([run('a', {}, ['t']), run('b', {}, ['t'])].map((r) => [r.run_id, r]));
  const both = [columns('a', [1, 1e308, Number.NaN]), columns('b', [3, 1e308, 5])];
  const groups = grouped('tag', tracksOf(both), runs);
  const shape = shapeOfGroups(answer([0, 1, 2]), both, groups, (g) => `${g.name} ${g.tracks.length}`);
  expect(shape.lines.map((l) => l.key)).toEqual(['t 2']);
  expect(Array.from(shape.lines[0].raw)).toEqual([2, 1e308, 5]);
  expect([shape.lines[0].min[0], shape.lines[0].max[0], shape.lines[0].count[0]]).toEqual([1, 3, 2]);
});

test('runs that log at other places are put together on cells, and none of their extremes is lost', () => {
  const x = Array.from({ length: 1000 }, (_, at) => at);
  const odd = x.map((v) => (v % 2 ? 10 + (v === 501 ? 90 : 0) : Number.NaN));
  const even = x.map((v) => (v % 2 ? Number.NaN : 20));
  const runs = new Map([run('a', {}, ['t']), run('b', {}, ['t'])].map((r) => [r.run_id, r]));
  const both = [columns('a', odd), columns('b', even)];
  const [line] = shapeOfGroups(answer(x), both, grouped('tag', tracksOf(both), runs), (g) => g.name).lines;
  expect(line.raw.length).toBe(300);
  const middle = Array.from(line.raw).slice(2, -2);
  expect(middle.filter((v) => v === 15).length).toBeGreaterThan(290);
  expect(Math.max(...Array.from(line.max).filter(Number.isFinite))).toBe(100);
  expect(line.count.reduce((a, b) => a + b, 0)).toBe(1000);
});

test('a base tells how far the others are, in percent where that means something', () => {
  expect(distance(1.1, 1, '')).toBe('+10.00\u2009%');
  expect(distance(-2, -1, '')).toBe('\u2212100\u2009%');
  expect(distance(3, 0, '')).toBe('+3');
  expect(distance(1, 1, '')).toBe('±0');
  expect(distance(Number.NaN, 1, '')).toBe('');
});

test('the best point is named where the name tells which is better, the outermost otherwise', () => {
  const reading: Reading = { last: 'NaN', last_step: 9, min: 0.5, min_step: 1200, max: 2, max_step: null };
  const outcome = (best: 'min' | 'max' | null): Outcome =>
    ({ name: 'm', display: 'm', unit: '', best, runs: [reading] }) as Outcome;
  expect(lastOf(reading)).toBeNaN();
  expect(extremesOf(outcome('min'), reading)).toBe('best 0.5000 @ 1,200');
  expect(extremesOf(outcome('max'), reading)).toBe('best 2');
  expect(extremesOf(outcome(null), reading)).toBe('0.5000 @ 1,200 – 2');
});
