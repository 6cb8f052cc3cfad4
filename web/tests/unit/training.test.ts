import { describe, expect, test } from 'vitest';
import { shapeOf } from '../../src/charts/shape';
import { StepMap } from '../../src/charts/step_map';
import type { Axis, Columns, PointsAnswer, PointsQuestion } from '../../src/lib/points';
import { rankLabel } from '../../src/ranks/crew';
import {
  foldOf,
  growth,
  keptSteps,
  type Piece,
  seriesOf,
  stepAt,
  timeAt,
  together,
  toSteps,
} from '../../src/training/fold';
import { literal } from '../../src/training/others';
import { absence, PANELS, switchOf } from '../../src/training/panels';
import { columnAt, stackOf } from '../../src/training/parts';
import { chartOf, type Drawn, LINES_MAX, readKeys, skipsOf, type Wanted } from '../../src/training/read';
import { spreadOf } from '../../src/training/spread';
import { quantileQuery, readQuantiles } from '../../src/training/step_time';
import { lay } from '../../src/training/strip';
import {
  goodputText,
  healthText,
  notFiniteText,
  percent,
  stepText,
  sumText,
  whoseText,
} from '../../src/training/words';
import { breakdownOf, trainingOf } from '../stories/training';

const numbers = (values: number[]) => Float64Array.from(values);

function column(values: number[], more: Partial<Columns> = {}): Columns {
  const last = numbers(values);
  return {
    query: 0,
    runId: 'r',
    metric: 'm',
    display: 'm',
    labels: {},
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
    interval: 1,
    ...more,
  };
}

const piece = (x: number[], values: number[], more: Partial<Columns> = {}): Piece => ({
  x: numbers(x),
  column: column(values, more),
});

/** Steps 0 to 10 take a second each, from 1,000 ms on; then it starts again at step 6. */
const restarted = new StepMap(numbers([0, 10, 6, 20]), numbers([1000, 11_000, 21_000, 35_000]));

describe('points without steps', () => {
  test('stand at the step of their time', () => {
    const map = new StepMap(numbers([0, 10]), numbers([1000, 11_000]));
    const moved = toSteps(piece([2000, 6000, 11_000], [1, 2, 3], { interval: 4000 }), map);
    expect([...moved.x]).toEqual([1, 5, 10]);
    expect([...moved.column.last]).toEqual([1, 2, 3]);
  });

  test('of what a restart threw away are left out', () => {
    const kept = keptSteps(restarted);
    expect([...kept.steps]).toEqual([0, 6, 20]);
    expect(timeAt(kept, 13)).toBe(28_000);
    expect(stepAt(kept, 28_000)).toBe(13);
  });

  test('just outside of the steps go to the end, far outside nowhere', () => {
    const map = new StepMap(numbers([0, 10]), numbers([1000, 11_000]));
    const moved = toSteps(piece([-90_000, 500, 12_000, 13_000], [1, 2, 3, 4], { interval: 1000 }), map);
    expect([...moved.x]).toEqual([0, 10]);
    expect([...moved.column.last]).toEqual([2, 4]);
  });

  test('a value that is not finite is never lost', () => {
    const map = new StepMap(numbers([0, 10]), numbers([1000, 11_000]));
    const nonFinite = [
      { x: 3000, kind: 'NaN' as const, count: 1 },
      { x: 900_000, kind: 'NaN' as const, count: 2 },
    ];
    const moved = toSteps(piece([2000], [1], { nonFinite }), map);
    expect(moved.column.nonFinite.map((m) => [m.x, m.count])).toEqual([
      [2, 1],
      [10, 2],
    ]);
  });
});

