/** The System tab's reckoning: rates, spreads, who stands out, whose a card is. */
import { beforeEach, describe, expect, test } from 'vitest';
import { chartsOf } from '../../src/charts/sections';
import { StepMap } from '../../src/charts/step_map';
import { open, param } from '../../src/lib/address';
import type { MetricRow } from '../../src/lib/answers';
import type { Columns } from '../../src/lib/points';
import { stepTicks } from '../../src/system/axis_row';
import { cardKey, cardsOf, owned } from '../../src/system/cards';
import { drawnOf } from '../../src/system/drawn';
import * as look from '../../src/system/look';
import { gridOf, onGrid, spreadQuery } from '../../src/system/many';
import {
  badness,
  gapsOf,
  held,
  type Member,
  membersOf,
  outliersOf,
  rateOf,
  spreadOf,
  valueAt,
} from '../../src/system/series';
import { colours, gpuTitle, lanesOf, shownLanes } from '../../src/system/specs';
import { device, report } from '../e2e/machines';

const nan = Number.NaN;
const f = (...values: number[]) => Float64Array.from(values);

const row = (display: string, labels: Record<string, string> = {}, kind = 'gauge'): MetricRow => ({
  name: display.replace(/\//g, '_'),
  display,
  labels,
  scale: 'ML_STEP',
  points: 10,
  last_step: 9,
  last: 1,
  first_time_ms: 0,
  last_time_ms: 9000,
  unit: '',
  kind,
  help: '',
  caveat: '',
});

const column = (
  display: string,
  labels: Record<string, string>,
  last: Float64Array,
  interval = 1,
): Columns => ({
  query: 0,
  runId: 'r',
  metric: display,
  display,
  labels,
  scale: 'ML_STEP',
  attempt: 1,
  unit: '',
  last,
  min: last,
  max: last,
  count: last.map((v) => (Number.isNaN(v) ? 0 : 1)),
  smooth: null,
  nonFinite: [],
  total: 1,
  interval,
});

const member = (key: string, y: Float64Array, spacing = 1): Member => ({
  key,
  text: key,
  labels: { series: key },
  y,
  min: y,
  max: y,
  spacing,
  parts: null,
});

describe('lanes', () => {
  const gpu = { host: 'a', gpu: '0' };
  const all = lanesOf(
    chartsOf([
      row('system/gpu/utilization', gpu),
      row('system/gpu/temperature_celsius', gpu),
      row('system/gpu/temperature_margin_celsius', gpu),
      row('system/gpu/sm_clock_mhz', gpu),
      row('system/gpu/pcie_link_width', gpu),
      row('system/pressure/io_waiting_ratio', { host: 'a' }),
      row('system/cpu/utilization', { host: 'a' }),
      row('train/step_seconds', { rank: '0' }),
      row('val/loss'),
      row('loss'),
    ]),
  );

  test('context first, then the card with the misleading gauge last, then the host', () => {
    expect(all.map((l) => l.id)).toEqual([
      'loss',
      'step',
      'clock',
      'temperature',
      'pcie_link_width',
      'busy',
      'cpu',
      'pressure',
    ]);
    expect(all[0].metrics).toEqual(['loss']);
    expect(all.find((l) => l.id === 'busy')?.height).toBe(34);
  });

  test('of two readings of one thing, the better one is drawn', () => {
    expect(all.find((l) => l.id === 'temperature')?.metrics).toEqual([
      'system/gpu/temperature_margin_celsius',
    ]);
  });

  test('what is not in the table is there to be chosen, and context stays first', () => {
    expect(shownLanes(all, []).map((l) => l.id)).not.toContain('pcie_link_width');
    expect(shownLanes(all, ['pcie_link_width', 'nonsense', 'loss']).map((l) => l.id)).toEqual([
      'loss',
      'pcie_link_width',
    ]);
  });

  test('what a card lacks is called as its lane would be', () => {
    expect(
      ['utilization', 'power_limit_ratio', 'memory_temperature_celsius', 'throttled_seconds_total'].map((m) =>
        gpuTitle(`system/gpu/${m}`),
      ),
    ).toEqual(['GPU busy', 'power ÷ limit', 'memory temperature', 'throttled']);
  });

  test('no cell is coloured by the misleading gauge', () => {
    expect(colours(all).map((l) => l.id)).toEqual(['clock', 'temperature']);
  });
});

describe('counters', () => {
  test('gain a second; absent at first, after a restart and after a gap', () => {
    const x = f(0, 1000, 2000, 3000, 20_000, 21_000);
    const counter = column('c', {}, f(5, 5.5, 6, 1, 8, 8.25), 1000);
    expect([...rateOf(x, counter, 'time')]).toEqual([nan, 0.5, 0.5, nan, nan, 0.25]);
  });

  test('a cell that holds two samples is no jump', () => {
    // Samples every 10 s gain 5; cells are 12 s wide, so that the third one holds two of them.
    const x = f(12, 24, 36, 48);
    const counter = { ...column('c', {}, f(5, 10, 20, 25), 10), count: f(1, 1, 2, 1) };
    expect([...rateOf(x, counter, 'relative')]).toEqual([nan, 0.5, 0.5, 0.5]);
  });
});

describe('spreads', () => {
  const x = f(0, 1, 2, 3, 4, 5, 6, 7);

  test('ranks that tick at other times count together, and a silent one no more', () => {
    const even = member('a', f(1, nan, 1, nan, 1, nan, 1, nan), 2);
    const odd = member('b', f(nan, 3, nan, 3, nan, nan, nan, nan), 2);
    expect([...held(x, odd)]).toEqual([nan, 3, 3, 3, 3, 3, 3, nan]);
    const spread = spreadOf(x, [even, odd]);
    expect([...spread.median]).toEqual([1, 2, 2, 2, 2, 2, 2, 1]);
    expect([...spread.count]).toEqual([1, 2, 2, 2, 2, 2, 2, 1]);
    expect(spread.band).toBe('min–max');
  });

  test('nothing is there where nobody has a sample', () => {
    const spread = spreadOf(x, [member('a', f(1, 1, nan, nan, nan, nan, 1, 1))]);
    expect([...spread.median]).toEqual([1, 1, 1, nan, nan, nan, 1, 1]);
  });

  const fleet = (odd: (at: number) => number) =>
    Array.from({ length: 24 }, (_, n) =>
      member(
        `${n}`,
        n === 7 ? x.map((_v, at) => odd(at)) : x.map((_v, at) => 100 + ((n * 7 + at * 3) % 5) / 10),
      ),
    );

  test('who is slower for a part of the time stands out, and nobody among equals does', () => {
    const slow = fleet((at) => (at < 5 ? 100 : 80));
    expect(outliersOf(x, slow, spreadOf(x, slow), [0, 7], 5).map((m) => m.key)).toEqual(['7']);
    const alike = fleet(() => 100.1);
    expect(outliersOf(x, alike, spreadOf(x, alike), [0, 7], 5)).toEqual([]);
  });

  test('what came before the zoom counts for nothing', () => {
    const slow = fleet((at) => (at < 5 ? 100.2 : 80));
    expect(outliersOf(x, slow, spreadOf(x, slow), [0, 4], 5)).toEqual([]);
  });

  test('a value is read at a sample, never between two that are far apart', () => {
    const one = { y: f(1, 2, nan, nan, nan, nan, 7, 8), spacing: 1 };
    expect(valueAt(x, one, 1.4)).toBe(2);
    expect(valueAt(x, one, 3.5)).toBeNaN();
    expect(valueAt(x, one, null)).toBe(8);
    expect(valueAt(x, one, 100)).toBeNaN();
  });

  test('worse is where the lane says', () => {
    const [clock, hot] = colours(
      lanesOf(
        chartsOf([
          row('system/gpu/sm_clock_mhz', { gpu: '0' }),
          row('system/gpu/temperature_celsius', { gpu: '0' }),
        ]),
      ),
    );
    expect(badness(90, 100, clock.compared!)).toBeCloseTo(0.5);
    expect(badness(150, 100, clock.compared!)).toBe(-1);
    expect(badness(75, 70, hot.compared!)).toBeCloseTo(0.5);
    expect(badness(nan, 70, hot.compared!)).toBeNaN();
  });
});

describe('series of a lane', () => {
  const lane = lanesOf(chartsOf([row('system/gpu/throttled_seconds_total', { gpu: '0' }, 'counter')]))[0];
  const x = f(0, 1, 2);
  const columns = (host: string, gpu: string) => [
    column('t', { host, gpu, reason: 'thermal' }, f(0, 0.5, 1)),
    column('t', { host, gpu, reason: 'sw_power' }, f(0, 0.25, 0.25)),
    column('t', { host, gpu, reason: 'low_utilization' }, f(0, 0, 0.1)),
  ];

  test('reasons overlap: the greatest counts, and they are told apart for who is selected', () => {
    const members = membersOf(lane, x, [...columns('a', '0'), ...columns('a', '1')], 'relative');
    expect(members.map((m) => m.text)).toEqual(['GPU 0', 'GPU 1']);
    expect([...members[0].y]).toEqual([nan, 0.5, 0.5]);
    const data = { x, members, total: 2, spread: null, axis: 'relative' as const, marks: [] };
    const drawn = drawnOf(
      lane,
      data,
      { show: 'lines', selects: (m) => m.key === 'a/1', slot: () => 3, peers: true, range: [0, 2] },
      [],
    );
    expect(drawn.named[0].member.key).toBe('a/1');
    expect(drawn.parts.map((p) => [p.word, [...p.y]])).toEqual([
      ['thermal', [nan, 0.5, 0.5]],
      ['sw_power', [nan, 0.25, 0]],
      ['low_utilization', [nan, 0, 0.1]],
    ]);
  });

  test('a clock that is low for want of work is not held back', () => {
    const idle = column('t', { host: 'a', gpu: '0', reason: 'low_utilization' }, f(0, 1, 2));
    const [member] = membersOf(lane, x, [idle, ...columns('a', '0').slice(0, 1)], 'relative');
    expect([...member.y]).toEqual([nan, 0.5, 0.5]);
    expect([...membersOf(lane, x, [idle], 'relative')[0].y]).toEqual([nan, 0, 0]);
  });

  test('samples that share buckets are no gaps', () => {
    const gauge = lanesOf(chartsOf([row('system/gpu/sm_clock_mhz', { gpu: '0' })]))[0];
    const places = f(0, 10, 20, 30, 40, 80);
    const dense = column('c', { gpu: '0' }, f(1, 2, 3, 4, 5, 6), 1);
    const [member] = membersOf(gauge, places, [dense], 'relative');
    expect(gapsOf(places, member)).toEqual([{ from: 40, to: 80 }]);
  });

  test('hosts are named where there are several', () => {
    const members = membersOf(lane, x, [...columns('a', '0'), ...columns('b', '0')], 'relative');
    expect(members.map((m) => m.text)).toEqual(['a/0', 'b/0']);
  });

  test('the peers are those who are not named', () => {
    const gauge = lanesOf(chartsOf([row('system/gpu/sm_clock_mhz', { gpu: '0' })]))[0];
    const members = membersOf(
      gauge,
      x,
      Array.from({ length: 12 }, (_, n) =>
        column('c', { host: 'a', gpu: `${n}` }, n === 2 ? f(50, 50, 50) : f(100, 100 + n, 100)),
      ),
      'relative',
    );
    const data = { x, members, total: 12, spread: null, axis: 'relative' as const, marks: [] };
    const choice = { selects: () => false, slot: () => 3, peers: true, range: [0, 2] as [number, number] };
    const spread = drawnOf(gauge, data, { ...choice, show: 'spread' }, []);
    expect(spread.named.map((n) => n.member.text)).toEqual(['GPU 2']);
    expect(spread.peerCount).toBe(11);
    expect(spread.peers?.low[0]).toBe(100);
    expect(spread.shape.lines.map((l) => l.key)).toEqual(['median', 'GPU 2']);
    const alone = drawnOf(gauge, data, { ...choice, show: 'spread', peers: false }, []);
    expect(alone.shape.lines.map((l) => l.key)).toEqual(['GPU 2']);
    expect(drawnOf(gauge, data, { ...choice, show: 'lines' }, []).shape.lines).toHaveLength(12);
    expect(drawnOf(gauge, data, { ...choice, show: 'map' }, []).rows).toHaveLength(12);
  });
});

describe('cards', () => {
  test('of an owner, of a neighbour and of nobody', () => {
    const reports = [
      report({
        host: 'h/1',
        rank: 0,
        devices: [
          device(0),
          device(1, { role: 'other', owner: { host: 'h/1', pid: 7, rank: 1 } }),
          device(2, { role: 'not_visible' }),
        ],
      }),
      report({ host: 'h/1', rank: 1, pid: 7, devices: [device(0, { role: 'other' }), device(1)] }),
    ];
    const cards = cardsOf([row('system/gpu/utilization', { host: 'h/1', gpu: '0' })], reports);
    expect(cards.map((c) => c.key)).toEqual(['h%2F1/0', 'h%2F1/1', 'h%2F1/2']);
    expect(cards.map((c) => c.owner?.rank)).toEqual([0, 1, undefined]);
    expect(cards[1].device?.role).toBe('owned');
    expect(owned(cards).map((c) => c.gpu)).toEqual(['0', '1']);
  });

  test('are in the order of numbers, not of letters', () => {
    const rows = ['10', '2'].map((gpu) => row('system/gpu/utilization', { host: 'h', gpu }));
    expect(cardsOf(rows, []).map((c) => c.gpu)).toEqual(['2', '10']);
    expect(cardKey('a,b', '1')).toBe('a%2Cb/1');
  });
});

describe('axes', () => {
  beforeEach(() => open('/'));

  test('time unless the address says otherwise; steps are other words for the same times', () => {
    expect(look.ticks.value).toBe('time');
    open('/?tfrom=5&tto=9');
    look.setTicks('step');
    expect([look.ticks.value, look.laneAxis.value, param('tfrom')]).toEqual(['step', 'time', '5']);
    look.setTicks('time');
    expect([look.ticks.value, param('axis'), param('tfrom')]).toEqual(['time', '', '5']);
    look.setTicks('relative');
    expect([look.laneAxis.value, param('tfrom')]).toEqual(['relative', '']);
  });

  test('a step that was trained twice has two ticks', () => {
    const map = new StepMap(f(0, 10, 20, 10, 30), f(0, 100, 200, 300, 500));
    expect(stepTicks(map, 0, 500, 6)).toEqual([
      { x: 0, text: '0' },
      { x: 100, text: '10' },
      { x: 300, text: '10' },
      { x: 400, text: '20' },
    ]);
    expect(stepTicks(map, 900, 999, 6)).toEqual([]);
  });
});

describe('more cards than are sent', () => {
  const lanes = lanesOf(
    chartsOf([
      row('system/gpu/sm_clock_mhz', { gpu: '0' }),
      row('system/gpu/throttled_seconds_total', { gpu: '0' }, 'counter'),
    ]),
  );

  test('one expression asks for all spreads', () => {
    const query = spreadQuery('ab"c', lanes, 74.5);
    expect(query.match(/ or /g)).toHaveLength(7);
    expect(query).toContain(
      'label_replace(quantile(0.5, last_over_time(system_gpu_sm_clock_mhz{run_id="ab\\"c"}[75s])), "is", "clock median", "", "")',
    );
    expect(query).toContain(
      'max by (host, gpu) (rate(system_gpu_throttled_seconds_total{run_id="ab\\"c", reason!~"low_utilization|idle"}[75s]))',
    );
  });

  test('answers stand on the grid of the question', () => {
    const grid = gridOf({ lanes, axis: 'relative', range: { from: 10, to: 40 }, origin: 5000, buckets: 4 });
    expect([grid.start, grid.end, grid.step, ...grid.x]).toEqual([15, 45, 10, 10, 20, 30, 40]);
    const values = onGrid(
      [
        [15, '2'],
        [35, 'NaN'],
        [45, '4'],
      ],
      grid,
      2,
    );
    expect([...values]).toEqual([4, nan, nan, 8]);
  });
});
