/** The lanes of the System tab: which series each one draws, and how a card is held against its peers. */
import { type ChartInfo, isSystem, rank } from '../charts/sections';

/** What one line of a lane stands for. */
export type Subject = 'run' | 'gpu' | 'host' | 'process';

/** How far from its peers a card is, and which way is worse. */
export interface Compared {
  worse: 'low' | 'high';
  /** A share of the peers' median, or a difference to it. */
  by: 'ratio' | 'difference';
  /** Where the ramp ends. */
  clip: number;
  /** What the ramp's ends are called, the better one first. */
  ends: [better: string, worse: string];
}

/** A lane that a run may have. */
export interface LaneSpec {
  id: string;
  title: string;
  /** What is below the title: the unit in words, or of what. */
  note: string;
  /** Display names of its series: one, or several that are drawn beside each other. */
  metrics: string[];
  subject: Subject;
  /** A counter, drawn as what it gains a second. */
  rate: boolean;
  /** The label whose values overlap: the greatest counts, and they are told apart for the selected card. */
  parted: string | null;
  /** Display name of what the values can't exceed, drawn as a line. */
  ceiling: string | null;
  compared: Compared | null;
  /** Misleading alone: small, grey and last. */
  demoted: boolean;
  /** Shown unless the address says otherwise. */
  usual: boolean;
  height: number;
  /** The same signal as a node's agent reports it. */
  agent: { name: string; factor: number } | null;
}

/** Lanes that hold the run's own numbers, above those of the hardware. */
export const CONTEXT = ['loss', 'step'];

const LOW = 64;

const spec = (
  id: string,
  title: string,
  note: string,
  metrics: string[],
  subject: Subject,
  more: Partial<LaneSpec> = {},
): LaneSpec => ({
  id,
  title,
  note,
  metrics,
  subject,
  rate: false,
  parted: null,
  ceiling: null,
  compared: null,
  demoted: false,
  usual: true,
  height: LOW,
  agent: null,
  ...more,
});

const gpu = (id: string, title: string, note: string, metric: string, more: Partial<LaneSpec>) =>
  spec(id, title, note, [`system/gpu/${metric}`], 'gpu', more);

const less = (word: string, other: string): Compared => ({
  worse: 'low',
  by: 'ratio',
  clip: 0.2,
  ends: [`${word} 20 %`, `${other} 20 %`],
});

const agent = (name: string, factor = 1) => ({ name: `tg_gpu_${name}`, factor });

/** Lanes of a GPU in their order; of those with one id, the first one that has series is drawn. */
const GPU_LANES: LaneSpec[] = [
  gpu('clock', 'SM clock', 'MHz', 'sm_clock_mhz', {
    compared: less('faster', 'slower'),
    ceiling: 'system/gpu/sm_clock_max_mhz',
    height: 92,
    agent: agent('sm_clock_hertz', 1e-6),
  }),
  gpu('throttled', 'throttled', 'share of time, by reason', 'throttled_seconds_total', {
    rate: true,
    parted: 'reason',
    compared: { worse: 'high', by: 'difference', clip: 0.2, ends: ['less', 'more by 0.20'] },
    agent: agent('throttled_seconds_total'),
  }),
  gpu('temperature', 'temperature margin', '°C to slowdown', 'temperature_margin_celsius', {
    compared: { worse: 'low', by: 'difference', clip: 10, ends: ['10 °C more', '10 °C less'] },
    agent: agent('temperature_margin_celsius'),
  }),
  gpu('temperature', 'temperature', '°C', 'temperature_celsius', {
    compared: { worse: 'high', by: 'difference', clip: 10, ends: ['cooler 10 °C', 'hotter 10 °C'] },
    agent: agent('temperature_celsius'),
  }),
  gpu('power', 'power ÷ limit', 'of the enforced limit', 'power_limit_ratio', {
    compared: less('more', 'less'),
    height: 80,
  }),
  gpu('power', 'power', 'W', 'power_watts', {
    compared: less('more', 'less'),
    height: 80,
    agent: agent('power_watts'),
  }),
  gpu('tensor', 'tensor active', 'share of cycles', 'tensor_active_ratio', {
    compared: less('more', 'less'),
    height: 72,
    agent: agent('tensor_active_ratio'),
  }),
  gpu('dram', 'DRAM active', 'share of cycles', 'dram_active_ratio', {
    compared: less('more', 'less'),
    agent: agent('dram_active_ratio'),
  }),
  gpu('memory', 'memory', '% allocated', 'memory_utilization', {
    compared: { worse: 'high', by: 'difference', clip: 20, ends: ['20 points less', '20 points more'] },
  }),
  gpu('memory', 'memory used', 'B', 'memory_used_bytes', {
    compared: { worse: 'high', by: 'ratio', clip: 0.2, ends: ['less 20 %', 'more 20 %'] },
    agent: agent('memory_used_bytes'),
  }),
  gpu('sm', 'SM active', 'share of cycles', 'sm_active_ratio', {
    compared: less('more', 'less'),
    usual: false,
    agent: agent('sm_active_ratio'),
  }),
];

