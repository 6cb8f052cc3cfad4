/** A card's history beside that of its peers, asked of the Prometheus API in few questions. */
import { askRange, type RangeAnswer, type Series } from '../explore/answer';
import { gridOf } from '../explore/span';
import type { Gpu, Level } from './answers';
import { rateWindow } from './range';

/** One lane. */
export interface LaneSpec {
  id: string;
  title: string;
  unit: string;
  level: Level;
  caveat: string;
  /** Series that it draws, and the word of each; the first is the card's own that peers are held against. */
  metrics: { name: string; text: string }[];
  /** Fields of the driver that it hangs on, as they are named when they are unsupported. */
  fields: string[];
  /** A value that is always on the axis, and one that ends it. */
  ends: [number | null, number | null];
  compared: boolean;
}

const spec = (
  id: string,
  title: string,
  unit: string,
  level: Level,
  metrics: string[],
  more: Partial<LaneSpec> = {},
): LaneSpec => ({
  id,
  title,
  unit,
  level,
  caveat: '',
  metrics: metrics.map((m) => {
    const [name, text] = m.split(' ');
    return { name, text: text ?? '' };
  }),
  fields: [],
  ends: [0, null],
  compared: false,
  ...more,
});

/** What a rate is called in an answer, beside names of gauges. */
const THROTTLED = 'throttled';
const NVLINK = 'nvlink';
const POWER_RATIO = 'power_ratio';

/** Lanes of the card's page, in their order. */
export const LANES: LaneSpec[] = [
  spec('clock', 'SM clock', 'Hz', 'A', ['tg_gpu_sm_clock_hertz'], {
    compared: true,
    ends: [null, null],
    fields: ['clock'],
  }),
  spec(THROTTLED, 'throttled', 'ratio', 'A', [THROTTLED], {
    fields: ['throttl', 'violation', 'clock_event'],
  }),
  spec('power', 'power', 'W', 'B', ['tg_gpu_power_watts board', 'tg_gpu_power_limit_watts limit'], {
    compared: true,
    fields: ['power'],
  }),
  spec('margin', 'temp. margin', '°C', 'A', ['tg_gpu_temperature_margin_celsius'], {
    compared: true,
    fields: ['temperature'],
  }),
  spec('tensor', 'tensor active', 'ratio', 'A', ['tg_gpu_tensor_active_ratio'], {
    compared: true,
    ends: [0, 1],
    fields: ['tensor', 'gpm'],
  }),
  spec('dram', 'DRAM active', 'ratio', 'A', ['tg_gpu_dram_active_ratio'], {
    compared: true,
    ends: [0, 1],
    fields: ['dram', 'gpm'],
  }),
  spec('memory', 'memory', 'B', 'D', ['tg_gpu_memory_used_bytes used', 'tg_gpu_memory_total_bytes total'], {
    caveat: 'engines and frameworks allocate nearly all of it whatever they do',
    fields: ['memory_used'],
  }),
  spec(
    'pcie',
    'PCIe',
    'B/s',
    'B',
    ['tg_gpu_pcie_receive_bytes_per_second receive', 'tg_gpu_pcie_transmit_bytes_per_second transmit'],
    { fields: ['pcie'] },
  ),
  spec(NVLINK, 'NVLink', 'B/s', 'B', [NVLINK], { fields: ['nvlink'] }),
  spec('busy', 'GPU busy', 'ratio', 'D', ['tg_gpu_busy_ratio'], {
    caveat: 'any resident kernel counts as busy, however little it does',
    ends: [0, 1],
    fields: ['utilization', 'busy'],
  }),
];

/** Lanes beside the map of the fleet. */
export const SHORT_LANES: LaneSpec[] = [
  LANES[0],
  spec(POWER_RATIO, 'power ÷ limit', 'ratio', 'B', [POWER_RATIO], { compared: true, ends: [null, null] }),
  LANES[3],
  { ...LANES[4], ends: [null, null] },
];

/** A line of a lane. */
export interface LaneLine {
  key: string;
  text: string;
  x: Float64Array;
  y: Float64Array;
  kind: 'own' | 'peers' | 'ceiling';
}

/** What was read of a card. */
export interface History {
  range: { from: number; to: number };
  step: number;
  /** By the id of its lane; none where nothing came. */
  lines: Map<string, LaneLine[]>;
  warnings: string[];
}

const quoted = (text: string) => JSON.stringify(text);