describe('many series', () => {
  test('of ranks that export a moment apart meet in one cell', () => {
    const ranks = [0, 1, 2].map((rank) =>
      piece(
        [0, 10, 20].map((t) => t * 1000 + rank * 40),
        [1 + rank, 2 + rank, 3 + rank],
        {
          labels: { dl_rank: String(rank) },
          interval: 10_000,
        },
      ),
    );
    const fold = foldOf(seriesOf(ranks));
    expect([...fold.present]).toEqual([3, 3, 3]);
    expect([...fold.median]).toEqual([2, 3, 4]);
    expect([...fold.low]).toEqual([1, 2, 3]);
    expect([...fold.high]).toEqual([3, 4, 5]);
  });

  test('nothing is made up where nothing came', () => {
    const fold = foldOf(
      seriesOf([
        piece([0, 1, 9], [1, 2, 3]),
        piece([0, 1, 9], [5, Number.NaN, 7], { labels: { dl_rank: '1' } }),
      ]),
    );
    expect([...fold.x]).toEqual([0, 1, 9]);
    expect([...fold.present]).toEqual([2, 1, 2]);
    expect(foldOf([]).x.length).toBe(0);
  });

  test('one grid holds series of several runs', () => {
    const { x, columns } = together([piece([1, 3], [10, 30]), piece([2, 3], [20, 31], { runId: 's' })]);
    expect([...x]).toEqual([1, 2, 3]);
    expect([...columns[0].last]).toEqual([10, Number.NaN, 30]);
    expect([...columns[1].last]).toEqual([Number.NaN, 20, 31]);
    const shape = shapeOf(x, columns, []);
    expect(shape.lines.map((l) => l.breaks)).toEqual([[], []]);
  });
});

describe('a counter', () => {
  test('begins at zero, and a fall is a restart', () => {
    const grown = growth(piece([1, 2, 3, 4, 5], [0, 2, 2, 1, 4]), true);
    expect(grown).toEqual([
      { x: 2, by: 2 },
      { x: 4, by: 1 },
      { x: 5, by: 3 },
    ]);
  });

  test('that is seen from the middle has not grown before', () => {
    expect(growth(piece([7, 8], [5, 6]), false)).toEqual([{ x: 8, by: 1 }]);
  });

  test('is told once, however many ranks count', () => {
    const of = (rank: string, values: number[]) => piece([1, 2, 3], values, { labels: { dl_rank: rank } });
    const pieces = [of('0', [0, 1, 1]), of('1', [0, 1, 3])];
    const data = new Map([
      ['skipped_iters', { axis: 'step' as const, pieces, range: null, moved: false, came: 2, total: 2 }],
    ]);
    expect(skipsOf(data, 'r', true)).toEqual([
      { x: 2, by: 1 },
      { x: 3, by: 2 },
    ]);
  });
});

/** A server whose series have values 1, 2, 3 at steps or times of what is asked. */
function server(steps: Record<string, boolean>, asked: PointsQuestion[]) {
  return async (question: PointsQuestion): Promise<PointsAnswer> => {
    asked.push(question);
    const x = question.axis === 'step' ? numbers([1, 5, 10]) : numbers([2000, 6000, 11_000]);
    const series = question.queries.flatMap((query, at) => {
      const has = steps[`${query.run_id} ${query.metric}`];
      if (has === undefined || (question.axis === 'step' && !has)) return [];
      return [column([1, 2, 3], { query: at, runId: query.run_id, metric: query.metric, interval: 4 })];
    });
    return { axis: question.axis, from: x[0], to: x[2], x, series, pointsRead: 3, warnings: [] };
  };
}

const MAP = new StepMap(numbers([0, 10]), numbers([1000, 11_000]));
const drawn = (runId: string, map: StepMap | null = MAP): Drawn => ({ runId, name: runId, map });

function wanted(more: Partial<Wanted> = {}): Wanted {
  return {
    runs: [drawn('a')],
    metrics: new Map([
      ['loss', 'm_loss'],
      ['grad_norm', 'm_norm'],
    ]),
    stepped: new Set(['loss']),
    axis: 'step',
    zoom: null,
    width: 400,
    series: new Map(),
    ...more,
  };
}

const signal = new AbortController().signal;

