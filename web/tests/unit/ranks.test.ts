import { describe, expect, test } from 'vitest';
import { chartsOf } from '../../src/charts/sections';
import type { MetricRow, RunDetail } from '../../src/lib/answers';
import type { CaptureReport } from '../../src/lib/missing';
import type { Columns, PointsAnswer, PointsQuestion } from '../../src/lib/points';
import { SHADES, scaleOf, shadeOf, shades } from '../../src/lib/ramp';
import { buttonsOf, type Choice, choicesOf, chosen, worseOf } from '../../src/ranks/choices';
import { clockRatios, clocksOf } from '../../src/ranks/clock';
import { crewOf } from '../../src/ranks/crew';
import { columnAt, columnEnds, columnsFor, type Grid, gridOf } from '../../src/ranks/grid';
import { type HeatInk, paintHeat } from '../../src/ranks/paint';
import { farthest, lastWhole, ratiosOf, ratioTo, standings } from '../../src/ranks/ratio';
import { PARTS_MAX, planOf, read } from '../../src/ranks/read';
import { blocksOf, namedBlocks } from '../../src/ranks/row_labels';
import { ROWS_MAX, type Row, rowsOf } from '../../src/ranks/rows';
import { standingOf } from '../../src/ranks/still';
import { tinted } from '../../src/ranks/tint';
import { ratioText, rowText } from '../../src/ranks/words';

const NONE = Number.NaN;

const row = (display: string, labels: Record<string, string>, last_step: number | null = 9): MetricRow => ({
  name: display,
  display,
  labels,
  scale: '',
  points: 10,
  last_step,
  last: 1,
  first_time_ms: 0,
  last_time_ms: 1,
  unit: '',
  kind: 'gauge',
  help: '',
  caveat: '',
});

const session = (
  host: string,
  pid: number,
  rank: number | null,
  attempt = 1,
  world_size: number | null = 4,
) => ({
  host,
  pid,
  rank,
  world_size,
  attempt,
  started_ms: 0,
  heartbeat_ms: 0,
  ended_ms: null,
  end: null,
});

const detail = (sessions: ReturnType<typeof session>[]) =>
  ({
    sessions,
    attempts_list: [...new Set(sessions.map((s) => s.attempt))].map((number) => ({ number })),
  }) as unknown as RunDetail;

const grid = (rows: number[][], ranks = rows.map((_, at) => at)): Grid => ({
  from: 0,
  to: rows[0].length - 1,
  columns: rows[0].length,
  stepped: true,
  ranks,
  values: Float64Array.from(rows.flat()),
  seen: Float64Array.from(rows[0], (_, at) => at),
});

const columns = (rank: number, values: number[], more: Partial<Columns> = {}): Columns => {
  const last = Float64Array.from(values);
  return {
    query: 0,
    runId: 'r',
    metric: 'm',
    display: 'm',
    labels: { rank: String(rank) },
    scale: '',
    attempt: 1,
    unit: '',
    last,
    min: last,
    max: last,
    count: last.map((v) => Number(!Number.isNaN(v))),
    smooth: null,
    nonFinite: [],
    total: 2,
    interval: 1,
    ...more,
  };
};

const answerOf = (x: number[], series: Columns[]): PointsAnswer => ({
  axis: 'step',
  from: x[0] ?? 0,
  to: x[x.length - 1] ?? 0,
  x: Float64Array.from(x),
  series,
  pointsRead: 0,
  warnings: [],
});

describe('the clocks beside the map', () => {
  const clock = (rank: string, last: number | null, gpu = '0') => ({
    ...row('system/gpu/sm_clock_mhz', { rank, gpu }),
    name: 'system_gpu_sm_clock_mhz',
    last,
  });
  const one = (member: number): Row => ({ host: '', hosts: 1, members: [member], group: false, key: '' });
  const rankOf = (labels: Record<string, string>) => (labels.rank === '' ? null : Number(labels.rank));

  test('a rank has the clock of its slowest card, held against the median of all', () => {
    const known = clocksOf(
      [clock('0', 1800), clock('1', 1800), clock('1', 1350, '1'), clock('2', null), clock('', 5)],
      rankOf,
    );
    expect([...known]).toEqual([
      [0, 1800],
      [1, 1350],
    ]);
    const ratios = clockRatios(
      new Map([...known, [3, 1800]]),
      [one(0), one(1), one(2), one(3)],
      [0, 1, 2, 3],
    );
    expect(ratios).toEqual([1, 0.75, NONE, 1]);
  });

  test('one card alone has no others', () => {
    expect(clockRatios(new Map([[0, 1800]]), [one(0)], [0])).toEqual([]);
  });
});