/** The labels that only series of this card have. */
export function selectorOf({ uuid, host, gpu }: Pick<Gpu, 'uuid' | 'host' | 'gpu'>): string {
  return uuid ? `uuid=${quoted(uuid)}` : `host=${quoted(host)},gpu=${quoted(gpu)}`;
}

/** Peers that are read at most; of more, every so-and-so-many-th. */
const PEERS_MAX = 64;

/** Cards that this one is held against: the others of its run, job or pod; without an owner those of its model
 *  that have none either, since one at work says nothing of one that rests. */
export function peersOf(gpu: Gpu, all: Gpu[]): string[] {
  const { run_id, job_id, pod, namespace } = gpu.owner ?? {};
  const alike = ({ owner, gpu_model }: Gpu) => {
    if (run_id) return owner?.run_id === run_id;
    if (job_id) return owner?.job_id === job_id;
    if (pod) return owner?.pod === pod && owner.namespace === namespace;
    return !owner && gpu_model === gpu.gpu_model;
  };
  const found = all.filter((g) => g.uuid !== '' && g.uuid !== gpu.uuid && alike(g)).map((g) => g.uuid);
  const stride = Math.ceil(found.length / PEERS_MAX);
  return found.filter((_, at) => at % stride === 0);
}

/** A matcher of these values and no others. */
const anyOf = (label: string, values: string[]) =>
  `${label}=~${quoted(values.map((v) => v.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')).join('|'))}`;

const gauges = (lanes: LaneSpec[], some: (lane: LaneSpec) => boolean = () => true) =>
  lanes
    .filter(some)
    .flatMap((lane) => lane.metrics.map((m) => m.name))
    .filter((name) => name.startsWith('tg_'));

/** Names as one selector. A rate's window, so that a short silence is none and a long one is seen. */
const last = (names: string[], labels: string, window: string) =>
  `last_over_time({__name__=~"${names.join('|')}",${labels}}[${window}])`;

const named = (query: string, what: string) => `label_replace(${query}, "what", "${what}", "", "")`;

const ratio = (labels: string, window: string) =>
  `last_over_time(tg_gpu_power_watts{${labels}}[${window}]) / last_over_time(tg_gpu_power_limit_watts{${labels}}[${window}])`;

/** The questions: the card's gauges, its rates, and the middle one of its peers. */
export function questionsOf(gpu: Gpu, peers: string[], lanes: LaneSpec[], step: number): string[] {
  const window = rateWindow(step);
  const own = selectorOf(gpu);
  const has = (id: string) => lanes.some((lane) => lane.id === id);
  const rates: string[] = [];
  if (has(THROTTLED))
    rates.push(
      named(
        `(max by (reason) (rate(tg_gpu_throttled_seconds_total{${own}}[${window}])) or max by (reason) (last_over_time(tg_gpu_throttled_ratio{${own}}[${window}])) or max by (reason) (avg_over_time(tg_gpu_throttle_active{${own}}[${window}])))`,
        THROTTLED,
      ),
    );
  if (has(NVLINK))
    rates.push(named(`sum by (direction) (rate(tg_gpu_nvlink_bytes_total{${own}}[${window}]))`, NVLINK));
  if (has(POWER_RATIO)) rates.push(named(ratio(own, window), POWER_RATIO));
  const others = anyOf('uuid', peers);
  const compared = gauges(lanes, (lane) => lane.compared).filter((name) => !name.includes('limit'));
  const median = [
    `quantile by (__name__) (0.5, ${last(compared, others, window)})`,
    ...(has(POWER_RATIO) ? [named(`quantile(0.5, ${ratio(others, window)})`, POWER_RATIO)] : []),
  ];
  return [
    last(gauges(lanes), own, window),
    ...(rates.length > 0 ? [rates.join(' or ')] : []),
    ...(peers.length > 0 ? [median.join(' or ')] : []),
  ];
}

/** A card and those that it is held against. */
export interface Subject {
  gpu: Gpu;
  peers: string[];
}

/** Whether two readings would ask the same. */
export function sameSubject(a: Subject | null, b: Subject | null): boolean {
  const key = (s: Subject | null) => s && JSON.stringify([s.gpu.uuid, s.gpu.host, s.gpu.gpu, s.peers]);
  return key(a) === key(b);
}