describe('reading the panels', () => {
  test('what has steps is asked by step, the rest by time and moved', async () => {
    const asked: PointsQuestion[] = [];
    const found = await readKeys(wanted(), server({ 'a m_loss': true, 'a m_norm': false }, asked), signal);
    expect(asked.map((q) => [q.axis, q.queries.map((one) => one.metric)])).toEqual([
      ['step', ['m_loss']],
      ['time', ['m_norm']],
    ]);
    expect(found.get('loss')?.moved).toBe(false);
    expect(found.get('grad_norm')?.moved).toBe(true);
    expect([...found.get('grad_norm')!.pieces[0].x]).toEqual([1, 5, 10]);
  });

  test('a zoom over steps asks for the times of those steps', async () => {
    const asked: PointsQuestion[] = [];
    const zoom = { from: 4, to: 8 };
    await readKeys(wanted({ zoom }), server({ 'a m_loss': true, 'a m_norm': false }, asked), signal);
    expect(asked.map((q) => [q.axis, q.from, q.to])).toEqual([
      ['step', 4, 8],
      ['time', 5000, 9000],
    ]);
  });

  test('without steps and times joined, what has none is over time and says so', async () => {
    const asked: PointsQuestion[] = [];
    const found = await readKeys(
      wanted({ runs: [drawn('a', null)] }),
      server({ 'a m_loss': true, 'a m_norm': false }, asked),
      signal,
    );
    expect(found.get('grad_norm')?.axis).toBe('time');
    expect(found.get('loss')?.axis).toBe('step');
  });

  test('a run laid over is drawn once, whether its series have steps or not', async () => {
    const runs = [drawn('a'), drawn('b')];
    const steps = { 'a m_loss': true, 'a m_norm': false, 'b m_loss': false, 'b m_norm': true };
    const found = await readKeys(wanted({ runs }), server(steps, []), signal);
    const { shape } = chartOf(found.get('loss')!, runs);
    expect(shape.lines.map((l) => [l.key, [...l.raw].filter(Number.isFinite)])).toEqual([
      ['a', [1, 2, 3]],
      ['b', [1, 2, 3]],
    ]);
    expect(chartOf(found.get('grad_norm')!, runs).shape.lines.length).toBe(2);
  });

  test('a thousand ranks are asked for with few values each', async () => {
    const asked: PointsQuestion[] = [];
    const series = new Map([
      ['loss', 1024],
      ['memory_allocated_gb', 1024],
    ]);
    const metrics = new Map([
      ['loss', 'm_loss'],
      ['memory_allocated_gb', 'm_memory'],
    ]);
    await readKeys(wanted({ axis: 'time', metrics, series }), server({}, asked), signal);
    const [question] = asked;
    const values = question.queries.reduce((sum, q) => sum + q.limit! * question.buckets * 2, 0);
    expect(question.columns).toEqual(['last', 'count']);
    expect(question.queries[1].limit).toBeGreaterThanOrEqual(1024);
    expect(values).toBeLessThan(700_000);
  });

  test('what a process logs with steps and exports as well is drawn once', () => {
    const of = (labels: Record<string, string>, value: number) =>
      piece([1, 2], [value, value], { runId: 'a', labels });
    const exported = of({ dl_rank: '1', service_instance_id: 'a-rank1' }, 5);
    const lines = (pieces: Piece[]) =>
      chartOf({ axis: 'step', pieces, range: null, moved: false, came: 2, total: 2 }, [drawn('a')]).shape
        .lines;
    expect(lines([exported, of({ rank: '1' }, 1)]).map((l) => l.raw[0])).toEqual([1]);
    expect(lines([exported, of({}, 1)]).map((l) => l.raw[0])).toEqual([1]);
    expect(lines([exported, of({ rank: '0' }, 1)])).toHaveLength(2);
    expect(lines([exported])).toHaveLength(1);
  });

  test('few series are a line each, many their median and spread', () => {
    const of = (ranks: number) => ({
      axis: 'step' as Axis,
      pieces: Array.from({ length: ranks }, (_, rank) =>
        piece([1, 2], [rank, rank + 1], {
          runId: 'a',
          labels: { dl_rank: String(rank) },
          nonFinite: [{ x: 3 + rank / 1000, kind: 'NaN' as const, count: 1 }],
        }),
      ),
      range: null,
      moved: false,
      came: ranks,
      total: ranks,
    });
    const few = chartOf(of(LINES_MAX), [drawn('a')]);
    expect(few.folded).toBe(0);
    expect(few.shape.lines.map((l) => l.key)).toContain('rank 3');
    const many = chartOf(of(64), [drawn('a')]);
    expect(many.folded).toBe(64);
    expect(many.shape.lines.map((l) => l.key)).toEqual(['median of 64']);
    expect([...many.shape.lines[0].raw]).toEqual([31.5, 32.5]);
    expect([...many.shape.lines[0].max]).toEqual([63, 64]);
    // The same NaN on every rank is one, though they told of it a moment apart.
    expect(many.shape.marks).toEqual([{ x: 3, kind: 'NaN', count: 1 }]);
  });
});