describe('a job that stands still', () => {
  const told = (name: string, rank: number, last: number, group = 'dp') => ({
    ...row(name, { rank: String(rank), group }, null),
    last,
  });
  const stepped = (rank: number, step: number, time: number) => ({
    ...row('train_step_seconds', { rank: String(rank) }, step),
    last_time_ms: time,
  });
  const crew = {
    world: 3,
    hostOf: (rank: number) => (rank < 2 ? `h${rank}` : ''),
    rankOf: (labels: Record<string, string>) => Number(labels.rank),
  };

  test('every rank has its last step, and its place in the operation that the most are inside of', () => {
    const metrics = [
      ...[0, 1, 2].flatMap((r) => [stepped(r, 59 - r, 1000 + r), told('train_collective_completed', r, 7)]),
      ...[told('train_collective_sequence', 0, 8), told('train_collective_sequence', 1, 8)],
      told('train_collective_sequence', 2, 7),
      told('train_collective_sequence', 2, 90, 'tp'),
      told('train_collective_completed', 2, 89, 'tp'),
      row('loss', { rank: '9' }),
    ];
    const culprit = {
      rank: 2,
      host: 'h9',
      last_step: 57,
      last_step_time: 1,
      sequence: 7,
      completed: 7,
      state: 's',
    };
    const rows = standingOf(metrics, crew, [culprit]);
    expect(rows.map((r) => [r.rank, r.host, r.last_step, r.sequence, r.completed, r.state])).toEqual([
      [0, 'h0', 59, 8, 7, 'waits in it'],
      [1, 'h1', 58, 8, 7, 'waits in it'],
      [2, 'h9', 57, 7, 7, 's'],
    ]);
    expect(rows[0].last_step_time).toBe(1000);
  });

  test('without sequences the steps remain, and without either the culprits', () => {
    const rows = standingOf([stepped(0, 5, 10), stepped(0, 4, 20)], crew, []);
    expect(rows).toEqual([
      { rank: 0, host: 'h0', last_step: 5, last_step_time: 10, sequence: null, completed: null, state: '' },
    ]);
    expect(standingOf([], crew, [])).toEqual([]);
  });
});

describe('rows that a verdict is about', () => {
  const rows = [[0], [1, 2], [3], [4]].map(
    (members): Row => ({ host: '', hosts: 1, members, group: members.length > 1, key: '' }),
  );
  const ranks = [10, 11, 12, 13, 14];

  test('those of its ranks together, all where it names none, none where it names one', () => {
    expect(tinted({ ranks: [12, 13, 10] }, rows, ranks)).toEqual([{ first: 0, count: 3 }]);
    expect(tinted({ ranks: [10, 14] }, rows, ranks)).toEqual([
      { first: 0, count: 1 },
      { first: 3, count: 1 },
    ]);
    expect(tinted({ ranks: [] }, rows, ranks)).toEqual([{ first: 0, count: 4 }]);
    expect(tinted({ ranks: [12] }, rows, ranks)).toEqual([]);
  });
});

