/** The timeline without a page: rows, merging, pixels, order, and what is under the pointer. */
import { describe, expect, test } from 'vitest';
import { PHASES, phaseAt } from '../../src/lib/phases';
import { readKey, type SpansAnswer, writeKey } from '../../src/timeline/answer';
import { readRanks } from '../../src/timeline/choice';
import { hitAt } from '../../src/timeline/hit';
import { ABOVE, laneAt, PITCH, place, stripsOf } from '../../src/timeline/layout';
import { shares } from '../../src/timeline/minimap';
import { confined, keyOf, nextSpan, placeOf } from '../../src/timeline/model';
import { byRank, ownTimes, slowest } from '../../src/timeline/order';
import { paintStrips, type SpanInk } from '../../src/timeline/paint';
import { firstAfter, ROWS_MAX, type Spans, spansOf } from '../../src/timeline/rows';
import { type Block, sweep } from '../../src/timeline/sweep';
import { ticksOf } from '../../src/timeline/ticks';
import { lengthText, rulerText, shiftText, shortNames } from '../../src/timeline/words';
import { madeSpans } from '../stories/spans';

type One = [lane: number, name: string, depth: number, start: number, end: number, status?: number];

/** An answer with these spans; a name's phase is what stands before its colon. */
function answerOf(all: One[], lanes = 1): SpansAnswer {
  const names = [...new Set(all.map(([, name]) => name))];
  return {
    ...madeSpans({ ranks: lanes, microbatches: 1, layers: 0 }),
    names,
    phases: names.map((name) => (name.includes(':') ? name.split(':')[0] : null)),
    groups: names.map(() => null),
    traces: ['0'.repeat(32)],
    spans: {
      lane: all.map(([lane]) => lane),
      name: all.map(([, name]) => names.indexOf(name)),
      trace: all.map(() => 0),
      id: all.map((_, at) => at.toString(16).padStart(16, '0')),
      start_us: all.map((one) => one[3]),
      length_us: all.map((one) => one[4] - one[3]),
      depth: all.map((one) => one[2]),
      status: all.map((one) => one[5] ?? 0),
      iteration: all.map(() => 1),
    },
  };
}

const rowsOf = (all: One[]) => spansOf(answerOf(all)).lanes[0].rows.map((row) => [...row.span]);

describe('rows', () => {
  test('a span lies at its depth, and below where it would overlap another', () => {
    expect(
      rowsOf([
        [0, 'a', 0, 0, 100],
        [0, 'b', 1, 0, 60],
        [0, 'c', 1, 40, 100],
        [0, 'd', 1, 60, 90],
      ]),
    ).toEqual([[0], [1, 3], [2]]);
  });

  test('ends that touch within a microsecond are no overlap', () => {
    expect(
      rowsOf([
        [0, 'a', 0, 0, 10.9],
        [0, 'b', 0, 10, 20],
        [0, 'c', 0, 18, 30],
      ]),
    ).toEqual([[0, 1], [2]]);
  });

  test('what nests too deep shares the last row, and is still found by time', () => {
    const deep: One[] = Array.from({ length: 40 }, (_, at) => [0, 'x', at, at, 100 - at]);
    const { rows } = spansOf(answerOf(deep)).lanes[0];
    expect(rows).toHaveLength(ROWS_MAX);
    const last = rows[ROWS_MAX - 1];
    expect(last.span).toHaveLength(40 - ROWS_MAX + 1);
    expect([...last.reach]).toEqual([...last.reach].sort((a, b) => a - b));
    expect(firstAfter(last.reach, 76.5)).toBe(0);
  });

  test('a span that ends before it starts keeps its start and has no length', () => {
    const { start, end, from, to } = spansOf(answerOf([[0, 'a', 0, 50, 20]]));
    expect([start[0], end[0], from, to]).toEqual([50, 50, 50, 50]);
  });
});

