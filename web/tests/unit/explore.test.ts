import { describe, expect, test } from 'vitest';
import { ranked, readValue, seriesOf, shapeOfRange, tellingLabels } from '../../src/explore/answer';
import { pythonOf } from '../../src/explore/as_text';
import { inserted, optionsOf } from '../../src/explore/complete';
import { examplesOf } from '../../src/explore/examples';
import { hasCondition, nameProblem, ruleYaml, suggestedName } from '../../src/explore/rule';
import {
  autoStep,
  formatDuration,
  gridOf,
  parseDuration,
  parseSpan,
  parseTime,
  presetFor,
  STEPS_MAX,
  writeSpan,
} from '../../src/explore/span';
import { csvOf } from '../../src/explore/table_file';
import { unitOf } from '../../src/explore/unit';
import { metricsIn, mistakeOf, plainError, wordsOf } from '../../src/explore/words';

describe('a range for young data', () => {
  const minute = 60_000;
  test('it is the shortest that holds them, where most of the picture would be empty', () => {
    expect(presetFor(2 * minute, 360 * minute)).toBe('15m');
    expect(presetFor(16 * minute, 360 * minute)).toBe('1h');
    expect(presetFor(100 * minute, 360 * minute)).toBeNull();
    expect(presetFor(-1, 360 * minute)).toBeNull();
    expect(presetFor(minute, 10 * minute)).toBeNull();
  });
});

describe('words of a query', () => {
  test('nothing is lost, whatever is typed', () => {
    for (const query of [
      '',
      'max by (host, gpu) (rate(a:b{c=~"x\\"}",d!="é"}[5m] offset -1h)) > bool 0.02 # end',
      'sum(',
      '"open',
      "'it\\'s",
      '`raw \\`',
      'a \u202e b \u{1f600} {"utf8.name", x=""}',
      '1e-3 + 0x1F + .5 + 1h30m',
    ])
      expect(
        wordsOf(query)
          .map((w) => w.text)
          .join(''),
      ).toBe(query);
  });

  test('a word knows what it is', () => {
    const kinds = wordsOf('max by (host) (rate(up{job="a"}[5m])) and up')
      .filter((w) => w.kind !== 'space' && w.kind !== 'sign')
      .map((w) => `${w.text} ${w.kind}`);
    expect(kinds).toEqual([
      'max call',
      'by call',
      'host label',
      'rate call',
      'up name',
      'job label',
      '"a" text',
      '5m number',
      'and call',
      'up name',
    ]);
  });

  test('metrics are those that exist, not labels, functions or text', () => {
    const exist = new Set(['up', 'job', 'rate', 'loss']);
    expect(metricsIn('rate(up{job="loss"}[5m]) + up / on (job) loss', exist)).toEqual(['up', 'loss']);
  });
});

describe('completion', () => {
  const answer = (wants: string, typed: string, from: number, to: number) => ({
    wants,
    typed,
    from,
    to,
    options: [
      { text: 'tg_a', insert: 'tg_a', kind: 'metric' as const, series: 1200, unit: 's', type: 'counter' },
      {
        text: 'rate',
        insert: 'rate(',
        kind: 'function' as const,
        arguments: 'v range-vector',
        help: 'Growth.',
      },
      { text: 'host', insert: 'host', kind: 'label' as const, series: 9, values: 1 },
    ],
  });

  test('places are characters, indexes are not', () => {
    const found = optionsOf('\u{1f600} tg', answer('expression', 'tg', 2, 4), false)!;
    expect([found.from, found.to]).toEqual([3, 5]);
    expect(inserted('\u{1f600} tg', found, 'tg_a')).toEqual({ text: '\u{1f600} tg_a', cursor: 7 });
  });

  test('beside a choice stands what it costs', () => {
    const notes = optionsOf('tg', answer('expression', 'tg', 0, 2), false)!.options.map((o) => [
      o.note,
      o.about,
    ]);
    expect(notes).toEqual([
      ['s · 1,200', 'counter, s'],
      ['function', 'v range-vector'],
      ['1 value', ''],
    ]);
  });

  test('names of all there is come only where they are few, or were asked for', () => {
    expect(optionsOf('', answer('expression', '', 0, 0), false)).toBeNull();
    expect(optionsOf('', answer('expression', '', 0, 0), true)).not.toBeNull();
    expect(optionsOf('up{', answer('label', '', 3, 3), false)).not.toBeNull();
    expect(optionsOf('up{', { ...answer('label', '', 3, 3), options: [] }, true)).toBeNull();
  });

  test('what was typed since the list was made is replaced too', () => {
    const found = optionsOf('sum(tg)', answer('expression', 'tg', 4, 6), false)!;
    expect(inserted('sum(tg_a_b)', found, 'tg_a')).toEqual({ text: 'sum(tg_a)', cursor: 8 });
    expect(inserted('sum(t)', found, 'tg_a')).toEqual({ text: 'sum(tg_a)', cursor: 8 });
  });
});

