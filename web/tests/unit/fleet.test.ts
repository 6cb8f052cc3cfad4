import { beforeEach, describe, expect, test } from 'vitest';
import type { RangeAnswer } from '../../src/explore/answer';
import { seriesOf } from '../../src/explore/answer';
import type { Gpu, Node, Owner } from '../../src/fleet/answers';
import { completions, keeper, unknownKeys } from '../../src/fleet/filter';
import { namedRows, neighbour } from '../../src/fleet/heat_map';
import { gapsOf } from '../../src/fleet/inventory';
import {
  extentOf,
  holesOf,
  LANES,
  linesOf,
  peersOf,
  questionsOf,
  SHORT_LANES,
  selectorOf,
  valueAt,
} from '../../src/fleet/lanes';
import { blocksOf, layoutOf, rowAt, rowsBetween } from '../../src/fleet/layout';
import { gpuKey, ownerText } from '../../src/fleet/names';
import { columnSpan, paintStrips, worstBins } from '../../src/fleet/paint';
import { binned, FleetRange } from '../../src/fleet/range';
import { SIGNALS, shadeAt, signalOf, valueText } from '../../src/fleet/signals';
import { cellText } from '../../src/fleet/words';
import { SEQUENTIAL_PLACES, SHADES, shades } from '../../src/lib/ramp';
import { gpuPath, parseRoute } from '../../src/lib/route';

const owner = (run: string, more: Partial<Owner> = {}): Owner => ({ run_id: `id-${run}`, run, ...more });

const card = (host: string, gpu: string, more: Partial<Gpu> = {}): Gpu => ({
  host,
  gpu,
  uuid: `GPU-${host}-${gpu}`,
  gpu_model: 'H100',
  driver: '570',
  pci_bus_id: '',
  mig: false,
  slices: [],
  state: 'ok',
  value: 0.5,
  reason: null,
  bins: null,
  peers: null,
  owner: null,
  incident: null,
  xids: [],
  unsupported: [],
  last_seen: 1000,
  sources: ['agent'],
  ...more,
});

const node = (host: string, more: Partial<Node> = {}): Node => ({
  host,
  state: 'live',
  last_seen: 0,
  agents: 1,
  agent_version: null,
  boot_id: null,
  gpus: { pci: 2, driver: 2, allocated: null },
  missing: [],
  cpu_ratio: null,
  memory_used_bytes: null,
  memory_total_bytes: null,
  incidents: 0,
  ...more,
});

const byHost = { group: 'host', open: new Set<string>() } as const;
const byJob = { group: 'job', open: new Set<string>() } as const;