describe('who is who', () => {
  const crew = crewOf(
    detail([
      session('a', 1, 0, 1, 8),
      session('a', 1, 0, 2),
      session('b', 2, 1, 2),
      session('c', 3, null, 2),
    ]),
    [
      {
        host: 'b',
        pid: 9,
        rank: 2,
        devices: [
          { gpu: 4, role: 'owned' },
          { gpu: 5, role: 'other' },
        ],
      },
    ] as unknown as CaptureReport[],
    [row('m', { rank: '7', host: 'z' })],
  );
  test('a rank comes from its label, else from the process or the card that is its own', () => {
    expect(crew.rankOf({ rank: '3' })).toBe(3);
    expect(crew.rankOf({ host: 'b', pid: '2' })).toBe(1);
    expect(crew.rankOf({ host: 'b', pid: '9' })).toBe(2);
    expect(crew.rankOf({ host: 'b', gpu: '4' })).toBe(2);
    expect(crew.rankOf({ host: 'b', gpu: '5' })).toBeNull();
    expect(crew.rankOf({ host: 'a', pid: '2' })).toBeNull();
    expect(crew.rankOf({ host: 'c', pid: '3' })).toBeNull();
    expect(crew.rankOf({})).toBeNull();
    for (const rank of ['', '-1', 'x', '1.5', '1e3', '99999999999']) expect(crew.rankOf({ rank })).toBeNull();
  });
  test('hosts come from sessions, reports and labels, the size of the job from the newest attempt', () => {
    expect([0, 1, 2, 7, 8].map(crew.hostOf)).toEqual(['a', 'b', 'b', 'z', '']);
    expect(crew.world).toBe(4);
  });
});

describe('what can be compared', () => {
  const crew = crewOf(null, [], []);
  const ranks = (name: string) => [row(name, { rank: '0' }), row(name, { rank: '1' })];
  test('own step is there when waiting is told apart, and first', () => {
    const with_ = choicesOf(
      chartsOf([
        ...ranks('grad_norm'),
        ...ranks('train_step_data_seconds'),
        ...ranks('train_step_wait_seconds'),
        ...ranks('train_step_seconds'),
        row('loss', {}),
      ]),
      crew,
    );
    expect(with_.map((c) => c.text)).toEqual(['own step', 'whole step', 'wait', 'data', 'grad_norm']);
    const without = choicesOf(chartsOf(ranks('train_step_seconds')), crew);
    expect(without.map((c) => c.text)).toEqual(['whole step']);
    expect(chosen(with_, 'grad_norm')?.id).toBe('grad_norm');
    expect(chosen(with_, 'gone')?.id).toBe('own');
    expect(chosen([], 'own')).toBeNull();
    expect(buttonsOf(with_)).toEqual(with_);
    const long = choicesOf(chartsOf(['a', 'b', 'c'].flatMap((n) => ranks(n.repeat(40)))), crew);
    expect([buttonsOf(long).length, buttonsOf([]).length]).toEqual([2, 0]);
  });
  test('names say which side is the worse one', () => {
    expect(worseOf('train_step_seconds')).toBe('high');
    expect(worseOf('train_step_wait_seconds')).toBe('low');
    expect(worseOf('system/gpu/sm_clock_mhz')).toBe('low');
    expect(worseOf('tokens_per_second')).toBe('low');
    expect(worseOf('grad_norm')).toBe('either');
    expect(worseOf('lossless')).toBe('either');
  });
});