describe('the step', () => {
  /** A step from 7,000 to 8,000 in a span of a whole run, and a checkpoint before it. */
  const within = (): SpansAnswer => {
    const answer = answerOf([
      [0, 'iteration:run', 0, 0, 90_000],
      [0, 'checkpoint:save', 1, 6400, 6900],
      [0, 'iteration:step', 1, 7000, 8000],
      [0, 'communication:wait', 2, 7600, 7900],
    ]);
    answer.step = 12;
    answer.origin_ns = '1000000000';
    answer.spans.iteration = [null, null, 12, null];
    return answer;
  };

  test('times count from its start, and its window leaves out what it lies in', () => {
    const spans = spansOf(within());
    expect([...spans.start]).toEqual([-7000, -600, 0, 600]);
    expect(spans.origin).toBe(1_007_000_000n);
    expect(spans.home).toEqual({ from: -600, to: 1000 });
    expect([spans.from, spans.to]).toEqual([-7000, 83_000]);
  });

  test('own time is counted within it', () => {
    const [own] = ownTimes(spansOf(within()));
    expect(own[phaseAt('checkpoint')]).toBe(500);
    expect(own[phaseAt('communication')]).toBe(300);
    expect(own.reduce((sum, time) => sum + time, 0)).toBe(1600);
  });

  test('without a step all is shown from the first start on', () => {
    const spans = spansOf({ ...within(), step: null });
    expect(spans.home).toEqual({ from: 0, to: 90_000 });
  });
});

function blocksOf(all: One[], window = { from: 0, to: 100 }, width = 100, lit: Uint8Array | null = null) {
  const spans = spansOf(answerOf(all));
  const found: Block[] = [];
  const traits = { phase: spans.phase, status: spans.answer.spans.status, lit };
  for (const row of spans.lanes[0].rows)
    sweep(row, window, width, traits, (block) => found.push({ ...block }));
  return found;
}

describe('merging', () => {
  test('spans of less than a pixel that leave none free become one block, which counts them', () => {
    const tiny: One[] = Array.from({ length: 50 }, (_, at) => [
      0,
      'optimizer:t',
      0,
      10 + at / 5,
      10.1 + at / 5,
    ]);
    const blocks = blocksOf([...tiny, [0, 'communication:w', 0, 30, 60], [0, 'optimizer:t', 0, 80, 80.2]]);
    expect(blocks.map((b) => [b.left, b.right, b.end - b.first, b.merged])).toEqual([
      [10, 20, 50, true],
      [30, 60, 1, false],
      [80, 81, 1, false],
    ]);
    expect(PHASES[blocks[0].phase].key).toBe('optimizer');
  });

  test('its colour is that of most of its time, and one error in it is told', () => {
    const [block] = blocksOf([
      [0, 'optimizer:a', 0, 10.0, 10.2],
      [0, 'communication:b', 0, 10.2, 10.9, 2],
      [0, 'optimizer:a', 0, 10.9, 11.1],
    ]);
    expect(PHASES[block.phase].key).toBe('communication');
    expect(block.error).toBe(true);
  });

  test('one span that is looked for lights a block and gives it its colour', () => {
    const lit = Uint8Array.of(0, 1, 0);
    const [block] = blocksOf(
      [
        [0, 'optimizer:a', 0, 10.0, 10.8],
        [0, 'communication:b', 0, 10.8, 10.9],
        [0, 'optimizer:a', 0, 10.9, 11.5],
      ],
      { from: 0, to: 100 },
      100,
      lit,
    );
    expect([block.lit, PHASES[block.phase].key]).toEqual([true, 'communication']);
  });

  test('only what touches the window is handed over, cut to it', () => {
    const all: One[] = [
      [0, 'a', 0, 0, 40],
      [0, 'b', 0, 40, 60],
      [0, 'c', 0, 60, 100],
      [0, 'd', 0, 200, 300],
    ];
    const blocks = blocksOf(all, { from: 50, to: 70 }, 100);
    expect(blocks.map((b) => [b.first, b.left, b.right])).toEqual([
      [1, 0, 50],
      [2, 50, 100],
    ]);
  });

  test('a hundred thousand spans at every zoom are never more blocks than pixels', () => {
    const spans = spansOf(madeSpans({ ranks: 64, microbatches: 100, layers: 7 }));
    expect(spans.start.length).toBeGreaterThan(100_000);
    const traits = { phase: spans.phase, status: spans.answer.spans.status, lit: null };
    for (let width = spans.to; width > 100; width /= 3)
      for (const row of spans.lanes[17].rows) {
        let [blocks, counted, right] = [0, 0, 0];
        sweep(row, { from: 0, to: width }, 1000, traits, (block) => {
          blocks++;
          counted += block.end - block.first;
          expect(block.left).toBeGreaterThanOrEqual(right - 1);
          right = block.right;
        });
        expect(blocks).toBeLessThanOrEqual(1000);
        expect(counted).toBe([...row.start].filter((start) => start < width).length);
      }
  });
});