describe('the spread', () => {
  test('a rank is known by the label of either client', () => {
    expect(rankLabel({ rank: '3' })).toBe(3);
    expect(rankLabel({ dl_rank: '17' })).toBe(17);
    expect(rankLabel({ dl_rank: '<img src=x onerror=alert(1)>' })).toBeNull();
    expect(rankLabel({ host: 'h' })).toBeNull();
  });

  test('names who is farthest from the median', () => {
    const pieces = Array.from({ length: 64 }, (_, rank) =>
      piece([1, 2, 3], [1, 1, rank === 17 ? 1.5 : 1], { labels: { rank: String(rank) } }),
    );
    const one = (more: number) =>
      spreadOf(
        pieces.map((p, rank) =>
          rank === 17 ? piece([1, 2, 3], [more, more, more], { labels: { rank: '17' } }) : p,
        ),
      );
    expect(one(1.25).far).toEqual([{ rank: 17, ratio: 1.25 }]);
    expect(one(1.25).shape.lines.map((l) => l.key)).toEqual(['median of 64', 'rank 17']);
    expect(one(1.001).far).toEqual([]);
    expect(spreadOf([]).ranks).toBe(0);
  });
});

describe('quantiles of step times', () => {
  test('are one question, in seconds, of a metric of one run', () => {
    const query = quantileQuery('megatron_training_step_duration_ms_milliseconds', 'ab"c', 50);
    expect(query).toContain('histogram_quantile(0.5, sum by (le)');
    expect(query).toContain('histogram_quantile(0.95');
    expect(query).toContain('_bucket{run_id="ab\\"c"}[50s]');
    expect(query).toContain('/ 1000');
  });

  test('stand on the axis of the page, and what is NaN nowhere', async () => {
    const rows = [
      {
        metric: { q: 'p50' },
        values: [
          [2, 'NaN'],
          [6, '0.5'],
          [11, '0.7'],
        ] as [number, string][],
      },
    ];
    const grids: { start: number; end: number; step: number }[] = [];
    const ask = async (_query: string, grid: { start: number; end: number; step: number }) => {
      grids.push(grid);
      return rows;
    };
    const run = { runId: 'a', name: 'a', map: MAP, origin: 1000 };
    const asked = { metric: 'm', times: { from: 1000, to: 11_000 }, interval: 1, width: 400, alone: true };
    const on = async (axis: Axis) => (await readQuantiles(run, { ...asked, axis }, ask, signal))[0];
    expect([...(await on('time')).x]).toEqual([6000, 11_000]);
    expect([...(await on('relative')).x]).toEqual([5, 10]);
    expect([...(await on('step')).x]).toEqual([5, 10]);
    expect([...(await on('step')).column.last]).toEqual([0.5, 0.7]);
    // There is one observation a log interval: a finer grid would say nothing more.
    expect(grids[0].step).toBeGreaterThanOrEqual(0.5);
  });
});

describe('parts of a step', () => {
  const breakdown = breakdownOf(new URLSearchParams('buckets=100&from=1&to=200'));

  test('what no span tells is the last, and always there', () => {
    const { parts } = stackOf({
      ...breakdown,
      phases: ['optimizer'],
      seconds: { optimizer: breakdown.seconds.optimizer },
    });
    expect(parts.map((p) => p.key)).toEqual(['optimizer', 'unattributed']);
    expect(parts[1].token).toBeNull();
  });

  test('shares sum to the wall', () => {
    const { x, parts } = stackOf(breakdown);
    for (let at = 0; at < x.length; at++)
      expect(parts.reduce((sum, p) => sum + p.share[at], 0)).toBeCloseTo(1, 9);
  });

  test('a bucket counts as often as it holds iterations', () => {
    const two = {
      ...breakdown,
      phases: ['optimizer', 'unattributed'],
      x: [1, 11],
      count: [10, 2],
      wall_seconds: [1, 4],
      seconds: { optimizer: [0.5, 4], unattributed: [0.5, 0] },
      iterations: 12,
    };
    const stack = stackOf(two);
    expect(stack.wallSeconds).toBe(18);
    expect(stack.parts.map((p) => p.seconds)).toEqual([13, 5]);
  });

  test('a column is as wide as its iterations, and ends before a gap', () => {
    const laid = lay({ ...stackOf(breakdown), x: numbers([1, 2, 3, 50]), width: 1 }, 'step', (step) => step);
    expect([...laid.left]).toEqual([0.5, 1.5, 2.5, 49.5]);
    expect([...laid.right]).toEqual([1.5, 2.5, 5, 50.5]);
    expect(columnAt(laid.left, 2.1, Infinity)).toBe(1);
    expect(columnAt(laid.left, 0.1, Infinity)).toBe(-1);
  });
});