describe('columns', () => {
  test('every step has a column of its own where there is room, and none is left empty', () => {
    for (const [span, every] of [
      [200, 1],
      [1999, 1],
      [990, 10],
      [7, 7],
    ]) {
      const count = columnsFor(span, every, true, 5000);
      expect(count).toBe(span / every + 1);
      const grid = { from: 1100, to: 1100 + span, columns: count, stepped: true };
      const places = Array.from({ length: count }, (_, at) => columnAt(grid, 1100 + at * every));
      expect(places).toEqual(places.map((_, at) => at));
      expect(columnAt(grid, 1099)).toBe(-1);
      expect(columnAt(grid, 1101 + span)).toBe(-1);
    }
  });
  test('cells of the server fall into columns of their own, named by their last step', () => {
    for (const [width, cells] of [
      [3000, 435],
      [6264, 2000],
      [437, 435],
    ]) {
      const grid = { from: 5, to: 5 + width - 1, columns: cells, stepped: true };
      for (let cell = 0; cell < cells; cell++) {
        const last = 5 + Math.floor(((cell + 1) * width) / cells) - 1;
        const column = columnAt(grid, last);
        const [first, end] = columnEnds(grid, column);
        expect(first <= last && last <= end).toBe(true);
      }
      const hit = new Set(
        Array.from({ length: cells }, (_, at) =>
          columnAt(grid, 5 + Math.floor(((at + 1) * width) / cells) - 1),
        ),
      );
      expect(hit.size).toBe(cells);
    }
  });
  test('times waver: two intervals share a column', () => {
    expect(columnsFor(1000, 10, false, 500)).toBe(50);
    expect(columnsFor(0, 10, false, 500)).toBe(1);
    expect(columnsFor(1000, 0, false, 500)).toBe(500);
  });
  test('the worst value of a column is kept, absent is not zero, and what is no number is worst', () => {
    const span = { from: 0, to: 5, columns: 3, stepped: true };
    const piece = (rank: number, y: number[], bad: number[] = []) => ({
      rank,
      attempt: 1,
      x: Float64Array.from([0, 1, 2, 3, 4, 5]),
      y: Float64Array.from(y),
      bad,
    });
    const high = gridOf(
      [piece(3, [1, 5, 2, NONE, NONE, NONE]), piece(1, [1, 1, 1, 1, 1, 1], [2])],
      span,
      'high',
    );
    expect(high.ranks).toEqual([1, 3]);
    expect([...high.values]).toEqual([1, Infinity, 1, 5, 2, NONE]);
    const low = gridOf([piece(0, [1, 5, 2, 3, 0, 1])], span, 'low');
    expect([...low.values]).toEqual([1, 2, 0]);
  });
  test('what a restart threw away gives way to the newer attempt', () => {
    const x = Float64Array.from([0, 1, 2, 3]);
    const span = { from: 0, to: 3, columns: 4, stepped: true };
    const piece = (attempt: number, y: number[]) => ({
      rank: 0,
      attempt,
      x,
      y: Float64Array.from(y),
      bad: [],
    });
    const both = gridOf([piece(1, [1, 9, 9, 9]), piece(2, [NONE, 2, 3, NONE])], span, 'high');
    expect([...both.values]).toEqual([1, 2, 3, NONE]);
  });
});

