/** The Inference page's pure parts: order, words, questions, pictures. */
import { describe, expect, test } from 'vitest';
import { type RangeAnswer, seriesOf } from '../../src/explore/answer';
import type { FleetEvent } from '../../src/fleet/answers';
import type { Figure, Model, Objectives, Page, Replica } from '../../src/inference/answers';
import { numberOf } from '../../src/inference/answers';
import { boundsOf, bucketOf, CHARTS, picturesOf, promqlOf, questionsOf } from '../../src/inference/charts';
import { marksOf } from '../../src/inference/lane';
import { drawnOf } from '../../src/inference/replicas';
import { rowsOf, searched } from '../../src/inference/vocabulary';
import {
  brief,
  COLUMNS,
  claimOf,
  figureText,
  goodputOf,
  misses,
  needOf,
  nextOrder,
  numberText,
  objectivesText,
  ordered,
  parseOrder,
  sorted,
  toKnow,
} from '../../src/inference/words';
import { inferencePath, parseRoute } from '../../src/lib/route';

const HOSTILE = '<img src=x onerror=alert(1)>"}';

const figure = (value: number | null, reason: string | null = null): Figure => ({
  value,
  unit: '',
  reason,
  coverage: 1,
});

const replica = (instance: string, more: Partial<Replica> = {}): Replica => ({
  job: 'j',
  instance,
  engine: 'vllm',
  dp_rank: null,
  up: true,
  error: null,
  since: 1,
  values: {},
  ...more,
});

const model = (name: string, more: Partial<Model> = {}): Model => ({
  model: name,
  engines: ['vllm'],
  targets: { up: 1, total: 1 },
  gpus: null,
  gpus_reason: 'no pod',
  values: {},
  finished: {},
  verdict: { kind: 'unknown', sentence: '', numbers: [] },
  replicas: [replica('a:1')],
  ...more,
});

const kind = (name: string) => ({ kind: name, sentence: '', numbers: [] });

describe('address', () => {
  test('a model of any name has a path of one piece', () => {
    for (const name of ['acme/chat-8b', '', '-', HOSTILE, '..', '%2F'])
      expect(parseRoute(inferencePath(name))).toEqual({ page: 'inference', model: name });
    expect(parseRoute('/inference')).toEqual({ page: 'inference', model: null });
    expect(parseRoute('/inference/a/b').page).toBe('missing');
  });
});

describe('models', () => {
  test('what is down comes before what is held back, and the nameless last of its kind', () => {
    const down = model('z', { targets: { up: 0, total: 2 } });
    const part = model('y', { targets: { up: 1, total: 2 } });
    const held = model('x', { verdict: kind('memory_bound') });
    const all = [model(''), model('b'), held, model('a'), part, down];
    expect(ordered(all).map((m) => m.model)).toEqual(['z', 'x', 'y', 'a', 'b', '']);
    expect(needOf(model('q', { verdict: null }))).toBe('info');
  });

  test('a column sorts greatest first, then least first, then not at all; no value is always last', () => {
    const withTtft = (name: string, value: number | null) =>
      model(name, { values: { ttft_p95: figure(value) } });
    const all = [withTtft('a', 1), withTtft('b', null), withTtft('c', 9)];
    let order: string | null = null;
    const click = () => {
      order = nextOrder(parseOrder(order ?? ''), 'ttft_p95');
      return sorted(all, parseOrder(order ?? ''))
        .map((m) => m.model)
        .join('');
    };
    expect([click(), click(), click()]).toEqual(['cab', 'acb', 'abc']);
    expect(order).toBeNull();
    expect(parseOrder('-nothing')).toBeNull();
  });

  test('busy is never believed, and what is not known is said', () => {
    expect(claimOf(model('m', { verdict: kind('memory_bound') }))).toBe(
      'm is memory-bound, whatever “busy” says.',
    );
    expect(claimOf(model('m'))).toContain('no known limit');
    expect(claimOf(model('', { verdict: null }))).toBe('The model without a name tells nothing now.');
  });

  test('to know: replicas down, the limit, missing histograms', () => {
    const none = (key: string) => [key, figure(null, `llamacpp sent no ${key} in this window`)];
    const values = Object.fromEntries(['ttft_p50', 'itl_p50', 'e2e_p50'].map(none));
    expect(toKnow(model('m', { values }))).toBe('no histograms');
    expect(toKnow(model('m', { targets: { up: 1, total: 3 }, verdict: kind('kv_full') }))).toBe(
      '2 replicas down · KV cache full',
    );
  });
});