describe('sentences', () => {
  const training = trainingOf();
  const alone = { ...training, export: { ...training.export, ranks: [63] } };
  const nowhere = () => null;

  test('tell first whether the training is healthy', () => {
    expect(healthText(alone, 'utc', nowhere)).toEqual({
      claim: 'The loss was not finite 3 times, last at step 3,312; 4 iterations were skipped.',
      bad: true,
    });
    expect(healthText(training, 'utc', nowhere).claim).toContain('not finite in 3 values of 64 ranks, last');
    const timed = { ...alone.non_finite.loss, last_step: null, last_time: 7000 };
    const placed = { ...alone, non_finite: { loss: timed } };
    expect(healthText(placed, 'utc', () => 12).claim).toContain('last at step 12;');
    const well = { ...training, non_finite: {}, skipped: { total: null } };
    expect(healthText(well, 'utc', nowhere).claim).toBe(
      'Every loss that came is finite, no iteration was skipped.',
    );
    expect(healthText({ ...well, skipped: { total: 1 } }, 'utc', nowhere).claim).toMatch(
      /^1 iteration was skipped/,
    );
    const silent = { ...well, instruments: [] };
    expect(healthText(silent, 'utc', nowhere).claim).toBe('');
  });

  test('name the largest parts, the rest, and how exact the sum is', () => {
    const breakdown = breakdownOf(new URLSearchParams('buckets=100&from=1&to=200'));
    expect(stepText(stackOf(breakdown))).toMatch(
      /^Of a step's time: 7\d(\.\d)?\W%.* unattributed\. A step takes/,
    );
    expect(sumText({ ...breakdown, sum_error_ratio: 0.0042 })).toMatch(/within 0\.42\W%/);
    expect(whoseText(breakdown)).toBe('200 iterations, mean of 64 ranks');
    expect(whoseText({ ...breakdown, rank: 17 })).toBe('200 iterations, rank 17');
    expect(goodputText(breakdown)).toMatch(/^Productive: 93\W% of 2 h 22 min \(checkpoint 5 min/);
    expect(goodputText({ ...breakdown, goodput: null })).toBe('');
    expect(percent(Number.NaN)).toBe('—');
  });

  test('count what is not finite by its kind', () => {
    const found = { nan: 3, positive_infinite: 0, negative_infinite: 1, last_time: null, last_step: null };
    expect(notFiniteText(found)).toBe('3 NaN, 1 −Inf');
  });

  test('an absent panel names the switch that fills it', () => {
    const absent = (key: string, more: object) => ({
      ...training,
      instruments: training.instruments.map((i) =>
        i.key === key ? { ...i, present: false, metric: null, ...more } : i,
      ),
    });
    const text = 'The trainer does not send it; it needs `--log-throughput`.';
    const flops = absent('throughput_tflops', { filled_by: '`--log-throughput`', text });
    expect(absence(flops, 'throughput_tflops')).toEqual({ text, command: '--log-throughput' });
    const all = { ...flops, switches: [{ key: 'MEGATRON_OTEL_ENABLED=1', text: 'Lets it export.' }] };
    const off = absent('loss', { text: 'Nothing has arrived: `MEGATRON_OTEL_ENABLED=1` and `X` send them.' });
    expect(absence({ ...off, switches: all.switches }, 'loss').command).toBe('MEGATRON_OTEL_ENABLED=1');
    expect(absence(off, 'grad_norm').command).toBeNull();
    expect(switchOf(all, 'ENABLED')?.text).toBe('Lets it export.');
    expect(switchOf(all, 'STRATEGY')).toBeUndefined();
  });

  test('every panel has an instrument', () => {
    for (const { key } of PANELS) expect(training.instruments.map((i) => i.key)).toContain(key);
  });

  test('an id is looked for as it is written', () => {
    expect(new RegExp(`^(?:${literal('run.a+b|c')})$`).test('run.a+b|c')).toBe(true);
    expect(new RegExp(`^(?:${literal('run.a')})$`).test('runxa')).toBe(false);
  });
});