describe('layout', () => {
  test('hosts and numbers stand in the order of people, and every card has its place', () => {
    const gpus = ['host-10', 'host-2', 'host-1'].flatMap((h) => ['10', '9', '0'].map((g) => card(h, g)));
    const { rows, columns, places } = layoutOf(gpus, [], byHost);
    expect(rows.map((r) => r.host)).toEqual(['host-1', 'host-2', 'host-10']);
    expect(columns).toEqual(['0', '9', '10']);
    expect(places.get('GPU-host-2-9')).toEqual({ row: 1, column: 1 });
  });

  test('by job the peers stand together, the largest job first, what nobody owns last', () => {
    const gpus = [
      card('a', '0', { owner: owner('small') }),
      card('a', '1', { owner: owner('large') }),
      card('b', '0', { owner: owner('large') }),
      card('c', '0'),
    ];
    const { rows } = layoutOf(gpus, [], byJob);
    expect(rows.map((r) => [r.group, r.host])).toEqual([
      ['run id-large', 'a'],
      ['run id-large', 'b'],
      ['run id-small', 'a'],
      ['', 'c'],
    ]);
    // A host of two jobs has a row in each, with its other cards left out.
    expect(rows[0].cells.map((g) => g?.gpu)).toEqual([undefined, '1']);
    expect(rows[2].y - rows[1].y).toBeGreaterThan(rows[1].y - rows[0].y);
  });

  test('a host that has lost all cards keeps its row', () => {
    const { rows } = layoutOf(
      [card('a', '0')],
      [node('a'), node('b'), node('cpu', { gpus: { pci: 0, driver: null, allocated: null } })],
      byHost,
    );
    expect(rows.map((r) => r.host)).toEqual(['a', 'b']);
    expect(rows[1].cells).toEqual([null]);
  });

  test('of two cards with one number the one that was seen last is there', () => {
    const old = card('a', '0', { uuid: 'old', last_seen: 5 });
    const fresh = card('a', '0', { uuid: 'new', last_seen: 9 });
    for (const gpus of [
      [old, fresh],
      [fresh, old],
    ])
      expect(layoutOf(gpus, [], byHost).rows[0].cells[0]?.uuid).toBe('new');
  });

  test('many hosts have low rows, more of them one strip each, and a row opens', () => {
    const gpus = (hosts: number) => Array.from({ length: hosts }, (_, at) => card(`h${at}`, '0'));
    expect(layoutOf(gpus(64), [], byHost).rows[0]).toMatchObject({ height: 20, folded: false });
    expect(layoutOf(gpus(65), [], byHost).rows[0]).toMatchObject({ height: 8, folded: false });
    const { rows, height } = layoutOf(gpus(300), [], { group: 'host', open: new Set(['h1']) });
    expect(rows[0]).toMatchObject({ height: 8, folded: true });
    expect(rows[1]).toMatchObject({ height: 20, folded: false });
    expect(height).toBe(299 * 8 + 20);
  });

  test('rows are found by their height', () => {
    const { rows, height } = layoutOf([card('a', '0', { owner: owner('x') }), card('b', '0')], [], byJob);
    expect(rowAt(rows, 0)).toBe(0);
    expect(rowAt(rows, rows[0].height)).toBe(-1);
    expect(rowAt(rows, rows[1].y)).toBe(1);
    expect(rowAt(rows, height)).toBe(-1);
    expect(rowsBetween(rows, 0, height)).toEqual([0, 2]);
    expect(rowsBetween(rows, rows[1].y, height)).toEqual([1, 2]);
    expect(rowsBetween([], 0, 100)).toEqual([0, 0]);
  });

  test('neighbours of one owner are one block; several owners and missing cards stand alone', () => {
    const gpus = [
      card('a', '0', { owner: owner('x') }),
      card('b', '0', { owner: owner('x') }),
      card('c', '0', { owner: owner('x') }),
      card('c', '1', { owner: owner('y') }),
      card('d', '0'),
      card('e', '0', { state: 'missing' }),
    ];
    const blocks = blocksOf(layoutOf(gpus, [], byHost).rows);
    expect(blocks.map((b) => [b.text, b.count, b.cards, b.state])).toEqual([
      ['x', 2, 2, 'ok'],
      ['2 owners', 1, 2, 'ok'],
      ['', 1, 1, 'ok'],
      ['', 1, 1, 'missing'],
    ]);
  });

  test('a silent host is no idle one', () => {
    const rows = layoutOf(
      [card('a', '0', { owner: owner('x') })],
      [node('a', { state: 'silent' })],
      byHost,
    ).rows;
    expect(blocksOf(rows)[0].state).toBe('silent');
  });

  test('where rows are low, hosts that call for a look are named before others', () => {
    const gpus = Array.from({ length: 100 }, (_, at) =>
      card(`h${at}`, '0', { incident: at === 7 ? 'i' : null }),
    );
    const { rows } = layoutOf(gpus, [], byHost);
    const named = namedRows(rows, 'h4');
    const hosts = named.map((r) => r.host);
    expect(hosts).toContain('h4');
    expect(hosts).toContain('h7');
    expect(named.length).toBeGreaterThan(40);
    for (let at = 1; at < named.length; at++)
      expect(named[at].y - named[at - 1].y).toBeGreaterThanOrEqual(15);
    expect(namedRows(layoutOf(gpus.slice(0, 60), [], byHost).rows, undefined)).toHaveLength(60);
  });

  test('arrow keys pass over places without a card', () => {
    const layout = layoutOf([card('a', '0'), card('a', '2'), card('b', '1'), card('c', '0')], [], byHost);
    const first = neighbour(layout, null, 1, 0);
    expect(first && gpuKey(first)).toBe('GPU-a-0');
    expect(neighbour(layout, first, 1, 0)?.gpu).toBe('2');
    expect(neighbour(layout, first, 0, 1)?.host).toBe('c');
    expect(neighbour(layout, first, -1, 0)).toBeNull();
  });
});