describe('numbers', () => {
  test('a table has three digits', () => {
    expect([0, 0.0329, 0.41, 1.418, 38.2, 412.4, 6178.3, 21400, 0.00001].map(brief)).toEqual([
      '0',
      '0.033',
      '0.41',
      '1.42',
      '38.2',
      '412',
      '6,178',
      '21.4\u2009k',
      '1e\u22125',
    ]);
  });

  test('unknown is null, infinity is a number', () => {
    expect(figureText(figure(null, 'why'), brief)).toBeNull();
    expect(figureText(undefined, brief)).toBeNull();
    expect(numberOf('+Inf')).toBe(Infinity);
    expect(numberOf('NaN')).toBeNaN();
    expect(numberText('dram', 0.78, '')).toBe('78\u2009%');
    expect(numberText('dram', null, '')).toBe('— unknown');
  });
});

describe('questions', () => {
  test('a hostile name is a string in each selector', () => {
    for (const question of questionsOf(HOSTILE, '60s')) {
      expect(question).toContain(`model=${JSON.stringify(HOSTILE)}`);
      expect(question.replaceAll(JSON.stringify(HOSTILE), '')).not.toContain('<img');
    }
  });

  test('each line of each chart is asked for, and can be copied', () => {
    const all = questionsOf('m', '60s').join(' ');
    for (const chart of CHARTS) {
      for (const { what } of chart.lines) expect(all).toContain(`"what", "${what}"`);
      expect(promqlOf(chart, 'm', '60s').join(' ')).toMatch(/tg_engine_|model:/);
    }
  });
});

const STEP = 10_000;

function answer(rows: [Record<string, string>, (number | null)[]][]): RangeAnswer {
  const steps = Math.max(...rows.map(([, values]) => values.length));
  const series = rows.map(([labels, values]) =>
    seriesOf(
      labels,
      values.flatMap((v, at): [number, string][] => (v === null ? [] : [[(at * STEP) / 1000, String(v)]])),
      0,
      STEP,
      steps,
    ),
  );
  return {
    range: { from: 0, to: (steps - 1) * STEP },
    step: STEP,
    x: Float64Array.from({ length: steps }, (_, at) => at * STEP),
    series,
    total: series.length,
    samplesRead: 0,
    milliseconds: 0,
    warnings: ['w'],
    infos: [],
  };
}

describe('pictures', () => {
  const read = picturesOf('m', '60s', [
    answer([[{ what: 'ttft_p50' }, [1, 2, null, 4]]]),
    answer([
      [{ what: 'kv_mean' }, [0.5, 0.6, 0.7, 0.8]],
      [{ what: 'kv_min' }, [0.1, 0.2, 0.3, 0.4]],
      [{ what: 'kv_max' }, [0.9, 0.9, 1, 1]],
      [{ what: 'preemptions' }, [0, 0, 2, 1]],
    ]),
    answer([
      [{ what: 'finished', reason: 'stop' }, [1, 1, 1, 1]],
      [{ what: 'finished', reason: 'length' }, [2, 2, 2, 2]],
      [{ what: 'resets', job: 'j', instance: 'a:1' }, [null, 1, 1, null]],
      [{ what: 'resets', job: 'j', instance: 'b:1' }, [null, null, null, 1]],
    ]),
  ]);

  test('the band of the mean is the least and the most of the replicas', () => {
    const kv = read.charts.get('kv')!;
    expect(kv.shape.lines).toHaveLength(1);
    expect([...kv.shape.lines[0].min]).toEqual([0.1, 0.2, 0.3, 0.4]);
    expect([...kv.shape.lines[0].max]).toEqual([0.9, 0.9, 1, 1]);
    expect([...kv.bars!.lines[0].raw]).toEqual([0, 0, 2, 1]);
  });

  test('a gap stays one, and what nobody sent is no picture', () => {
    expect(read.charts.get('ttft')!.shape.lines[0].breaks).toHaveLength(1);
    expect(read.charts.has('itl')).toBe(false);
  });

  test('reasons come by how many ended so', () => {
    expect(read.charts.get('finished')!.shape.lines.map((l) => l.key)).toEqual(['length', 'stop']);
  });

  test('a counter that began anew is one mark, however many steps see it', () => {
    expect(read.resets).toEqual([
      { time: STEP, instance: 'a:1' },
      { time: 3 * STEP, instance: 'b:1' },
    ]);
    expect(read.charts.get('tokens')).toBeUndefined();
  });
});