describe('against the others', () => {
  test('at the live edge, the column that is shown is one in which nobody is still on the way', () => {
    expect(lastWhole(Uint32Array.of(8, 8, 8, 3, 1))).toBe(2);
    expect(lastWhole(Uint32Array.of(8, 8, 8, 0, 0))).toBe(2);
    const died = Uint32Array.from({ length: 100 }, (_, at) => (at < 60 ? 8 : 7));
    expect(lastWhole(died)).toBe(99);
    expect(lastWhole(new Uint32Array(3))).toBe(-1);
    expect(lastWhole(new Uint32Array(0))).toBe(-1);
  });

  test('a rank is not its own peer', () => {
    const { of, median, present } = ratiosOf(grid([[1], [1], [2]]), 'peers');
    expect([...of]).toEqual([1 / 1.5, 1 / 1.5, 2].map(Math.fround));
    expect([median[0], present[0]]).toEqual([1, 3]);
    const two = ratiosOf(grid([[1], [2]]), 'peers');
    expect([...two.of]).toEqual([0.5, 2]);
  });
  test('leaving one out is the median of the rest, for every rank', () => {
    const values = [5, 3, 3, 8, 1, 9, 3, 2];
    for (const count of [2, 3, 4, 5, 6, 7, 8]) {
      const some = values.slice(0, count);
      const { of } = ratiosOf(grid(some.map((v) => [v])), 'peers');
      some.forEach((value, at) => {
        const rest = some.filter((_, other) => other !== at).sort((a, b) => a - b);
        const half = rest.length >> 1;
        const median = rest.length % 2 ? rest[half] : (rest[half - 1] + rest[half]) / 2;
        expect(of[at]).toBe(Math.fround(value / median));
      });
    }
  });
  test('absent stays absent, and what is no number is not among the peers', () => {
    const { of, high } = ratiosOf(grid([[1], [NONE], [Infinity], [1]]), 'peers');
    expect([...of]).toEqual([1, NONE, Infinity, 1]);
    expect(high[0]).toBe(1);
    expect([...ratiosOf(grid([[7], [NONE]]), 'peers').of]).toEqual([1, NONE]);
  });
  test('own history is the median of the row', () => {
    expect([
      ...ratiosOf(
        grid([
          [1, 2, 4],
          [NONE, 3, NONE],
        ]),
        'own',
      ).of,
    ]).toEqual([0.5, 1, 2, NONE, 1, NONE]);
  });
  test('ratios make sense around zero and below', () => {
    expect(ratioTo(0, 0)).toBe(1);
    expect(ratioTo(1, 0)).toBe(Infinity);
    expect(ratioTo(-1, -2)).toBe(1.5);
    expect(ratioTo(-4, -2)).toBe(0);
    const { of } = ratiosOf(grid([[0], [0], [3]]), 'peers');
    expect(Number.isFinite(of[2])).toBe(true);
  });
  test('who stands out is named with the column since which it does', () => {
    const calm = () => Array.from({ length: 50 }, (_, at) => 1 + (at % 3) * 0.001);
    const slow = calm().map((v, at) => (at >= 30 ? v * 1.25 : v));
    // One good step amid the spell does not end it.
    slow[35] = 1;
    const all = grid([calm(), slow, calm(), calm()], [0, 17, 18, 19]);
    const found = farthest(standings(all, ratiosOf(all, 'peers'), 'high'), 'high', 2);
    expect(found[0]).toMatchObject({ rank: 17, out: true, since: 30 });
    expect(found[0].ratio).toBeCloseTo(1.25, 2);
    expect(found[1]).toMatchObject({ out: false, since: -1 });
    // Where less is worse, nobody stands out.
    expect(farthest(standings(all, ratiosOf(all, 'peers'), 'low'), 'low', 1)[0].out).toBe(false);
  });
  test('in few columns a rank that turned slow late stands out, too', () => {
    const late = Array.from({ length: 29 }, (_, at) => (at >= 19 ? 0.8 : 1));
    const even = () => Array.from({ length: 29 }, () => 1);
    const all = grid([even(), late, even(), even()]);
    expect(standings(all, ratiosOf(all, 'peers'), 'low')[1]).toMatchObject({ out: true, since: 19 });
  });
  test('where all differ, nobody stands out', () => {
    const all = grid(Array.from({ length: 9 }, (_, at) => [1 + at * 0.1, 1 + at * 0.1]));
    const ratios = ratiosOf(all, 'peers');
    expect(standings(all, ratios, 'either').some((s) => s.out)).toBe(false);
    expect(ratios.limit[0]).toBeGreaterThan(0.5);
  });
  test('who was slow all the time is out without a beginning', () => {
    const all = grid([
      [1, 1, 1],
      [1, 1, 1],
      [1, 1, 1],
      [2, 2, 2],
    ]);
    expect(standings(all, ratiosOf(all, 'peers'), 'high')[3]).toMatchObject({ out: true, since: -1 });
  });
});