describe('colours', () => {
  test('the ramp ends where the signal says, and clips', () => {
    const power = signalOf('power_ratio');
    expect([0, 0.5, 1, 1.4, -1].map((v) => shadeAt(power, v))).toEqual([0, 128, 255, 255, 0]);
    // The margin is worst at none, so the bright end stands at 0.
    const margin = signalOf('temperature_margin');
    expect(shadeAt(margin, 0)).toBe(255);
    expect(shadeAt(margin, 60)).toBe(0);
    // A clock below that of its peers is on the orange end.
    const clock = signalOf('clock_vs_peers');
    expect(shadeAt(clock, 0.8)).toBe(255);
    expect(shadeAt(clock, 1)).toBe(128);
  });

  test('stops lie where they are put', () => {
    const ramp = shades(['#000000', '#ff0000', '#ff00ff', '#ffff00', '#ffffff'], SEQUENTIAL_PLACES);
    expect(ramp).toHaveLength(SHADES);
    expect(ramp[0]).toBe(0xff000000);
    expect(ramp[255]).toBe(0xffffffff);
    expect(ramp[Math.round(255 * 0.6)]).toBe(0xffff00ff);
    // Half the way to the first stop.
    expect(ramp[Math.round(255 * 0.15)] & 255).toBeGreaterThan(120);
  });

  test('what misleads alone is the last of the signals', () => {
    expect(SIGNALS.map((s) => s.key)).toEqual([
      'power_ratio',
      'tensor',
      'dram',
      'clock_vs_peers',
      'throttled',
      'temperature_margin',
      'ecc',
      'busy',
    ]);
    expect(signalOf('nonsense').key).toBe('power_ratio');
  });
});

describe('strips', () => {
  const ink = {
    shades: Uint32Array.from({ length: SHADES }, (_, at) => 1000 + at),
    absent: 1,
    hatch: 2,
    gap: 3,
  };
  const bins = 4;
  const rows = layoutOf(
    [card('a', '0', { bins: [0, 1, null, 0.5] }), card('a', '1', { bins: null })],
    [],
    byHost,
  ).rows;
  const paint = (width: number, top = 0, some = rows) => {
    const pixels = new Uint32Array(width * 20);
    paintStrips(pixels, 20, { rows: some, signal: signalOf('power_ratio'), bins, width, ratio: 1, top }, ink);
    return pixels;
  };

  test('each bin has its shade, what is absent is hatched and never zero', () => {
    const pixels = paint(100);
    const [left, wide] = columnSpan(0, 2, 100, 1);
    expect([left, wide]).toEqual([0, 45]);
    const line = pixels.subarray(0, 100);
    expect(line[0]).toBe(1000);
    expect(line[15]).toBe(1255);
    expect([1, 2]).toContain(line[25]);
    expect(line[44]).toBe(1000 + shadeAt(signalOf('power_ratio'), 0.5));
    expect(line[47]).toBe(3);
    // A card without a history is hatched from end to end.
    expect(new Set(pixels.slice(0, 17 * 100).filter((_, at) => at % 100 >= 50 && at % 100 < 95))).toEqual(
      new Set([1, 2]),
    );
    expect(new Set(pixels.subarray(17 * 100))).toEqual(new Set([3]));
  });

  test('where one pixel stands for several bins the worst is kept', () => {
    const narrow = layoutOf([card('a', '0', { bins: [1, 0.1, 1, 1] })], [], byHost).rows;
    const pixels = paint(3, 0, narrow);
    expect(pixels[0]).toBe(1000 + shadeAt(signalOf('power_ratio'), 0.1));
  });

  test('rows that are scrolled away are not drawn, and half of one is', () => {
    expect(new Set(paint(100, 20))).toEqual(new Set([3]));
    expect(paint(100, 10)[0]).toBe(1000);
    expect(paint(100, 10)[7 * 100]).toBe(3);
  });

  test('a folded row keeps the worst card of each bin, and absent gives way', () => {
    const cells = [
      card('a', '0', { bins: [0.5, null, 1] }),
      null,
      card('a', '1', { bins: [0.9, 0.2, null] }),
    ];
    expect(worstBins(cells, signalOf('power_ratio'), 3)).toEqual([0.5, 0.2, 1]);
    expect(worstBins(cells, signalOf('throttled'), 3)).toEqual([0.9, 0.2, 1]);
    expect(worstBins([null], signalOf('throttled'), 1)).toEqual([null]);
  });
});