const BUSY = gpu('busy', 'GPU busy', '', 'utilization', {
  demoted: true,
  height: 34,
  agent: agent('busy_ratio', 100),
});

const HOST_LANES: LaneSpec[] = [
  spec('cpu', 'CPU', '% of what may be used', ['system/cpu/utilization'], 'host'),
  spec('host_memory', 'memory', '% of the limit', ['system/memory/utilization'], 'host'),
  spec('disk', 'disk', '% of / in use', ['system/disk/utilization'], 'host'),
  spec(
    'pressure',
    'pressure',
    'share of time somebody waited',
    ['cpu', 'memory', 'io'].map((what) => `system/pressure/${what}_waiting_ratio`),
    'host',
  ),
  spec('tree_cpu', 'process tree', 'CPU, % of one core', ['system/process_tree/cpu_utilization'], 'process'),
  spec('tree_memory', 'process tree', 'resident memory', ['system/process_tree/rss_bytes'], 'process'),
  spec(
    'held_back',
    'held back by a quota',
    'share of time',
    ['system/process/cpu_throttled_seconds_total'],
    'process',
    { rate: true },
  ),
  spec('process_cpu', 'process', 'CPU, % of one core', ['system/process/cpu_utilization'], 'process', {
    usual: false,
  }),
  spec('process_memory', 'process', 'resident memory', ['system/process/rss_bytes'], 'process', {
    usual: false,
  }),
];

/** What a metric of a card is called, drawn or not. */
export function gpuTitle(display: string): string {
  const lane = [...GPU_LANES, BUSY].find((l) => l.metrics.includes(display));
  if (lane) return lane.title;
  const plain = display.replace(/^system\/gpu\//, '').replace(/_total$/, '');
  return plain.replace(/_(bytes|celsius|joules|mhz|ratio|seconds|watts)$/, '').replace(/_/g, ' ');
}

const natural = new Intl.Collator('en', { numeric: true });

/** A lane for a system metric that the table does not name. */
function unnamed(chart: ChartInfo): LaneSpec {
  const name = chart.name.replace(/^system\//, '').replace(/^gpu\//, '');
  const labels = chart.series[0].labels;
  const subject = 'gpu' in labels ? 'gpu' : 'pid' in labels ? 'process' : 'host';
  const rate = chart.kind === 'counter';
  const note = [chart.unit, rate ? 'a second' : ''].filter(Boolean).join(' ');
  return spec(name, name.replace(/[/_]/g, ' '), note, [chart.name], subject, { rate, usual: false });
}

/** The run's own numbers that give the hardware its context: the loss, and how long a step takes. */
function contextLanes(charts: ChartInfo[]): LaneSpec[] {
  const by = (a: ChartInfo, b: ChartInfo) => rank(a.name) - rank(b.name) || natural.compare(a.name, b.name);
  const own = charts.filter((c) => !isSystem(c.name)).sort(by);
  const loss = own.find((c) => rank(c.name) <= 2);
  const step = own.find((c) => /(^|[/_])step_(time|seconds)$/.test(c.name));
  return [
    ...(loss ? [spec('loss', loss.name, loss.unit, [loss.name], 'run')] : []),
    ...(step ? [spec('step', 'step time', step.unit || 's', [step.name], 'run')] : []),
  ];
}

/** Every lane that the run has series for: context, GPU, then host; the misleading one last of its group. */
export function lanesOf(charts: ChartInfo[]): LaneSpec[] {
  const names = new Set(charts.map((c) => c.name));
  const drawn = new Set<string>();
  const present = (all: LaneSpec[]) =>
    all.flatMap((lane) => {
      const metrics = lane.metrics.filter((m) => names.has(m));
      if (metrics.length === 0 || drawn.has(lane.id)) return [];
      drawn.add(lane.id);
      return [{ ...lane, metrics }];
    });
  const gpus = present(GPU_LANES);
  const busy = present([BUSY]);
  const hosts = present(HOST_LANES);
  const known = new Set([...GPU_LANES, BUSY, ...HOST_LANES].flatMap((l) => l.metrics));
  const rest = charts
    .filter((c) => isSystem(c.name) && !known.has(c.name))
    .sort((a, b) => natural.compare(a.name, b.name))
    .map(unnamed);
  return [
    ...contextLanes(charts),
    ...gpus,
    ...rest.filter((l) => l.subject === 'gpu'),
    ...busy,
    ...hosts,
    ...rest.filter((l) => l.subject !== 'gpu'),
  ];
}

/** The lanes that are shown: those of the address in its order, else the usual ones; context comes first. */
export function shownLanes(all: LaneSpec[], wanted: string[]): LaneSpec[] {
  const chosen =
    wanted.length > 0
      ? wanted.flatMap((id) => all.find((l) => l.id === id) ?? [])
      : all.filter((l) => l.usual);
  return [...chosen.filter((l) => CONTEXT.includes(l.id)), ...chosen.filter((l) => !CONTEXT.includes(l.id))];
}

/** Lanes that cells may be coloured by: those that can be held against peers. */
export const colours = (lanes: LaneSpec[]) => lanes.filter((l) => l.compared !== null && !l.demoted);