describe('rows', () => {
  const many = (count: number) => {
    const all = grid(Array.from({ length: count }, (_, at) => [at === count - 1 ? 2 : 1]));
    return standings(all, ratiosOf(all, 'peers'), 'high');
  };
  const host = (rank: number) => `host-${Math.floor(rank / 8) + 1}`;
  test('each rank has one up to the bound, in the order asked for', () => {
    expect(rowsOf(many(ROWS_MAX), host, 'rank', 'high', new Set()).length).toBe(ROWS_MAX);
    expect(rowsOf(many(64), host, 'value', 'high', new Set())[0].members).toEqual([63]);
    const names = rowsOf(many(88), host, 'host', 'high', new Set()).map((r) => r.host);
    expect(names.slice(0, 9)).toEqual([...Array(8).fill('host-1'), 'host-2']);
    expect(names[87]).toBe('host-11');
  });
  test('16,384 ranks are groups of hosts, all ranks in one, and a group opens', () => {
    const all = many(16_384);
    const rows = rowsOf(all, host, 'rank', 'high', new Set());
    expect(rows.length).toBeLessThanOrEqual(ROWS_MAX);
    expect(rows.flatMap((r) => r.members)).toEqual(all.map((s) => s.row));
    expect(
      rowText(
        rows[0],
        all.map((s) => s.rank),
      ),
    ).toBe('64 ranks 0 to 63, 8 hosts');
    expect(rowsOf(all, host, 'value', 'high', new Set())[0].members).toContain(16_383);
    const opened = rowsOf(all, host, 'rank', 'high', new Set(['64']));
    expect(opened.length).toBe(rows.length + 64);
    expect(opened[2]).toMatchObject({ members: [64], group: false });
  });
  test('without hosts, or with all ranks on one, they are grouped by number', () => {
    for (const name of ['', 'alone']) {
      const rows = rowsOf(many(1000), () => name, 'rank', 'high', new Set());
      expect(rows.length).toBe(250);
      expect(rows[1].members).toEqual([4, 5, 6, 7]);
    }
  });
  test('names beside rows keep their distance, the selected one stays', () => {
    const blocks = blocksOf(rowsOf(many(64), host, 'rank', 'high', new Set()));
    expect(blocks.map((b) => [b.first, b.count])).toEqual(Array.from({ length: 8 }, (_, at) => [at * 8, 8]));
    expect(namedBlocks(blocks, 5, 14, -1).length).toBe(8);
    const few = namedBlocks(blocks, 1, 14, 9).map((b) => b.first);
    expect(few).toContain(8);
    expect(few).not.toContain(0);
  });
});

describe('reading', () => {
  const choice = (ranks: number, own: boolean): Choice => {
    const [chart, wait] = ['train_step_seconds', 'train_step_wait_seconds'].map(
      (name) => chartsOf(Array.from({ length: ranks }, (_, rank) => row(name, { rank: String(rank) })))[0],
    );
    return { id: 'x', text: 'x', title: 'x', chart, minus: own ? wait : null, worse: 'high', series: ranks };
  };
  const wanted = (ranks: number, own: boolean, attempts = 1) => ({
    runId: 'r',
    choice: choice(ranks, own),
    crew: crewOf(null, [], []),
    axis: 'step' as const,
    zoom: null,
    most: 400,
    attempts,
  });
  test('what is asked for stays within its bounds, however many ranks and attempts', () => {
    for (const ranks of [2, 64, 1024, 16_384, 40_000]) {
      for (const own of [false, true]) {
        for (const attempts of [1, 3, 500]) {
          const { buckets, part, parts } = planOf(wanted(ranks, own, attempts));
          expect(parts).toBeLessThanOrEqual(PARTS_MAX);
          expect(part * (own ? 2 : 1)).toBeLessThanOrEqual(2000);
          expect(buckets).toBeGreaterThanOrEqual(20);
          expect(buckets).toBeLessThanOrEqual(2000);
        }
      }
    }
    expect(planOf(wanted(64, true)).buckets).toBe(2000);
    expect(planOf(wanted(64, false)).buckets).toBe(400);
  });
  test('own step is the step less what was waited in it', async () => {
    const asked: PointsQuestion[] = [];
    const reading = await read(
      wanted(2, true),
      async (question) => {
        asked.push(question);
        const wait = { query: 1 };
        return answerOf(
          [0, 1, 2],
          [
            columns(0, [2, 2, 2]),
            columns(1, [2, 2, NONE]),
            columns(0, [0.5, NONE, 0.25], wait),
            columns(1, [1, 1, 1], wait),
          ],
        );
      },
      new AbortController().signal,
    );
    expect(asked.length).toBe(1);
    expect(asked[0].columns).toEqual(['last']);
    // A step without a wait told waited for nothing.
    expect([...reading.grid.values]).toEqual([1.5, 2, 1.75, 1, 1, NONE]);
    expect(reading).toMatchObject({ exact: true, sampled: false, read: 2, total: 2 });
  });
  test('a rank that never tells what it waited has no own step', async () => {
    const reading = await read(
      wanted(2, true),
      async () => answerOf([0], [columns(0, [2]), columns(1, [2]), columns(1, [1], { query: 1 })]),
      new AbortController().signal,
    );
    expect([...reading.grid.values]).toEqual([NONE, 1]);
  });
  test('many ranks come in parts, each series once, and what was not read is known', async () => {
    const skips: number[] = [];
    const reading = await read(
      wanted(25_000, false),
      async ({ queries: [query] }) => {
        skips.push(query.skip ?? 0);
        const some = Array.from({ length: query.limit ?? 0 }, (_, at) =>
          columns((query.skip ?? 0) + at, [1, 2]),
        );
        return answerOf([0, 1], some);
      },
      new AbortController().signal,
    );
    expect(skips).toEqual(Array.from({ length: 10 }, (_, at) => at * 2000));
    expect(reading).toMatchObject({ read: 20_000, total: 25_000 });
    expect(reading.grid.ranks.length).toBe(20_000);
  });
  test('nothing read is an empty grid', async () => {
    const reading = await read(wanted(2, false), async () => answerOf([], []), new AbortController().signal);
    expect(reading.grid.ranks).toEqual([]);
    expect(ratiosOf(reading.grid, 'peers').present.length).toBe(1);
  });
});