describe('filter', () => {
  const gpus = [
    card('host-1', '0', {
      owner: owner('pretrain', { job_id: '7' }),
      value: 0.9,
      xids: [{ time: 1, xid: 79, userspace: false }],
    }),
    card('host-2', '1', { owner: { pod: 'chat-0', namespace: 'serving' }, state: 'silent', value: null }),
    card('gpu "odd" node', '1'),
  ];
  const hosts = (text: string) => gpus.filter(keeper(text)).map((g) => g.host);

  test('tokens keep what they say', () => {
    expect(hosts('')).toHaveLength(3);
    expect(hosts('host:host-1,host-2')).toEqual(['host-1', 'host-2']);
    expect(hosts('host:host-*')).toEqual(['host-1', 'host-2']);
    expect(hosts('-state:silent gpu:1')).toEqual(['gpu "odd" node']);
    expect(hosts('value:<0.95')).toEqual(['host-1', 'gpu "odd" node']);
    expect(hosts('value:-')).toEqual(['host-2']);
    expect(hosts('run:*')).toEqual(['host-1']);
    expect(hosts('xid:79')).toEqual(['host-1']);
    expect(hosts('CHAT')).toEqual(['host-2']);
    expect(hosts('host:h.st-1')).toEqual([]);
  });

  test('an unknown key keeps all and has the nearest beside it', () => {
    expect(hosts('hots:host-1')).toHaveLength(3);
    expect(unknownKeys('hots:host-1 zzzzzzzzz:1 gpu:0')).toEqual(
      new Map([
        ['hots', 'host'],
        ['zzzzzzzzz', ''],
      ]),
    );
    expect(hosts('constructor:1')).toHaveLength(3);
  });

  test('completion offers keys, then values with counts', () => {
    expect(completions('ho', gpus)).toEqual([{ text: 'host:', count: null }]);
    expect(completions('gpu:', gpus)).toEqual([
      { text: 'gpu:1', count: 2 },
      { text: 'gpu:0', count: 1 },
    ]);
    expect(completions('-state:s', gpus)).toEqual([{ text: '-state:silent', count: 1 }]);
  });
});

