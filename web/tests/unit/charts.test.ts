import { describe, expect, test } from 'vitest';
import { valueRange, zeroBelongs } from '../../src/charts/extent';
import { entriesOf, readAt } from '../../src/charts/legend';
import { confine, drawable, zoomAround } from '../../src/charts/range';
import { cadence, chartsOf, sectionsOf } from '../../src/charts/sections';
import { sampleAt, shapeOf } from '../../src/charts/shape';
import { StepMap, stepMapOf } from '../../src/charts/step_map';
import { summary } from '../../src/charts/summary';
import { logTicks, valueTicks, xTicks } from '../../src/charts/ticks';
import { sparkGroups } from '../../src/components/sparkline';
import type { MetricRow } from '../../src/lib/answers';
import type { Columns } from '../../src/lib/points';

const nan = Number.NaN;

function columns(values: number[], more: Partial<Columns> = {}): Columns {
  const last = Float64Array.from(values);
  const count = Float64Array.from(values, (v) => (Number.isNaN(v) ? 0 : 1));
  return {
    query: 0,
    runId: 'r',
    metric: 'm',
    display: 'm',
    labels: {},
    scale: '',
    attempt: 1,
    unit: '',
    last,
    min: last,
    max: last,
    count,
    smooth: null,
    nonFinite: [],
    total: 1,
    interval: 1,
    ...more,
  };
}

const grid = (count: number) => Float64Array.from({ length: count }, (_, at) => at);

describe('shape', () => {
  test('a gap longer than 2.5 intervals breaks the line and is hatched; a shorter one does not', () => {
    const shape = shapeOf(grid(9), [columns([1, 1, nan, 1, 1, nan, nan, nan, 1])], []);
    expect(shape.lines[0].breaks).toEqual([{ from: 4, to: 8 }]);
    expect(shape.holes).toEqual([{ from: 4, to: 8 }]);
    expect([...shape.x]).toEqual([0, 1, 3, 4, 8]);
  });

  test('NaN breaks the line but is no gap', () => {
    const column = columns([1, nan, 1], {
      count: Float64Array.of(1, 1, 1),
      nonFinite: [{ x: 1, kind: 'NaN', count: 1 }],
    });
    const shape = shapeOf(grid(3), [column], []);
    expect(shape.lines[0].breaks).toEqual([{ from: 0, to: 2 }]);
    expect(shape.holes).toEqual([]);
    expect(shape.marks).toEqual([{ x: 1, kind: 'NaN', count: 1 }]);
  });

  test('buckets wider than the interval are no gaps', () => {
    const wide = Float64Array.from({ length: 10 }, (_, at) => at * 100);
    const shape = shapeOf(wide, [columns(new Array(10).fill(1))], []);
    expect(shape.lines[0].breaks).toEqual([]);
  });

  test('a hole in one series is none while another has samples', () => {
    const a = columns([1, 1, nan, nan, nan, nan, 1], { labels: { rank: '0' } });
    const b = columns([1, 1, 1, 1, 1, 1, 1], { labels: { rank: '1' } });
    expect(shapeOf(grid(7), [a, b], ['rank']).holes).toEqual([]);
    expect(shapeOf(grid(7), [a], ['rank']).holes).toHaveLength(1);
  });

  test('a restart parts what was kept from what was thrown away', () => {
    const first = columns([9, 8, 7, 6, nan, nan], { attempt: 1 });
    const second = columns([nan, nan, 7, 6, 5, 4], { attempt: 2 });
    const shape = shapeOf(grid(6), [second, first], []);
    expect(shape.lines.map((l) => [l.attempt, l.ghost, [...l.raw]])).toEqual([
      [1, true, [nan, nan, 7, 6, nan, nan]],
      [1, false, [9, 8, nan, nan, nan, nan]],
      [2, false, [nan, nan, 7, 6, 5, 4]],
    ]);
    expect(shape.lost).toEqual({ x: 2.5, steps: 2, attempt: 1 });
    expect(shape.attempts).toEqual([
      { number: 1, from: 0, to: 3 },
      { number: 2, from: 2, to: 5 },
    ]);
  });

  test('other series of an attempt are not cut by it', () => {
    const a = columns([1, 1, 1], { attempt: 1, labels: { rank: '0' } });
    const b = columns([nan, 1, 1], { attempt: 2, labels: { rank: '1' } });
    expect(shapeOf(grid(3), [a, b], ['rank']).lines.some((l) => l.ghost)).toBe(false);
  });

  test('the cursor reads a sample or nothing', () => {
    const { x, lines } = shapeOf(grid(9), [columns([1, 1, 1, nan, nan, nan, nan, 1, 1])], []);
    expect(sampleAt(x, lines[0], 1.4)).toBe(1);
    expect(sampleAt(x, lines[0], 4.5)).toBe(-1);
    expect(sampleAt(x, lines[0], 2.9)).toBe(2);
    expect(sampleAt(x, lines[0], 100)).toBe(-1);
    expect(sampleAt(Float64Array.of(), lines[0], 0)).toBe(-1);
  });

  test('readouts come from the newest attempt that has a sample there', () => {
    const first = columns([9, 8, 7, nan], { attempt: 1 });
    const second = columns([nan, nan, 6, 5], { attempt: 2 });
    const shape = shapeOf(grid(4), [first, second], []);
    const [entry] = entriesOf(shape);
    expect(readAt(shape, entry, 0, '')).toMatchObject({ value: 9, attempt: 1 });
    expect(readAt(shape, entry, 2, '')).toMatchObject({ value: 6, attempt: 2 });
    expect(readAt(shape, entry, null, '')).toMatchObject({ value: 5 });
    expect(readAt(shape, entry, 99, '')).toBeNull();
  });

  test('words say range, extremes and what is odd', () => {
    const shape = shapeOf(
      grid(9),
      [columns([1, 2, nan, nan, nan, nan, 3, 4, 5], { nonFinite: [{ x: 2, kind: '+Inf', count: 3 }] })],
      [],
    );
    expect(summary('loss', 's', shape, 'step', { from: 0, to: 8 }, 'utc').replaceAll('\u2009', ' ')).toBe(
      'loss, s: step 0 to step 8; last 5 s, lowest 1 s, highest 5 s; 1 gaps; 3 values that are not finite',
    );
  });
});