/** Reads the lanes of a card. */
export async function readHistory(
  { gpu, peers }: Subject,
  lanes: LaneSpec[],
  range: { from: number; to: number },
  step: number,
  signal: AbortSignal,
): Promise<History> {
  const grid = gridOf(range, step);
  const questions = questionsOf(gpu, peers, lanes, step);
  const answers = await Promise.all(questions.map((query) => askRange(query, grid, step, signal)));
  const peersAt = peers.length > 0 ? questions.length - 1 : -1;
  return {
    range,
    step,
    lines: linesOf(lanes, answers, peersAt),
    warnings: [...new Set(answers.flatMap((a) => a.warnings))],
  };
}

/** Puts series into their lanes. */
export function linesOf(lanes: LaneSpec[], answers: RangeAnswer[], peersAt: number): Map<string, LaneLine[]> {
  const lines = new Map<string, LaneLine[]>();
  answers.forEach((answer, at) => {
    for (const series of answer.series) {
      const name = series.labels.what ?? series.labels.__name__ ?? '';
      for (const lane of lanes) {
        const metric = lane.metrics.find((m) => m.name === name);
        if (!metric || series.samples === 0) continue;
        const line = lineOf(series, answer.x, metric.text, at === peersAt);
        lines.set(lane.id, [...(lines.get(lane.id) ?? []), line]);
      }
    }
  });
  for (const [id, some] of lines)
    lines.set(
      id,
      some.filter(lit(id)).sort((a, b) => kinds(a) - kinds(b)),
    );
  return lines;
}

const kinds = (line: LaneLine) => ['own', 'peers', 'ceiling'].indexOf(line.kind);

/** A reason that never held anything back is no line of its own: the lane says so when all are zero. */
const lit = (id: string) => (line: LaneLine, _at: number, all: LaneLine[]) =>
  id !== THROTTLED ||
  line.y.some((v) => v > 0) ||
  (all.every((l) => !l.y.some((v) => v > 0)) && line === all[0]);

function lineOf(series: Series, x: Float64Array, text: string, isPeers: boolean): LaneLine {
  const { reason, direction, gi } = series.labels;
  const words = [reason ?? direction ?? text, gi ? `slice ${gi}` : ''].filter(Boolean).join(' · ');
  const kind = isPeers ? 'peers' : /^(limit|total)$/.test(text) ? 'ceiling' : 'own';
  return {
    key: `${kind} ${series.labels.__name__ ?? ''} ${words}`,
    text: isPeers ? 'peers' : words,
    x,
    y: series.values,
    kind,
  };
}

/** The value at a time, or the last one when no time is given; NaN where there is none. */
export function valueAt(line: LaneLine, time: number | null): number {
  if (time === null) {
    const at = line.y.findLastIndex((v) => !Number.isNaN(v));
    return at < 0 ? Number.NaN : line.y[at];
  }
  const step = line.x.length > 1 ? line.x[1] - line.x[0] : 1;
  const at = Math.round((time - (line.x[0] ?? 0)) / step);
  return line.y[at] ?? Number.NaN;
}

/** The least and the most of a lane's axis. */
export function extentOf(lane: LaneSpec, lines: LaneLine[]): [number, number] {
  let [low, high] = [lane.ends[0] ?? Infinity, lane.ends[1] ?? -Infinity];
  for (const { y } of lines)
    for (const value of y) {
      if (!Number.isFinite(value)) continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
  if (!(low <= high)) return [0, 1];
  if (low === high) return low === 0 ? [0, 1] : low > 0 ? [low * 0.95, low * 1.05] : [low * 1.05, low * 0.95];
  // An axis that begins elsewhere than at zero leaves room around its lines.
  const room = lane.ends[0] === null ? (high - low) * 0.1 : 0;
  return [low - room, high + room];
}

/** Spans in which no line of the card itself has a value, as they are hatched. */
export function holesOf(lines: LaneLine[], range: { from: number; to: number }): [number, number][] {
  const own = lines.filter((l) => l.kind === 'own');
  const x = own[0]?.x;
  if (!x || x.length === 0) return [[range.from, range.to]];
  const step = x.length > 1 ? x[1] - x[0] : range.to - range.from;
  const holes: [number, number][] = [];
  let from: number | null = null;
  for (let at = 0; at < x.length; at++) {
    const empty = own.every((l) => Number.isNaN(l.y[at]));
    if (empty && from === null) from = at === 0 ? range.from : x[at] - step / 2;
    if (!empty && from !== null) {
      holes.push([from, x[at] - step / 2]);
      from = null;
    }
  }
  if (from !== null) holes.push([from, range.to]);
  return holes;
}