describe('lanes', () => {
  const own = card('host-3', '1', { owner: owner('pretrain') });

  test('names that come from outside stay inside their quotes', () => {
    expect(selectorOf({ uuid: '', host: 'a"} or vector(1) #', gpu: '0' })).toBe(
      'host="a\\"} or vector(1) #",gpu="0"',
    );
    const peers = questionsOf(own, ['GPU.1', 'a"|b'], SHORT_LANES, 60_000)[2];
    expect(peers).toContain('uuid=~"GPU\\\\.1|a\\"\\\\|b"');
  });

  test('a page asks three questions, and two where there are no peers', () => {
    expect(questionsOf(own, ['a'], LANES, 15_000)).toHaveLength(3);
    expect(questionsOf(own, [], LANES, 15_000)).toHaveLength(2);
    const [gauges, rates, peers] = questionsOf(own, ['a'], SHORT_LANES, 60_000);
    expect(gauges).toContain('[120s]');
    expect(rates).toContain('power_ratio');
    expect(peers).toContain('quantile by (__name__) (0.5');
  });

  test('peers are those of the run, job or pod, else those of the model that nobody has either', () => {
    const all = [
      own,
      card('a', '0', { owner: owner('pretrain') }),
      card('b', '0', { owner: { job_id: '7' } }),
      card('c', '0', { owner: { job_id: '7' } }),
      card('d', '0', { gpu_model: 'L4' }),
    ];
    expect(peersOf(own, all)).toEqual(['GPU-a-0']);
    expect(peersOf(all[2], all)).toEqual(['GPU-c-0']);
    expect(peersOf(all[4], all)).toEqual([]);
    const pod = (name: string) => ({ owner: { namespace: 'serving', pod: name } });
    const shared = [
      card('e', '0', pod('chat')),
      card('e', '1', pod('chat')),
      card('e', '2', pod('draft')),
      card('f', '0', {}),
      card('f', '1', {}),
      card('g', '0', { owner: owner('pretrain') }),
    ];
    expect(peersOf(shared[0], shared)).toEqual(['GPU-e-1']);
    expect(peersOf(shared[2], shared)).toEqual([]);
    expect(peersOf(shared[3], shared)).toEqual(['GPU-f-1']);
    const many = Array.from({ length: 1000 }, (_, at) => card(`h${at}`, '0', { owner: owner('pretrain') }));
    expect(peersOf(own, many)).toHaveLength(63);
  });

  const answer = (rows: [Record<string, string>, [number, string][]][]): RangeAnswer => ({
    range: { from: 0, to: 4000 },
    step: 1000,
    x: Float64Array.from([0, 1000, 2000, 3000, 4000]),
    series: rows.map(([labels, samples]) => seriesOf(labels, samples, 0, 1000, 5)),
    total: rows.length,
    samplesRead: 0,
    milliseconds: 0,
    warnings: [],
    infos: [],
  });
  const clock = { __name__: 'tg_gpu_sm_clock_hertz' };

  test('series find their lanes, peers come after the card, gaps stay gaps', () => {
    const lines = linesOf(
      LANES,
      [
        answer([
          [
            clock,
            [
              [0, '5'],
              [1, '6'],
              [4, '7'],
            ],
          ],
          [{ __name__: 'tg_gpu_power_limit_watts' }, [[0, '700']]],
          [{ __name__: 'tg_gpu_power_watts' }, [[0, '500']]],
        ]),
        answer([[clock, [[0, '9']]]]),
      ],
      1,
    );
    const [card, peers] = lines.get('clock')!;
    expect([card.kind, peers.kind]).toEqual(['own', 'peers']);
    expect(holesOf([card, peers], { from: 0, to: 4000 })).toEqual([[1500, 3500]]);
    expect(valueAt(card, null)).toBe(7);
    expect(valueAt(card, 2000)).toBeNaN();
    expect(valueAt(card, 1200)).toBe(6);
    expect(lines.get('power')!.map((l) => l.kind)).toEqual(['own', 'ceiling']);
    expect(lines.has('tensor')).toBe(false);
    expect(holesOf([], { from: 0, to: 4000 })).toEqual([[0, 4000]]);
  });

  test('reasons that held nothing back are left out, unless none did', () => {
    const reason = (name: string, value: string): [Record<string, string>, [number, string][]] => [
      { what: 'throttled', reason: name },
      [[0, value]],
    ];
    const some = linesOf(LANES, [answer([reason('sw_power', '0'), reason('hw_thermal', '0.4')])], -1);
    expect(some.get('throttled')!.map((l) => l.text)).toEqual(['hw_thermal']);
    const none = linesOf(LANES, [answer([reason('sw_power', '0'), reason('hw_thermal', '0')])], -1);
    expect(none.get('throttled')).toHaveLength(1);
  });

  test('a ratio goes from 0 to 1, a constant has room, nothing has an axis', () => {
    const lane = (id: string) => LANES.find((l) => l.id === id)!;
    const line = (...y: number[]) => ({
      key: '',
      text: '',
      x: Float64Array.from(y),
      y: Float64Array.from(y),
      kind: 'own' as const,
    });
    expect(extentOf(lane('tensor'), [line(0.2, 0.4)])).toEqual([0, 1]);
    expect(extentOf(lane('clock'), [line(100, 100)])).toEqual([95, 105]);
    expect(extentOf(lane('clock'), [])).toEqual([0, 1]);
    expect(extentOf(lane('power'), [line(Number.NaN, 300)])).toEqual([0, 300]);
  });
});

