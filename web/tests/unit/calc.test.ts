import { describe, expect, test } from 'vitest';
import type { CalcAnswer, Tool } from '../../src/calc/answers';
import { fillFromModel, measuredOf } from '../../src/calc/fill';
import { curveBatches, fieldOf } from '../../src/calc/model';
import { expectedAt, logSteps, sceneOf, sceneText, spotsOf } from '../../src/calc/roofline';
import {
  columnsOf,
  exampleLine,
  exampleOf,
  figureOrder,
  figureTitle,
  formOrder,
  titleOf,
  unitOf,
  usualInputs,
  valueText,
  wordsOf,
} from '../../src/calc/words';
import type { Model } from '../../src/inference/answers';
import { ApiError } from '../../src/lib/api';

const THIN = '\u2009';
const input = (
  name: string,
  kind: 'number' | 'numbers' | 'switch' | 'table' | 'series' | 'text' = 'number',
) => ({
  name,
  value: 'N',
  help: '',
  kind,
  bounds: null,
  words: null,
  columns: null,
  is_file: kind === 'table',
});
const tool: Tool = {
  name: 'economics',
  about: '',
  inputs: [
    input('price'),
    input('occupancy', 'numbers'),
    input('moe', 'switch'),
    input('q', 'series'),
    input('samples', 'table'),
  ],
  examples: [
    'truegauge calc economics samples.csv --price 2.50',
    "truegauge calc economics --price 2.5 --occupancy '0.6, 1' --moe --json",
  ],
};

describe('command lines and files', () => {
  test('quotes hold a word together', () => {
    expect(wordsOf(`a --b 'c d' "e f" g`)).toEqual(['a', '--b', 'c d', 'e f', 'g']);
  });

  test('an example is one that needs no file', () => {
    expect(exampleLine(tool)).toContain('--occupancy');
    expect(exampleLine({ ...tool, examples: ['x times.txt'] })).toBe('x times.txt');
    expect(exampleLine({ ...tool, examples: [] })).toBe('');
  });

  test('flags of an example are inputs, what is none is left out', () => {
    expect(exampleOf(tool, exampleLine(tool))).toEqual({ price: '2.5', occupancy: '0.6, 1', moe: '1' });
    expect(exampleOf(tool, 'truegauge calc economics --price=3')).toEqual({ price: '3' });
  });

  const columns = [
    { name: 't', is_needed: true },
    { name: 'tokens', is_needed: true },
    { name: 'running', is_needed: false },
  ];

  test('rows come by the names in the first line, or in their order', () => {
    expect(columnsOf('tokens,t\n5,0\n6,15\n', columns)).toEqual({ t: [0, 15], tokens: [5, 6] });
    expect(columnsOf('0,5,1\n15,6,\n', columns)).toEqual({ t: [0, 15], tokens: [5, 6], running: [1, null] });
    expect(
      columnsOf('le,count\n0.5,3\n+Inf,4', [
        { name: 'le', is_needed: true },
        { name: 'count', is_needed: true },
      ]),
    ).toEqual({
      le: [0.5, '+Inf'],
      count: [3, 4],
    });
  });

  test('what cannot be read is said with its line', () => {
    expect(() => columnsOf('t\n1', columns)).toThrow('there is no column tokens');
    expect(() => columnsOf('t,tokens\n1,2\nx,3', columns)).toThrow('line 3 has x, which is no number');
  });

  test('files come first, and what only the command line can ask has no field', () => {
    expect(formOrder(tool.inputs).map((i) => i.name)).toEqual(['samples', 'price', 'occupancy', 'moe']);
  });
});

describe('names and units', () => {
  test.each([
    ['kv_bytes_per_token', 'KV bytes per token', 'B'],
    ['usd_per_mtok_busy', '$ per Mtok busy', 'usd_per_mtok_busy'],
    ['mfu_ratio', 'MFU ratio', 'ratio'],
    ['itl_seconds_p99', 'ITL seconds p99', 'seconds'],
    ['tokens_per_second_corrected', 'Tokens per second corrected', 'tok/s'],
    ['peak_bytes_per_second', 'Peak bytes per second', 'B/s'],
    ['batch_max', 'Batch max', ''],
  ])('%s', (name, title, unit) => {
    expect(titleOf(name)).toBe(title);
    expect(unitOf(name)).toBe(unit);
  });

  test('values are written in their unit, and none where there is none', () => {
    expect(valueText(0.0048742, 's')).toBe(`4.874${THIN}ms`);
    expect(valueText(0.324494, 'ratio')).toBe(`32.4${THIN}%`);
    expect(valueText(0.28623, 'USD')).toBe(`$${THIN}0.29`);
    expect(valueText(false, '')).toBe('no');
    expect(valueText([1, null], '')).toBe('1, —');
    expect(valueText(8, 'sequences')).toBe('8');
    expect(valueText(null, 's')).toBeNull();
  });
});