describe('value axis', () => {
  const line = (values: number[]) => ({
    y: values,
    min: values.map((v) => v - 1),
    max: values.map((v) => v + 1),
  });
  const choice = { envelope: false, clip: false, log: false, zero: false };

  test('only what is in the range counts, and what is not finite never does', () => {
    const range = valueRange([0, 1, 2, 3], [line([1000, 1, 2, nan])], 1, 3, choice)!;
    expect(range[0]).toBeCloseTo(0.95);
    expect(range[1]).toBeCloseTo(2.05);
    expect(valueRange([0], [line([nan])], 0, 1, choice)).toBeNull();
  });

  test('a constant stands in the middle of plus and minus five percent', () => {
    expect(valueRange([0, 1], [line([100, 100])], 0, 1, choice)).toEqual([95, 105]);
    expect(valueRange([0, 1], [line([0, 0])], 0, 1, choice)).toEqual([-1, 1]);
    // Nothing that zero bounds goes below it.
    expect(valueRange([0, 1], [line([0, 0])], 0, 1, { ...choice, zero: true })).toEqual([0, 1]);
  });

  test('zero, envelope, clip and log do what they say', () => {
    expect(valueRange([0, 1], [line([5, 10])], 0, 1, { ...choice, zero: true })![0]).toBe(0);
    expect(valueRange([0, 1], [line([5, 10])], 0, 1, { ...choice, envelope: true })![1]).toBeGreaterThan(11);
    const spiky = Array.from({ length: 1000 }, (_, at) => (at === 500 ? 1e9 : at));
    expect(
      valueRange(
        spiky.map((_, at) => at),
        [line(spiky)],
        0,
        1000,
        { ...choice, clip: true },
      )![1],
    ).toBeLessThan(1100);
    expect(valueRange([0, 1], [line([-5, 10])], 0, 1, { ...choice, log: true })![0]).toBeGreaterThan(0);
  });

  test('huge values stay finite', () => {
    const [low, high] = valueRange([0, 1], [line([-1.7e308, 1.7e308])], 0, 1, choice)!;
    expect(Number.isFinite(high - low)).toBe(true);
  });

  test('counts, rates and shares stand on zero, losses do not', () => {
    expect(zeroBelongs('system/cpu/utilization', '%', 'gauge')).toBe(true);
    expect(zeroBelongs('tokens_per_second', '', 'gauge')).toBe(true);
    expect(zeroBelongs('loss', '', 'gauge')).toBe(false);
  });
});