const INK: SpanInk = {
  phases: Uint32Array.from(PHASES, (_, at) => 100 + at),
  dim: 1,
  panel: 2,
  error: 3,
  grid: 4,
};

function painted(all: One[], width: number, lanes = 1) {
  const spans = spansOf(answerOf(all, lanes));
  const order = byRank(spans.lanes);
  const placed = place(spans.lanes, order, () => false);
  const strips = stripsOf(spans.lanes, placed, ABOVE, ABOVE + lanes * PITCH);
  const height = lanes * PITCH;
  const pixels = new Uint32Array(width * height);
  const traits = { phase: spans.phase, status: spans.answer.spans.status, lit: null };
  const measure = { width, height, filled: 12, ratio: 1, ticks: [width - 1] };
  const labels = paintStrips(pixels, strips, { from: 0, to: 100 }, traits, INK, measure);
  return { labels, at: (x: number, y: number) => pixels[y * width + x] };
}

describe('pixels', () => {
  test('in one row, what is within lies over what is around it', () => {
    const { at, labels } = painted(
      [
        [0, 'iteration:i', 0, 0, 100],
        [0, 'optimizer:o', 1, 40, 60],
      ],
      100,
    );
    const iteration = INK.phases[phaseAt('iteration')];
    expect([at(10, 5), at(50, 5), at(80, 5)]).toEqual([
      iteration,
      INK.phases[phaseAt('optimizer')],
      iteration,
    ]);
    expect(at(10, 13)).toBe(0);
    // The words of the outer one stand in each piece of it that is seen.
    expect(labels.map((l) => [l.left, l.right])).toEqual([
      [0, 40],
      [60, 100],
    ]);
  });

  test('neighbours of one colour are told apart, errors have an edge, merged ones are hatched', () => {
    const tiny: One[] = Array.from({ length: 100 }, (_, at) => [
      0,
      'optimizer:t',
      0,
      50 + at / 5,
      50.1 + at / 5,
    ]);
    const { at } = painted([[0, 'optimizer:a', 0, 0, 20], [0, 'optimizer:a', 0, 20, 40, 2], ...tiny], 100);
    expect(at(19, 5)).toBe(INK.panel);
    expect([at(5, 0), at(25, 0), at(25, 5)]).toEqual([INK.phases[1], INK.error, INK.phases[1]]);
    const hatched = Array.from({ length: 10 }, (_, x) => at(52 + x, 6));
    expect(new Set(hatched)).toEqual(new Set([INK.panel, INK.phases[1]]));
    expect(at(99, 6)).toBe(INK.grid);
  });
});