test('a refusal belongs to the input that it names', () => {
  expect(fieldOf(new ApiError(400, 'x', '', '', 'price'), tool)).toBe('price');
  expect(fieldOf(new ApiError(400, '`price` is -1, and has to be 0 or more'), tool)).toBe('price');
  expect(fieldOf(new ApiError(400, '`other` is wrong'), tool)).toBeNull();
  expect(fieldOf(new ApiError(503, '`price`'), tool)).toBeNull();
});

describe('the roofline', () => {
  const row = (batch: number, tokens: number, tensor: number, memory = 1) => ({
    batch,
    tokens_per_second: tokens,
    tensor_busy_ratio: tensor,
    memory_busy_ratio: memory,
  });
  const answer = (rows: CalcAnswer['rows'], more: Partial<CalcAnswer> = {}): CalcAnswer => ({
    tool: 'roofline',
    result: { batch_max: 59 },
    rows,
    columns: [],
    assumptions: [],
    formula: [],
    inputs: { gpus: 1 },
    warnings: [],
    absent: [],
    command: '',
    ...more,
  });
  const model = (more: Partial<Model> = {}): Model =>
    ({
      model: 'm',
      gpus: 8,
      gpus_reason: null,
      targets: { up: 2, total: 2 },
      replicas: [
        {
          instance: 'a:1',
          dp_rank: null,
          values: { running: { value: 8 }, output_tokens_per_second: { value: 2000 } },
        },
        {
          instance: 'b:1',
          dp_rank: null,
          values: { running: { value: 0 }, output_tokens_per_second: { value: 0 } },
        },
      ],
      values: {},
      ...more,
    }) as unknown as Model;

  test('roofs follow from the shares of a step', () => {
    const scene = sceneOf(answer([row(1, 200, 0.01), row(100, 8000, 0.5)]), null, null, 0.05)!;
    expect(scene.memory).toEqual([
      [1, 200],
      [100, 8000],
    ]);
    expect(scene.compute).toEqual([
      [1, 20_000],
      [100, 16_000],
    ]);
    expect(scene.fits).toBe(59);
    expect(scene.perRequest).toBe(20);
    expect(sceneOf(answer([]), null, null, null)).toBeNull();
  });

  test('what was seen is held against the roof at the same batch, on as many cards', () => {
    const measured = measuredOf(model(), 5);
    expect(measured.points.map((p) => p.name)).toEqual(['a:1']);
    expect(measured.cards).toBe(4);
    const rows = [row(1, 200, 0.01), row(16, 3200, 0.1)];
    const one = sceneOf(answer(rows), null, measured, null)!;
    expect(one.seen[0].at).toEqual([8, 500]);
    expect(one.seen[0].share).toBeCloseTo(500 / 1600, 3);
    const four = sceneOf(answer(rows, { inputs: { gpus: 4 } }), null, measured, null)!;
    expect(four.seen[0].at).toEqual([8, 2000]);
    expect(sceneText(one)).toContain('a:1 was seen at batch 8');
  });

  test('without cards that anybody tells of, what is missing is said', () => {
    const measured = measuredOf(model({ gpus: null, gpus_reason: 'no owner', replicas: [] }), 5);
    expect(measured.missing).toEqual(['no replica had requests in the last five minutes', 'no owner']);
  });

  test('between two spots a line is straight on both log axes', () => {
    const line = spotsOf(answer([row(1, 100, 0.1), row(100, 10_000, 0.1)]));
    expect(expectedAt(line, 10)).toBeCloseTo(1000, 6);
    expect(expectedAt(line, 1000)).toBeNull();
    expect(expectedAt(line, 1)).toBe(100);
  });

  test('the curve goes from one request to beyond all that is asked for', () => {
    const all = curveBatches(128).map(Number);
    expect(all[0]).toBe(1);
    expect(all.at(-1)).toBe(512);
    expect(all.every((b, at) => at === 0 || b > all[at - 1])).toBe(true);
  });

  test('ticks thin out where there is no room', () => {
    expect(logSteps(1, 100, 20)).toEqual([1, 2, 5, 10, 20, 50, 100]);
    expect(logSteps(1, 100, 4)).toEqual([1, 10, 100]);
  });

  test('an engine fills what it tells, and nothing else', () => {
    const filled = fillFromModel(
      model({ price: { gpu_model: 'h100', usd_per_gpu_hour: null, revision: null } } as Partial<Model>),
      ['gpu', 'gpus', 'batch', 'context', 'price'],
    );
    expect(filled).toEqual({ gpu: 'h100', gpus: '4', batch: '1,8,32,64,128' });
  });
});

test('figures stand in the order of their formulas, and a form has first what examples give', () => {
  expect(figureOrder(['a', 'mfu_ratio', 'b'], [{ name: 'mfu_ratio' }])).toEqual(['mfu_ratio', 'a', 'b']);
  expect(figureTitle('itl_seconds_p99')).toBe('ITL p99');
  expect([...usualInputs(tool)]).toEqual(['samples', 'price', 'occupancy', 'moe']);
});