describe('buckets', () => {
  test('a quantile lies in the bucket whose bound it does not pass', () => {
    const row = (le: string) => ({ metric: { __name__: 'tg_engine_ttft_seconds_bucket', le } });
    const bounds = boundsOf(['+Inf', '0.5', '10', '2.5'].map(row)).get('tg_engine_ttft_seconds')!;
    expect(bucketOf(bounds, 0.2)).toEqual([0, 0.5]);
    expect(bucketOf(bounds, 2.5)).toEqual([0.5, 2.5]);
    expect(bucketOf(bounds, 4)).toEqual([2.5, 10]);
    expect(bucketOf(bounds, 99)).toEqual([10, Infinity]);
    expect(bucketOf([], 1)).toBeNull();
  });
});

describe('events', () => {
  const event = (labels: Record<string, string>): FleetEvent => ({
    time: 5,
    time_ns: '5',
    kind: 'engine',
    severity: 'warning',
    key: JSON.stringify(labels),
    labels,
    text: `of ${JSON.stringify(labels)}`,
    body: {},
  });

  test('those of other models and targets are not this model’s', () => {
    const of = { model: 'm', instances: new Set(['a:1']) };
    const labels: Record<string, string>[] = [
      { model: 'm' },
      { model: 'n' },
      { instance: 'a:1' },
      { instance: 'b:1' },
    ];
    const events = labels.map(event);
    const marks = marksOf([{ time: 1, instance: 'a:1' }], events, of);
    expect(marks.map((m) => m.texts[0])).toEqual([
      'a:1 began anew',
      'of {"model":"m"}',
      'of {"instance":"a:1"}',
    ]);
  });

  test('a restart that the server tells of is there once', () => {
    const of = { model: 'm', instances: new Set(['a:1', 'b:1']) };
    const told = { ...event({ instance: 'a:1' }), body: { what: 'restart' } };
    const resets = [
      { time: 1, instance: 'a:1' },
      { time: 1, instance: 'b:1' },
      { time: 7_200_000, instance: 'a:1' },
    ];
    expect(marksOf(resets, [told], of).map((m) => m.texts[0])).toEqual([
      'b:1 began anew',
      'of {"instance":"a:1"}',
      'a:1 began anew',
    ]);
  });
});

describe('replicas', () => {
  test('down first, then the worst, then what has no value', () => {
    const values = (value: number | null) => ({
      ttft_p95: figure(value),
      output_tokens_per_second: figure(value),
    });
    const m = model('m', {
      replicas: [
        replica('fast', { values: values(1) }),
        replica('none', { values: values(null) }),
        replica('slow', { values: values(9) }),
        replica('gone', { up: false }),
      ],
    });
    const names = (key: string, worse: 'high' | 'low') =>
      drawnOf(m, key, worse).map((d) => d.replica.instance);
    expect(names('ttft_p95', 'high')).toEqual(['gone', 'slow', 'fast', 'none']);
    expect(names('output_tokens_per_second', 'low')).toEqual(['gone', 'fast', 'slow', 'none']);
  });
});