describe('words', () => {
  test('a cell says what it is, and absent never reads as zero', () => {
    const gpu = card('host-3', '1', {
      value: 0.71,
      bins: [null, 0.8],
      peers: { median: 0.8, ratio: 0.89, of: 'run', count: 64 },
    });
    const answer = {
      signal: 'power_ratio',
      signals: [
        {
          key: 'power_ratio',
          title: '',
          unit: 'ratio',
          trust: 'B' as const,
          caveat: '',
          metric: '',
          peers: true,
        },
      ],
      from: 0,
      to: 120_000,
      step_ms: 60_000,
      coverage: 1,
      gpus: [gpu],
    };
    expect(cellText(answer, gpu, -1)).toBe('host-3 · GPU 1: 0.71, 63 peers 0.80');
    expect(cellText(answer, gpu, 0)).toContain('absent');
    const silent = card('h', '0', { state: 'silent', value: null });
    expect(cellText(answer, silent, -1)).toContain('absent, not idle');
    expect(valueText(null, 'ratio')).toBe('absent');
    expect(valueText(0, 'ratio')).toBe('0.00');
    expect(valueText(21.5, 'celsius')).toBe('21.50\u2009°C');
    expect(valueText(3, 'errors')).toBe('3');
  });

  test('owners are named by what is known of them', () => {
    expect(ownerText(null)).toBe('no owner');
    expect(ownerText(owner('pretrain', { job_id: '7', shared: 2, confidence: 'likely' }))).toBe(
      'pretrain, job 7, shared by 2, likely',
    );
    expect(ownerText({ namespace: 'serving', pod: 'chat-0' })).toBe('chat-0, pod serving/chat-0');
    expect(ownerText({ run_id: 'ab12' })).toBe('run ab12');
  });

  test('nodes with gaps are those whose counts differ, or that report twice', () => {
    const nodes = [
      node('whole'),
      node('short', { gpus: { pci: 8, driver: 7, allocated: null } }),
      node('twice', { agents: 2 }),
      node('unknown', { gpus: { pci: null, driver: 8, allocated: null } }),
    ];
    const totals = { hosts: 4, silent: 0, pci: 8, driver: 7, allocated: null, missing: 1 };
    expect(gapsOf({ nodes, totals }).map((n) => n.host)).toEqual(['short', 'twice']);
  });
});

describe('range and address', () => {
  beforeEach(() => window.history.replaceState(null, '', '/fleet'));

  test('bins are whole, hold the range and stand still while it moves within one', () => {
    const hour = 3_600_000;
    const { from, to } = binned({ from: 1_000_000 * hour, to: 1_000_000 * hour + 3 * hour + 17 }, 36);
    expect((to - from) % 36).toBe(0);
    expect(to).toBeGreaterThanOrEqual(1_000_000 * hour + 3 * hour + 17);
    const later = binned({ from: 1_000_000 * hour + 20_000, to: 1_000_000 * hour + 3 * hour + 20_017 }, 36);
    expect(later).toEqual({ from, to });
  });

  test('three hours are shown when the address says nothing, and one hour can be chosen', () => {
    const range = new FleetRange();
    expect(range.span.value).toEqual({ last: '3h' });
    range.choose(null, null);
    expect(window.location.search).toBe('?from=-1h');
    range.choose('-3h', null);
    expect(window.location.search).toBe('');
  });

  test('a card’s path and its page are the same thing', () => {
    for (const [host, gpu] of [
      ['host-3', '1'],
      ['<img src=x>/..', '-'],
      ['', '0'],
    ]) {
      const [path] = gpuPath(host, gpu, 'GPU-1').split('?');
      expect(parseRoute(path)).toEqual({ page: 'gpu', host, gpu });
    }
    expect(parseRoute('/fleet')).toEqual({ page: 'fleet' });
    expect(parseRoute('/fleet/a').page).toBe('missing');
    expect(gpuPath('a', '0', 'GPU 1')).toBe('/fleet/a/0?uuid=GPU%201');
  });
});