describe('lanes', () => {
  test('each has its place, and a height finds it', () => {
    const { lanes } = spansOf(madeSpans({ ranks: 4 }));
    const placed = place(lanes, [2, 0, 1, 3], (lane) => lane === 0);
    expect(placed.map((p) => [p.lane, p.top - ABOVE])).toEqual([
      [2, 0],
      [0, 14],
      [1, 14 + 4 * 14 + 6],
      [3, 14 + 4 * 14 + 6 + 14],
    ]);
    expect([0, 14, 75, 76, 1e9].map((y) => laneAt(placed, ABOVE + y))).toEqual([0, 1, 1, 2, 4]);
    const seen = stripsOf(lanes, placed, ABOVE + 20, ABOVE + 40);
    expect(seen.map((s) => [s.lane, s.top])).toEqual([
      [0, -6],
      [0, 8],
    ]);
  });

  test('processes without a rank come last, by name', () => {
    const lane = (rank: number | null, instance: string) => ({ rank, instance }) as Spans['lanes'][number];
    expect(byRank([lane(null, 'b'), lane(3, 'x'), lane(null, 'a'), lane(0, 'y')])).toEqual([3, 1, 2, 0]);
  });

  test('own time is without what lies within, and sums to the outermost spans', () => {
    const spans = spansOf(madeSpans({ ranks: 2, microbatches: 2, layers: 3 }));
    const [own] = ownTimes(spans);
    const outermost = spans.lanes[0].rows[0];
    expect(own.reduce((sum, t) => sum + t, 0)).toBeCloseTo(outermost.end[0] - outermost.start[0], 3);
    expect(own[phaseAt('optimizer')]).toBeCloseTo(40_000, 3);
  });

  test('the rank that works longest is found though all steps are equally long', () => {
    const slow = spansOf(madeSpans({ ranks: 64 }));
    const found = slowest(slow.lanes, ownTimes(slow));
    expect(found?.lane).toBe(17);
    expect(found?.ratio).toBeGreaterThan(1.1);
    const alike = spansOf(madeSpans({ ranks: 64, slow: 1 }));
    expect(slowest(alike.lanes, ownTimes(alike))).toBeNull();
    const two = spansOf(madeSpans({ ranks: 2, slow: 1 }));
    expect(slowest(two.lanes, ownTimes(two))).toBeNull();
  });
});

describe('finding', () => {
  const spans = spansOf(madeSpans({ ranks: 4 }));
  const placed = place(spans.lanes, byRank(spans.lanes), (lane) => lane === 0);
  const all = { from: spans.from, to: spans.to };
  const nameAt = (x: number, y: number, window = all) => {
    const hit = hitAt(spans, placed, window, [x, ABOVE + y], 1000);
    return hit && [hit.count, spans.answer.names[spans.answer.spans.name[hit.span]]];
  };

  test('under the pointer is the row of an open lane, and the innermost span of another', () => {
    expect(nameAt(300, 5)).toEqual([1, 'megatron.train.iteration']);
    expect(nameAt(300, 20)).toEqual([1, 'megatron.train.iteration.forward_backward']);
    expect(nameAt(300, 4 * 14 + 6 + 5)?.[1]).toBe('megatron.layer.forward');
    expect(nameAt(300, 10_000)).toBeNull();
  });

  test('several in one pixel are counted, with their names', () => {
    const tiny = spansOf(
      answerOf(
        Array.from({ length: 30 }, (_, at) => [0, at % 3 ? 'a' : 'b', 0, at, at + 0.5, at === 4 ? 2 : 0]),
      ),
    );
    const at = place(tiny.lanes, [0], () => false);
    const hit = hitAt(tiny, at, { from: 0, to: 30_000 }, [0, 5], 1000);
    expect([hit?.count, hit?.errors, hit?.from, hit?.to]).toEqual([30, 1, 0, 29.5]);
    expect(hit?.names.map(([name, count]) => [tiny.answer.names[name], count])).toEqual([
      ['a', 20],
      ['b', 10],
    ]);
  });

  test('equal ids of two ranks are two spans', () => {
    const one = spans.answer.spans.id.length / 4;
    const key = keyOf(spans, one);
    expect(placeOf(spans, key)).toBe(one);
    expect(placeOf(spans, { ...key, instance: 'pretrain-rank0' })).not.toBe(one);
    expect(placeOf(spans, { ...key, instance: 'nobody' })).toBe(-1);
    expect(readKey(writeKey(key))).toEqual(key);
    expect(readKey(writeKey({ ...key, instance: 'a.b\n<c>' }))?.instance).toBe('a.b\n<c>');
    const open = { ...key, incarnation: null };
    expect(readKey(writeKey(open))).toEqual(open);
    expect(placeOf(spans, open)).toBe(one);
    for (const text of ['', 'x', `${'0'.repeat(32)}.${'0'.repeat(15)}.a`]) expect(readKey(text)).toBeNull();
  });

  test('equal ids of two lives of a process are two spans', () => {
    const answer = answerOf([
      [0, 'a', 0, 0, 10],
      [0, 'a', 0, 50, 60],
    ]);
    answer.lanes[0].incarnations = [7, 9];
    answer.spans.id[1] = answer.spans.id[0];
    answer.spans.incarnation = [0, 1];
    const both = spansOf(answer);
    const keys = [0, 1].map((at) => keyOf(both, at));
    expect(keys.map((key) => key.incarnation)).toEqual([7, 9]);
    expect(keys.map((key) => placeOf(both, key))).toEqual([0, 1]);
    expect(keys.map((key) => readKey(writeKey(key)))).toEqual(keys);
    // Where nothing says which, the latest is meant.
    expect(placeOf(both, { ...keys[0], incarnation: null })).toBe(1);
    expect(placeOf(both, { ...keys[0], incarnation: 8 })).toBe(-1);
  });

  test('the next of a kind is later in the lane, then in the lane below, and there is a last one', () => {
    const order = [3, 0, 1, 2];
    const { name, lane } = spans.answer.spans;
    const optimizer = (at: number) => spans.answer.names[name[at]].endsWith('optimizer');
    const lanes: number[] = [];
    for (
      let at = nextSpan(spans, order, -1, true, optimizer);
      at >= 0;
      at = nextSpan(spans, order, at, true, optimizer)
    )
      lanes.push(lane[at]);
    expect(lanes).toEqual(order);
    expect(lane[nextSpan(spans, order, -1, false, optimizer)]).toBe(2);
  });
});