describe('vocabulary', () => {
  const page: Page = {
    job: 'j',
    instance: 'a:1',
    engine: 'vllm',
    title: 'vLLM',
    version: null,
    url: '',
    read: '',
    matched: [
      { source: 'vllm:kv_cache_usage_perc', canonical: 'tg_engine_kv_usage_ratio', note: 'A ratio.' },
      { source: 'vllm:by_reason', canonical: null, note: '' },
    ],
    unknown: ['vllm:novel_total'],
    missing: [{ canonical: 'tg_engine_itl_seconds', expected: ['vllm:itl'], text: 'since 0.10' }],
  };

  test('what is not as expected comes first', () => {
    expect(rowsOf(page).map((r) => [r.kind, r.name])).toEqual([
      ['unknown', 'vllm:novel_total'],
      ['missing', 'tg_engine_itl_seconds'],
      ['matched', 'tg_engine_kv_usage_ratio'],
      ['matched', 'vllm:by_reason'],
    ]);
  });

  test('a search finds names under both spellings, and all its words', () => {
    const found = (search: string) => searched(rowsOf(page), search).map((r) => r.name);
    expect(found('CACHE_usage')).toEqual(['tg_engine_kv_usage_ratio']);
    expect(found('matched kv')).toEqual(['tg_engine_kv_usage_ratio']);
    expect(found('')).toHaveLength(4);
    expect(found('zzz')).toEqual([]);
  });
});

describe('objectives and goodput', () => {
  const model = (values: Record<string, number | null>, objectives: Partial<Objectives> | null = null) =>
    ({
      values: Object.fromEntries(Object.entries(values).map(([k, value]) => [k, { value }])),
      objectives: objectives && { ttft: null, tpot: null, itl: null, goodput: null, ...objectives },
    }) as unknown as Model;

  test('goodput is a pair of bounds, and only what misses the target whatever is true is bad', () => {
    const bounds = (low: number | null, high: number | null, goodput: number | null) =>
      goodputOf(model({ goodput_lower: low, goodput_upper: high }, { goodput }));
    expect(bounds(0.71, 0.83, 0.95)?.tone).toBe('crit');
    expect(bounds(0.93, 0.97, 0.95)?.tone).toBe('warn');
    expect(bounds(0.95, 0.97, 0.95)?.tone).toBe('');
    expect(bounds(0.1, 0.2, null)?.tone).toBe('');
    expect(bounds(null, 0.9, 0.95)).toBeNull();
  });

  test('a latency misses its objective, one without an objective never does', () => {
    const ttft = COLUMNS.find((c) => c.key === 'ttft_p95')!;
    expect(misses(model({ ttft_p95: 3.9 }, { ttft: 2 }), ttft)).toBe(true);
    expect(misses(model({ ttft_p95: 1.9 }, { ttft: 2 }), ttft)).toBe(false);
    expect(misses(model({ ttft_p95: 3.9 }), ttft)).toBe(false);
    expect(misses(model({ ttft_p95: null }, { ttft: 2 }), ttft)).toBe(false);
  });

  test('objectives are told in the unit that one thinks in', () => {
    expect(objectivesText({ ttft: 2, tpot: 0.06, itl: 0.2, goodput: 0.95 })).toBe(
      'TTFT 2 s · TPOT 60 ms · ITL 200 ms · goodput 0.95',
    );
    expect(objectivesText({ ttft: null, tpot: null, itl: null, goodput: null })).toBe('');
    expect(objectivesText(null)).toBe('');
  });

  test('the goodput chart is a band between its bounds, the cost chart two lines', () => {
    const pictures = picturesOf('m', '60s', [
      answer([
        [{ what: 'goodput_lower' }, [0.7, 0.8]],
        [{ what: 'goodput_upper' }, [0.9, 1]],
        [{ what: 'usd_per_mtok' }, [2, 2]],
        [{ what: 'usd_per_mtok_busy' }, [1, 1]],
      ]),
    ]);
    const [low, high] = pictures.charts.get('goodput')!.shape.lines;
    expect([...low.min]).toEqual([0.7, 0.8]);
    expect([...low.max]).toEqual([0.9, 1]);
    expect([...high.max]).toEqual([0.9, 1]);
    const money = pictures.charts.get('usd')!.shape.lines;
    expect(money.map((l) => l.key)).toEqual(['with idle', 'busy only']);
    expect([...money[0].max]).toEqual([2, 2]);
  });
});