describe('ticks', () => {
  test('values stand on round numbers inside the range', () => {
    expect(valueTicks(0, 1, 5)).toEqual([0, 0.2, 0.4, 0.6, 0.8, 1]);
    expect(valueTicks(0, 24 * 1024 ** 3, 4, 'B').map((v) => v / 1024 ** 3)).toEqual([0, 8, 16, 24]);
    expect(valueTicks(3, 3, 4)).toEqual([3]);
    for (const [low, high] of [
      [-8e307, 8e307],
      [0, 5e-324],
      [1e15, 1e15 + 1],
    ]) {
      const ticks = valueTicks(low, high, 5);
      expect(ticks.length).toBeLessThan(100);
      expect(ticks.every(Number.isFinite)).toBe(true);
    }
  });

  test('a log axis has at least two labels over any range', () => {
    for (const [low, high] of [
      [2.5, 12],
      [1e-8, 1e8],
      [3, 3.1],
      [1e-300, 1e300],
    ]) {
      const ticks = logTicks(low, high, 5);
      expect(ticks.length).toBeGreaterThanOrEqual(2);
      expect(ticks.length).toBeLessThan(12);
      expect(ticks.every((t) => t >= low * 0.99 && t <= high * 1.01)).toBe(true);
    }
  });

  test('steps are whole, times stand on the clock', () => {
    expect(xTicks('step', 0, 3, 10, 'utc')).toEqual([
      [0, 1, 2, 3],
      ['0', '1', '2', '3'],
    ]);
    const noon = Date.UTC(2026, 10, 30, 12);
    expect(xTicks('time', noon, noon + 3_600_000, 4, 'utc')[1]).toEqual([
      '12:00',
      '12:15',
      '12:30',
      '12:45',
      '13:00',
    ]);
    expect(xTicks('time', noon, noon + 40, 4, 'utc')[0]).toEqual([noon, noon + 20, noon + 40]);
    expect(xTicks('relative', 0, 3600, 4, 'utc')[1]).toEqual(['0', '15 m', '30 m', '45 m', '1 h 00']);
  });
});

describe('range', () => {
  test('a zoom stays inside and vanishes when it shows all', () => {
    const full = { from: 0, to: 100 };
    expect(confine({ from: -20, to: 30 }, full)).toEqual({ from: 0, to: 50 });
    expect(confine({ from: -20, to: 130 }, full)).toBeNull();
    expect(zoomAround(full, 25, 0.5)).toEqual({ from: 12.5, to: 62.5 });
    expect(drawable({ from: 5, to: 5 })).toEqual({ from: 4.5, to: 5.5 });
  });
});