describe('windows', () => {
  const full = { from: 0, to: 1000 };
  test('a zoom stays inside, and one that shows all is all', () => {
    expect(confined({ from: -50, to: 50 }, full)).toEqual({ from: 0, to: 100 });
    expect(confined({ from: 980, to: 1080 }, full)).toEqual({ from: 900, to: 1000 });
    expect(confined({ from: -1, to: 2000 }, full)).toBe(full);
    expect(confined({ from: 5, to: 5 }, full)).toEqual({ from: 5, to: 5.5 });
  });

  test('ticks are round and few at every zoom', () => {
    for (let width = 1; width < 1e9; width *= 7) {
      const { ticks, step } = ticksOf({ from: 123.4, to: 123.4 + width }, 10);
      expect(ticks.length).toBeLessThanOrEqual(11);
      expect(ticks.length).toBeGreaterThanOrEqual(3);
      expect(new Set(ticks.map((t) => rulerText(t, step))).size).toBe(ticks.length);
    }
  });
});

test('the map of all counts the lanes in each phase', () => {
  const spans = spansOf(madeSpans({ ranks: 8 }));
  const counts = shares(spans, { from: 0, to: spans.to });
  const column = Array.from(counts.subarray(PHASES.length * 100, PHASES.length * 101));
  expect(column.reduce((sum, n) => sum + n, 0)).toBe(8);
  expect(column[phaseAt('forward_backward')]).toBe(8);
});

describe('ranks', () => {
  const hosts = new Map([0, 1, 2, 3, 8].map((rank) => [rank, rank < 4 ? 'host-1' : 'a, b']));
  test('numbers, ranges and hosts are read; anything else is told and shows all', () => {
    const check = (text: string, ranks: string, wrong = false) => {
      const read = readRanks(text, hosts);
      expect([read.ranks, read.wrong !== ''], text).toEqual([ranks, wrong]);
    };
    check('', '');
    check('all', '');
    check(' 0-7, 12 ', '0-7,12');
    check('@host-1', '0-3');
    check('@a, b', '8');
    check('@nobody', '', true);
    check('7-3', '', true);
    check('<img>', '', true);
    check('1,,2', '', true);
  });
});

test('lengths and names in words', () => {
  const plain = (text: string) => text.replace(/\u2009/g, ' ');
  expect([0.25, 840, 12_300, 999_999, 1_250_000, -3000].map((us) => plain(lengthText(us)))).toEqual([
    '0.2500 µs',
    '840 µs',
    '12.30 ms',
    '1000 ms',
    '1.250 s',
    '−3.000 ms',
  ]);
  expect(plain(shiftText('host-6', -1.2))).toBe('host-6 shifted by −1.2 ms');
  expect(['a.b.c', 'nccl', 'x.'].map(shortNames)).toEqual([['b.c', 'c'], ['nccl'], ['x.']]);
});