describe('rules', () => {
  test('a query that compares is a condition, others are not', () => {
    for (const query of ['up == 0', 'rate(a[5m]) > bool 1', 'absent(up)', 'sum by (a) (b) <= 2'])
      expect(hasCondition(query), query).toBe(true);
    for (const query of ['up', 'sum(up == 0)', 'up{a="=="}', 'a and b'])
      expect(hasCondition(query), query).toBe(false);
  });

  test('names are such as Prometheus takes', () => {
    expect(suggestedName('sum by (host, gpu) (rate(a:b_total[5m]))', 'record')).toBe('host_gpu:a_b:sum5m');
    expect(suggestedName('up', 'record')).toBe('all:up:value');
    expect(suggestedName('rate(http_requests_total[5m]) > 1', 'alert')).toBe('HttpRequests');
    for (const query of ['up', '1 + 1', '{a="b"}', 'é > 1']) {
      expect(nameProblem(suggestedName(query, 'record'), 'record'), query).toBe('');
      expect(suggestedName(query, 'alert'), query).toMatch(/^[A-Z]/);
    }
    expect(nameProblem('1a', 'record')).not.toBe('');
    expect(nameProblem(' ', 'alert')).not.toBe('');
  });

  test('the file holds the query as it is, and hostile names as text', () => {
    const form = { name: 'a"\n#', pending: '5m', severity: 'page', condition: '> 1' };
    expect(ruleYaml({ ...form, kind: 'alert', query: 'a or # x\nb' })).toBe(
      `groups:
  - name: explore
    rules:
      - alert: "a\\"\\n#"
        expr: |-
          (
          a or # x
          b
          ) > 1
        for: 5m
        labels:
          severity: "page"
        annotations:
          summary: "a\\"\\n#: {{ $value }}"
`,
    );
    expect(ruleYaml({ ...form, kind: 'record', query: 'up' })).not.toContain('labels');
  });
});

describe('mistakes', () => {
  test('a place in bytes is a place in the text', () => {
    const found = mistakeOf('sum(löss{', 'invalid parameter "query": 1:10: parse error: no end');
    expect(found).toEqual({ at: 8, line: 1, column: 9, reason: 'parse error: no end' });
    expect(mistakeOf('a\n+ +', '2:3: parse error: x')).toMatchObject({ at: 4, line: 2, column: 3 });
    expect(mistakeOf('a', '1:99: parse error: x')?.at).toBe(1);
    expect(mistakeOf('a', 'query timed out at 1:30')).toBeNull();
    expect(plainError('invalid parameter "query": 1:1: parse error: x')).toBe('1:1: parse error: x');
  });
});

describe('time', () => {
  test('durations are what Prometheus reads and writes', () => {
    for (const [text, ms] of [
      ['1h30m', 5_400_000],
      ['90s', 90_000],
      ['500ms', 500],
      ['1w', 604_800_000],
    ] as const) {
      expect(parseDuration(text)).toBe(ms);
      expect(parseDuration(formatDuration(ms))).toBe(ms);
    }
    expect(parseDuration('15')).toBe(15_000);
    for (const wrong of ['', '0', 'x', '1h x', '-5m', '0s']) expect(parseDuration(wrong), wrong).toBeNull();
  });

  test('a range is the last while, or fixed, and rubbish is the usual one', () => {
    for (const span of [{ last: '3h' }, { from: 1000, to: 2000 }]) {
      const { from, to } = writeSpan(span);
      expect(parseSpan(from ?? '', to ?? '')).toEqual(span);
    }
    for (const [from, to] of [
      ['', ''],
      ['x', '5'],
      ['5', '4'],
      ['-', ''],
      ['-0s', ''],
    ] as const)
      expect(parseSpan(from, to)).toEqual({ last: '1h' });
  });

  test('an automatic step keeps every range inside what is answered', () => {
    for (const seconds of [1, 60, 3600, 86_400, 30 * 86_400, 10 * 365 * 86_400, 1e10]) {
      const range = { from: 0, to: seconds * 1000 };
      const step = autoStep(range);
      expect((range.to - range.from) / step, `${seconds} s`).toBeLessThanOrEqual(800);
      const grid = gridOf({ from: 1234, to: 1234 + range.to }, step);
      expect(grid.from % step).toBe(0);
      expect((grid.to - grid.from) / step).toBeLessThanOrEqual(STEPS_MAX);
    }
  });

  test('times are read as they are pasted', () => {
    const ms = Date.UTC(2026, 10, 30, 11, 34, 7);
    for (const text of [
      '2026-11-30 11:34:07 UTC',
      '2026-11-30 11:34:07',
      '2026-11-30T11:34:07Z',
      '2026-11-30T12:34:07+01:00',
      `${ms}`,
      `${ms / 1000}`,
      `${ms}000000`,
    ])
      expect(parseTime(text), text).toBe(ms);
    for (const wrong of ['', 'yesterday', '11:34', '2026-13-40 99:00'])
      expect(parseTime(wrong), wrong).toBeNull();
  });
});