describe('colours', () => {
  test('worse is orange, on whichever side it lies, and the ramp ends where it is told to', () => {
    const high = { low: 0.9, high: 1.1, lowIsWorse: false };
    expect([0, 0.9, 1.1, 5].map((r) => shadeOf(r, high))).toEqual([0, 0, SHADES - 1, SHADES - 1]);
    expect(shadeOf(1, high)).toBe(Math.round((SHADES - 1) / 2));
    expect(shadeOf(0.9, { ...high, lowIsWorse: true })).toBe(SHADES - 1);
    const ramp = shades(['#000000', '#0000ff', '#ffffff']);
    expect([ramp[0], ramp[SHADES - 1]]).toEqual([0xff000000, 0xffffffff]);
  });
  test('the ends hold nearly all ratios and never less than a tenth', () => {
    expect(scaleOf(Float32Array.from([1, 1, 1]), false)).toMatchObject({ low: 0.9, high: 1.1 });
    expect(scaleOf(Float32Array.from([1, 1.4, 0.6, NONE, Infinity]), false)).toMatchObject({
      low: 0.5,
      high: 1.5,
    });
    expect(scaleOf(Float32Array.from([100, 200]), false)).toMatchObject({ low: 0.25, high: 4 });
    expect(scaleOf(new Float32Array(0), true)).toMatchObject({ lowIsWorse: true, high: 1.1 });
  });
  test('pixels: one colour a cell, absent hatched, a gap below the row', () => {
    const ink: HeatInk = {
      shades: Uint32Array.from({ length: SHADES }, (_, at) => 1000 + at),
      absent: 1,
      hatch: 2,
      gap: 3,
      bad: 4,
    };
    const pixels = new Uint32Array(12 * 8);
    const rows = [0, 1].map((at) => ({ host: '', hosts: 1, members: [at], group: false, key: '' }));
    const of = Float32Array.from([1, 2, NONE, Infinity]);
    const scale = { low: 0.9, high: 1.1, lowIsWorse: false };
    paintHeat(pixels, 12, 4, { of, columns: 2, rows, worse: 'high', scale }, ink);
    const line = (y: number) => [...pixels.subarray(y * 12, (y + 1) * 12)];
    expect(line(0)).toEqual([...Array(6).fill(1128), ...Array(6).fill(1255)]);
    expect(line(2)).toEqual(line(0));
    expect(line(3)).toEqual(Array(12).fill(3));
    expect(new Set(line(4).slice(0, 6))).toEqual(new Set([1, 2]));
    expect(line(4)).not.toEqual(line(5));
    expect(line(4).slice(6)).toEqual(Array(6).fill(4));
  });
});

test('ratios are written short', () => {
  expect([1.2495, -0.5, NONE, Infinity, 12_345].map(ratioText)).toEqual([
    '1.25\u2009×',
    '\u22120.50\u2009×',
    'absent',
    'no number',
    '12,345\u2009×',
  ]);
});