describe('sections', () => {
  const row = (display: string, more: Partial<MetricRow> = {}): MetricRow => ({
    name: display.replaceAll('/', '_'),
    display,
    labels: {},
    scale: '',
    points: 11,
    last_step: 10,
    last: 1,
    first_time_ms: 0,
    last_time_ms: 20_000,
    unit: '',
    kind: 'gauge',
    help: '',
    caveat: '',
    ...more,
  });

  test('what rules record stands behind what was logged; its observed share is a badge, no card', () => {
    const charts = chartsOf([
      row('run:tokens_per_second'),
      row('run:tokens_per_second:coverage', { last: 0.98, labels: { rank: '0' } }),
      row('run:tokens_per_second:coverage', { last: 0.5, labels: { rank: '1' } }),
      row('run:other:coverage'),
      row('system/cpu', { last: 5 }),
      row('loss'),
      ...['a/x', 'a/y', 'a/z'].map((name) => row(name)),
    ]);
    expect(sectionsOf(charts, '').map((s) => [s.prefix, s.charts.map((c) => c.name)])).toEqual([
      ['', ['loss']],
      ['a', ['a/x', 'a/y', 'a/z']],
      ['derived', ['run:tokens_per_second', 'run:other:coverage']],
      ['system', ['system/cpu']],
    ]);
    expect(charts.map((c) => c.coverage)).toEqual([0.5, ...Array(charts.length - 1).fill(null)]);
  });

  test('loss first, then throughput, the system last; small prefixes share', () => {
    const names = [
      'system/cpu/utilization',
      'zeta',
      'tokens_per_second',
      'val/loss',
      'loss',
      'grad_norm',
      'eval/a',
      'eval/b',
      'eval/c',
    ];
    const sections = sectionsOf(chartsOf(names.map((n) => row(n))), '');
    expect(sections.map((s) => [s.prefix, s.charts.map((c) => c.name)])).toEqual([
      ['', ['loss', 'val/loss', 'grad_norm', 'tokens_per_second', 'zeta']],
      ['eval', ['eval/a', 'eval/b', 'eval/c']],
      ['system', ['system/cpu/utilization']],
    ]);
    expect(
      sectionsOf(chartsOf(names.map((n) => row(n))), 'LOSS val').flatMap((s) => s.charts.map((c) => c.name)),
    ).toEqual(['val/loss']);
  });

  test('what a histogram is made of stands behind the rest', () => {
    const bucket = (le: string) => row('step_duration_loss_bucket', { labels: { le }, unit: '' });
    const parts = ['step_duration_loss_count', 'step_duration_loss_sum'].map((name) => row(name));
    const charts = chartsOf([bucket('1'), bucket('+Inf'), ...parts, row('loss'), row('errors_count')]);
    expect(sectionsOf(charts, '').flatMap((s) => s.charts.map((c) => [c.name, c.isPart]))).toEqual([
      ['loss', false],
      ['errors_count', false],
      ['step_duration_loss_bucket', true],
      ['step_duration_loss_count', true],
      ['step_duration_loss_sum', true],
    ]);
  });

  test('series of one metric are one chart; a system chart is over time even with steps', () => {
    const charts = chartsOf([
      row('a', { labels: { rank: '0' } }),
      row('a', { labels: { rank: '1' } }),
      row('system/x'),
      row('t', { last_step: null }),
    ]);
    expect(charts.map((c) => [c.name, c.series.length, c.stepped])).toEqual([
      ['a', 2, true],
      ['system/x', 1, false],
      ['t', 1, false],
    ]);
    const spelled = chartsOf([
      row('x.loss', { name: 'x_loss', last_step: null }),
      row('x_loss', { name: 'x_loss', unit: '{token}' }),
      row('y.loss', { name: 'y_loss' }),
    ]);
    expect(spelled.map((c) => [c.name, c.series.length, c.stepped])).toEqual([
      ['x_loss', 2, true],
      ['y.loss', 1, true],
    ]);
    expect(chartsOf([row('x', { unit: '{token}/s' })])[0].unit).toBe('token/s');
    expect(cadence([row('a')])).toBe(2000);
    expect(cadence([])).toBeNull();
  });

  test('runs of a like length share a grid that gives each enough points', () => {
    const groups = sparkGroups([100, 1600, 52_000, 3000].map((last_step) => ({ last_step })));
    expect(groups.map((g) => [g.rows.map((r) => r.last_step), g.buckets])).toEqual([
      [[52_000], 44],
      [[3000, 1600], 88],
      [[100], 44],
    ]);
  });
});

describe('steps and times', () => {
  const answer = (axis: 'step' | 'time', x: number[], ...series: Columns[]) => ({
    axis,
    from: x[0],
    to: x[x.length - 1],
    x: Float64Array.from(x),
    series,
    pointsRead: 0,
    warnings: [],
  });

  test('the n-th point over steps is the n-th point over time', () => {
    const map = stepMapOf(
      answer('step', [0, 10, 20, 30], columns([1, 1, 1, 1])),
      answer('time', [100, 200, 300, 1000], columns([1, 1, 1, 1])),
    )!;
    expect([0, 5, 20, 25, 30, 31, -1].map((s) => map.timeOf(s))).toEqual([
      100,
      150,
      300,
      650,
      1000,
      null,
      null,
    ]);
    expect([100, 150, 300, 650, 1000, 1001, 99].map((t) => map.stepOf(t))).toEqual([
      0,
      5,
      20,
      25,
      30,
      null,
      null,
    ]);
  });

  test('buckets of different sizes are joined by how many points they hold', () => {
    const map = stepMapOf(
      answer('step', [9, 19], columns([1, 1], { count: Float64Array.of(10, 10) })),
      answer('time', [500, 900, 1900], columns([1, 1, 1], { count: Float64Array.of(5, 5, 10) })),
    )!;
    expect([map.timeOf(9), map.timeOf(14), map.timeOf(19)]).toEqual([900, 1400, 1900]);
  });

  test('a step that two attempts have is the newest one, and between attempts is no step', () => {
    const map = new StepMap(Float64Array.of(0, 10, 20, 10, 20, 30), Float64Array.of(0, 10, 20, 50, 60, 70));
    expect([map.timeOf(5), map.timeOf(15), map.timeOf(30)]).toEqual([5, 55, 70]);
    expect([map.stepOf(15), map.stepOf(30), map.stepOf(55)]).toEqual([15, null, 15]);
  });

  test('one point or none says nothing', () => {
    expect(stepMapOf(answer('step', [1], columns([1])), answer('time', [1], columns([1])))).toBeNull();
    expect(stepMapOf(answer('step', []), answer('time', []))).toBeNull();
  });
});