describe('answers', () => {
  const samples = (values: [number, string][]) => values;
  const series = (labels: Record<string, string>, values: [number, string][]) =>
    seriesOf(labels, samples(values), 0, 10_000, 6);

  test('each sample stands on its step, and statistics leave out what is no number', () => {
    const one = series({ a: 'x' }, [
      [0, '1'],
      [10, 'NaN'],
      [30, '4'],
      [60, '9'],
      [50, '+Inf'],
    ]);
    expect(Array.from(one.present)).toEqual([1, 1, 0, 1, 0, 1]);
    expect([one.min, one.max, one.last]).toEqual([1, Infinity, Infinity]);
    expect(readValue('-Inf')).toBe(-Infinity);
    const none = series({}, []);
    expect([none.last, none.min, none.mean].every(Number.isNaN)).toBe(true);
  });

  test('a step without a sample breaks the line; where all are without, it is hatched', () => {
    const a = series({ host: 'a' }, [
      [0, '1'],
      [10, '2'],
      [30, '3'],
      [40, '3'],
      [50, '3'],
    ]);
    const b = series({ host: '2' }, [
      [0, '1'],
      [10, '2'],
      [30, 'NaN'],
      [40, '3'],
      [50, '3'],
    ]);
    const x = Float64Array.from([0, 1, 2, 3, 4, 5], (s) => s * 10_000);
    const answer = {
      range: { from: 0, to: 50_000 },
      step: 10_000,
      x,
      series: [a, b],
      total: 2,
      samplesRead: 10,
      milliseconds: 1,
      warnings: [],
      infos: [],
    };
    const shape = shapeOfRange(answer, [a, b], tellingLabels([a, b]));
    expect(shape.lines.map((l) => l.key)).toEqual(['a', 'host 2']);
    expect(shape.lines[0].breaks).toEqual([{ from: 10_000, to: 30_000 }]);
    expect(shape.holes).toEqual([{ from: 10_000, to: 30_000 }]);
    expect(shape.marks).toEqual([{ x: 30_000, kind: 'NaN', count: 1 }]);
    expect(
      csvOf([{ query: 'a,b', answer }])
        .split('\n')
        .slice(0, 2),
    ).toEqual(['query,time,host,value', '"a,b",1970-01-01T00:00:00.000Z,a,1']);
  });

  test('the highest last value comes first, what has ended last', () => {
    const low = series({ n: 'low' }, [[50, '1']]);
    const high = series({ n: 'high' }, [[50, '2']]);
    const nan = series({ n: 'nan' }, [[50, 'NaN']]);
    const ended = series({ n: 'ended' }, [[40, '9']]);
    expect(ranked([ended, nan, low, high]).map((s) => s.labels.n)).toEqual(['high', 'low', 'nan', 'ended']);
  });
});

describe('what a query means', () => {
  const known = new Map([
    ['bytes_total', { unit: 'B' }],
    ['busy_seconds_total', { unit: 's' }],
    ['cpu', { unit: '%' }],
    ['wait_bucket', { unit: 'ms' }],
  ]);

  test('the unit is that of the metric, as long as nothing is reckoned', () => {
    expect(unitOf('avg by (host) (cpu)', known)).toBe('%');
    expect(unitOf('rate(bytes_total[5m])', known)).toBe('B/s');
    expect(unitOf('rate(busy_seconds_total[5m])', known)).toBe('');
    expect(unitOf('histogram_quantile(0.9, sum by (le) (rate(wait_bucket[5m])))', known)).toBe('ms');
    expect(unitOf('rate(wait_bucket[5m])', known)).toBe('1/s');
    for (const query of ['wait_bucket', 'cpu * 2', 'count(cpu)', 'cpu + bytes_total', 'unheard_of', '1'])
      expect(unitOf(query, known), query).toBe('');
  });

  test('examples name only what exists', () => {
    const metric = (name: string, series: number, type = 'gauge') => ({
      name,
      series,
      type,
      unit: '',
      help: '',
      caveat: '',
    });
    expect(examplesOf([])).toEqual([]);
    const queries = examplesOf([
      metric('loss', 3),
      metric('sent_total', 2, 'counter'),
      metric('wide', 900),
      metric('weird"name', 1),
    ]).map((e) => e.query);
    expect(queries.slice(0, 3)).toEqual(['loss', 'rate(sent_total[5m])', 'topk(5, wide)']);
    expect(queries.join()).not.toContain('weird');
  });

  test('Python holds hostile text as text', () => {
    const python = pythonOf('http://h', ['up{a="\\"\n"}'], { from: 0, to: 60_000 }, 15_000);
    expect(python.trimEnd().split('\n').at(-1)).toBe(
      'a = tg.query("up{a=\\"\\\\\\"\\n\\"}", start=0, end=60, step=15, url=SERVER).to_pandas()',
    );
    expect(python).toContain('SERVER = "http://h"');
  });
});
