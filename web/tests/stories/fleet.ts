/** A made-up fleet, the same each time: jobs, a slow card, one that fell off its bus, a silent host. */
import type { Page } from '@playwright/test';
import type { FleetEvent, Gpu, GpusAnswer, Incident, Node, Owner } from '../../src/fleet/answers';
import { NOW } from './world';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const BINS = 36;

/** What hostile names look like. */
export const HOSTILE = '<img src=x onerror=alert(1)>\u202e';

/** When the card of host-3 began to throttle, and when that of host-22 fell off its bus. */
const ONSET = NOW - 50 * MINUTE;
const FELL = NOW - 3 * HOUR + 12 * MINUTE;

interface Job {
  from: number;
  to: number;
  owner: Owner | null;
  level: number;
  since: number;
}

const run = (name: string): Owner => ({
  run_id: `id-${name}`,
  run: name,
  job_id: '48213',
  namespace: null,
  pod: null,
  container: null,
  shared: null,
  confidence: 'certain',
});

const pod = (name: string, shared: number | null = null): Owner => ({
  run_id: null,
  run: null,
  job_id: null,
  namespace: 'serving',
  pod: name,
  container: 'vllm',
  shared,
  confidence: 'likely',
});

const JOBS: Job[] = [
  { from: 1, to: 8, owner: run('pretrain-7b'), level: 0.8, since: 142 },
  { from: 9, to: 16, owner: run('pretrain-7b-bs640'), level: 0.84, since: 170 },
  { from: 17, to: 20, owner: run('moe-30b-sft'), level: 0.5, since: 400 },
  { from: 21, to: 21, owner: run('pretrain-1b-mup'), level: 0.72, since: 400 },
  { from: 23, to: 24, owner: run('dpo-8b-v4'), level: 0.72, since: 80 },
  { from: 25, to: 25, owner: run('vision-tok-2'), level: 0.6, since: 10 },
  { from: 26, to: 28, owner: pod('chat-70b'), level: 0.3, since: 400 },
  { from: 29, to: 29, owner: run('eval-suite-03'), level: 0.6, since: 60 },
  { from: 30, to: 30, owner: pod('code-8b', 2), level: 0.28, since: 400 },
  { from: 32, to: 32, owner: pod('embed-1b'), level: 0.24, since: 400 },
];

const noise = (a: number, b: number, c: number) => {
  const value = Math.sin(a * 12.9898 + b * 78.233 + c * 37.719) * 43758.5453;
  return value - Math.floor(value);
};

const uuidOf = (host: number, gpu: number) =>
  `GPU-${(host * 8 + gpu).toString(16).padStart(8, '0')}-0000-4000-8000-000000000000`;

function powerAt(host: number, gpu: number, time: number, job: Job | undefined): number | null {
  if (host === 22 && gpu === 5 && time > FELL) return null;
  if (host === 29 && time > NOW - 32 * MINUTE) return null;
  const idle = 0.09 + 0.02 * noise(host, gpu, Math.floor(time / MINUTE));
  if (!job || time < NOW - job.since * MINUTE) return idle;
  const wave = host >= 17 && host <= 20 ? 0.12 * Math.sin(time / (7 * MINUTE)) : 0;
  const slow = host <= 8 && time > ONSET ? (host === 3 && gpu === 1 ? 0.7 : 0.78) : 1;
  return job.level * slow + wave + 0.05 * (noise(host, gpu, Math.floor(time / (5 * MINUTE))) - 0.5);
}

/** A signal's value of a card at a time. */
function valueAt(signal: string, host: number, gpu: number, time: number): number | null {
  const job = JOBS.find((j) => host >= j.from && host <= j.to);
  const power = powerAt(host, gpu, time, job);
  if (power === null) return null;
  const slow = host === 3 && gpu === 1 && time > ONSET;
  switch (signal) {
    case 'clock_vs_peers':
      return slow ? 0.8 : 0.99 + 0.02 * noise(host, gpu, time / MINUTE);
    case 'throttled':
      return slow ? 0.41 : 0.03 * noise(host, gpu, time / MINUTE);
    case 'temperature_margin':
      return slow ? 0 : Math.round(21 + 6 * noise(host, gpu, 3));
    case 'ecc':
      return host === 6 && gpu === 4 && time > NOW - 96 * MINUTE ? 3 : 0;
    case 'busy':
      return power > 0.15 ? 0.99 : 0;
    case 'tensor':
      return Math.max(0, power - 0.25) * 0.8;
    case 'dram':
      return Math.max(0, power - 0.1) * 0.9;
    default:
      return power;
  }
}

const info = (
  key: string,
  title: string,
  unit: string,
  trust: 'A' | 'B' | 'D',
  caveat: string,
  metric: string,
) => ({
  key,
  title,
  unit,
  trust,
  caveat,
  metric: `tg_gpu_${metric}`,
  peers: true,
});

const INFOS = [
  info(
    'power_ratio',
    'power ÷ enforced limit',
    'ratio',
    'B',
    'a limit that was lowered makes it high',
    'power_watts',
  ),
  info('tensor', 'tensor active', 'ratio', 'A', '', 'tensor_active_ratio'),
  info('dram', 'DRAM active', 'ratio', 'A', '', 'dram_active_ratio'),
  info('clock_vs_peers', 'SM clock ÷ peers', 'ratio', 'A', '', 'sm_clock_hertz'),
  info('throttled', 'throttled', 'ratio', 'A', '', 'throttled_seconds_total'),
  info('temperature_margin', 'temperature margin', 'celsius', 'A', '', 'temperature_margin_celsius'),
  info('ecc', 'ECC errors and remaps', '', 'A', '', 'ecc_errors_total'),
  info('busy', 'GPU busy', 'ratio', 'D', 'any resident kernel counts as busy', 'busy_ratio'),
];

/** Of hosts so and so many, by their number. */
export interface FleetStory {
  hosts: number;
  /** Cards that a host has. */
  cards: number;
  /** Hosts, owners and lines have hostile names. */
  hostile?: boolean;
}

const hostName = (story: FleetStory, host: number) =>
  story.hostile && host === 1 ? `${HOSTILE}-1` : `host-${host}`;

function cardOf(story: FleetStory, signal: string, host: number, gpu: number, from: number, to: number): Gpu {
  const job = JOBS.find((j) => host >= j.from && host <= j.to);
  const step = (to - from) / BINS;
  const bins = Array.from({ length: BINS }, (_, at) => valueAt(signal, host, gpu, from + (at + 0.5) * step));
  const missing = host === 22 && gpu === 5;
  const silent = host === 29;
  const slow = host === 3 && gpu === 1;
  const owner = job?.owner ?? null;
  const named = story.hostile && host === 1 && owner ? { ...owner, run: HOSTILE } : owner;
  const value = missing || silent ? null : bins[BINS - 1];
  return {
    host: hostName(story, host),
    gpu: String(gpu),
    uuid: uuidOf(host, gpu),
    gpu_model: 'NVIDIA H100 80GB HBM3',
    driver: '570.86.15',
    pci_bus_id: `0000:${(gpu * 16 + 0x1b).toString(16)}:00.0`,
    mig: false,
    slices: [],
    state: missing ? 'missing' : silent ? 'silent' : slow ? 'suspect' : 'ok',
    value,
    reason: missing
      ? 'the driver lost the card at 08:22'
      : silent
        ? 'no sample for 32 min: absent, not idle'
        : null,
    bins,
    peers:
      job && value !== null
        ? { median: job.level, ratio: value / job.level, of: 'run', count: (job.to - job.from + 1) * 8 }
        : null,
    owner: named,
    incident: slow ? 'i-2' : missing ? 'i-1' : host === 6 && gpu === 4 ? 'i-3' : null,
    xids: missing
      ? [{ time: FELL, xid: 79, userspace: false }]
      : host === 6 && gpu === 4
        ? [{ time: NOW - 96 * MINUTE, xid: 94, userspace: false }]
        : [],
    unsupported: host === 3 ? ['tg_gpu_memory_temperature_celsius'] : [],
    last_seen: missing ? FELL : silent ? NOW - 32 * MINUTE : NOW - 7000,
    sources: ['agent'],
    latest: {
      tg_gpu_power_watts: { value: (value ?? 0) * 700, unit: 'W', time: NOW - 7000 },
      tg_gpu_power_limit_watts: { value: 700, unit: 'W', time: NOW - 7000 },
      tg_gpu_tensor_active_ratio: { value: 0.48, unit: 'ratio', time: NOW - 7000 },
      tg_gpu_sm_clock_hertz: { value: slow ? 1.404e9 : 1.755e9, unit: 'Hz', time: NOW - 7000 },
      tg_gpu_temperature_margin_celsius: { value: slow ? 0 : 21, unit: '°C', time: NOW - 7000 },
      tg_gpu_memory_total_bytes: { value: 85_899_345_920, unit: 'B', time: NOW - 7000 },
    },
    owners: job
      ? [
          { from: NOW - 5 * HOUR, to: NOW - 150 * MINUTE, owner: run('pretrain-7b-probe') },
          { from: NOW - Math.min(142, job.since) * MINUTE, to: NOW, owner: named },
        ]
      : [],
  };
}

function gpusOf(story: FleetStory, query: URLSearchParams): GpusAnswer {
  const signal = query.get('signal') ?? 'power_ratio';
  const [from, to] = [Number(query.get('from') ?? NOW - 3 * HOUR), Number(query.get('to') ?? NOW)];
  const gpus: Gpu[] = [];
  for (let host = 1; host <= story.hosts; host++)
    for (let gpu = 0; gpu < story.cards; gpu++) gpus.push(cardOf(story, signal, host, gpu, from, to));
  const kept = gpus.filter(
    (g) =>
      (!query.has('uuid') || g.uuid === query.get('uuid')) &&
      (!query.has('host') || g.host === query.get('host')) &&
      (!query.has('run_id') || g.owner?.run_id === query.get('run_id')),
  );
  return { signal, signals: INFOS, from, to, step_ms: (to - from) / BINS, coverage: 0.97, gpus: kept };
}

function nodesOf(story: FleetStory) {
  const nodes = Array.from({ length: story.hosts }, (_, at): Node => {
    const host = at + 1;
    const short = host === 22;
    return {
      host: hostName(story, host),
      state: host === 29 ? 'silent' : 'live',
      last_seen: host === 29 ? NOW - 32 * MINUTE : NOW - 7000,
      agents: host === 13 ? 2 : 1,
      agent_version: '0.1.0',
      boot_id: 'b',
      gpus: { pci: story.cards, driver: short ? story.cards - 1 : story.cards, allocated: null },
      missing: short ? [{ pci_bus_id: '0000:6b:00.0', uuid: uuidOf(22, 5), since: FELL }] : [],
      cpu_ratio: 0.3,
      memory_used_bytes: 1e11,
      memory_total_bytes: 1e12,
      incidents: 0,
    };
  });
  const pci = story.hosts * story.cards;
  const missing = story.hosts >= 22 ? 1 : 0;
  return {
    nodes,
    totals: {
      hosts: story.hosts,
      silent: story.hosts >= 29 ? 1 : 0,
      pci,
      driver: pci - missing,
      allocated: null,
      missing,
    },
  };
}

const incident = (id: string, host: string, gpu: string, more: Partial<Incident>): Incident => ({
  id,
  host,
  gpu,
  uuid: null,
  pci_bus_id: null,
  state: 'open',
  first: NOW - HOUR,
  last: NOW - HOUR,
  severity: 'warning',
  action: 'inspect',
  waits_until: null,
  provenance: 'nvidia-catalog',
  confidence: 'high',
  title: '',
  effect: '',
  codes: [],
  conflicts: [],
  evidence: [],
  evidence_left_out: 0,
  processes: [],
  jobs: [],
  runs: [],
  slices: [],
  remap_pending: false,
  cleared: null,
  common: null,
  ...more,
});

function incidentsOf(story: FleetStory): Incident[] {
  const line = (time: number, code: string, text: string, userspace = false) => ({
    time,
    text,
    code,
    source: userspace ? 'userspace' : 'kernel',
    userspace,
  });
  return [
    incident('i-1', 'host-22', '5', {
      uuid: uuidOf(22, 5),
      severity: 'critical',
      action: 'reboot_node',
      last: FELL,
      title: 'Fell off the bus',
      effect: 'The card answers no more; the run `pretrain-70b-probe` lost it.',
      provenance: 'driver-154',
      runs: [{ run_id: 'id-probe', run: 'pretrain-70b-probe' }],
      processes: [{ pid: 4711, name: 'python3, "odd": name' }],
      codes: [
        {
          code: 'Xid 79',
          number: 79,
          count: 1,
          part: 'cause',
          title: 'GPU has fallen off the bus',
          first: FELL,
          last: FELL,
        },
        {
          code: 'Xid 154',
          number: 154,
          count: 1,
          part: 'detail',
          title: 'recovery action: node reboot',
          first: FELL + 900,
          last: FELL + 900,
        },
        {
          code: 'Xid 45',
          number: 45,
          count: 8,
          part: 'symptom',
          title: 'preemptive clean-up',
          first: FELL + 400,
          last: FELL + 800,
        },
      ],
      evidence: [
        line(
          FELL,
          'Xid 79',
          'NVRM: Xid (PCI:0000:6b:00): 79, pid=4711, name=python3, GPU has fallen off the bus.',
        ),
        line(FELL + 400, 'Xid 45', 'NVRM: Xid (PCI:0000:6b:00): 45, pid=4711, name=python3, Ch 00000008'),
        line(
          FELL + 900,
          'Xid 154',
          'NVRM: Xid (PCI:0000:6b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)',
        ),
        line(FELL + 5000, 'Xid 79', `NVRM: Xid (PCI:0000:6b:00): 79, name=${HOSTILE}\u001b[31m`, true),
      ],
    }),
    incident('i-2', 'host-3', '1', {
      uuid: uuidOf(3, 1),
      severity: 'critical',
      action: 'drain_reset',
      last: ONSET,
      title: 'Slow GPU, thermal',
      effect: 'Rank 17 of `pretrain-7b`, costs 17.1 % of step time.',
      provenance: 'throttled 41 %, peers below 4 %',
      runs: [{ run_id: 'id-pretrain-7b', run: 'pretrain-7b' }],
    }),
    incident('i-3', 'host-6', '4', {
      uuid: uuidOf(6, 4),
      action: 'restart_app',
      last: NOW - 96 * MINUTE,
      title: story.hostile ? HOSTILE : 'Contained memory error',
      effect: 'Xid 94 ×1, 63 ×3; 45 ×1 is a symptom. The job resumed at 10:03.',
      provenance: 'nvidia-catalog',
      remap_pending: true,
      codes: [
        {
          code: 'Xid 94',
          number: 94,
          count: 1,
          part: 'cause',
          title: 'contained memory error',
          first: NOW - 96 * MINUTE,
          last: NOW - 96 * MINUTE,
        },
      ],
    }),
    incident('i-4', 'host-29', '', {
      severity: 'info',
      last: NOW - 32 * MINUTE,
      title: 'No heartbeat',
      effect: 'The agent is silent for 32 min; 8 cells are absent, not idle.',
      provenance: 'no sample for 3 intervals',
    }),
    ...['10', '11'].map((host) =>
      incident(`i-${host}`, `host-${host}`, '0', {
        title: 'NVLink fault',
        action: 'drain_reset',
        effect: 'Link 4 retrains.',
        provenance: 'nvidia-catalog',
        common: 'c-1',
      }),
    ),
  ];
}

function events(): FleetEvent[] {
  const one = (
    time: number,
    kind: string,
    severity: FleetEvent['severity'],
    text: string,
    xid = '',
  ): FleetEvent => ({
    time,
    time_ns: String(time * 1e6),
    kind,
    severity,
    key: `${kind} ${time}`,
    labels: { host: 'host-3', gpu: '1', ...(xid && { xid }) },
    text,
    body: xid ? { xid: Number(xid) } : {},
  });
  return [
    one(ONSET + 60_000, 'recovery', 'warning', 'the driver says: drain and reset'),
    one(ONSET, 'xid', 'critical', 'NVRM: Xid (PCI:0000:2b:00): 48, pid=1, name=python3, DBE', '48'),
    one(NOW - 142 * MINUTE, 'owner', 'info', 'job 48213 takes the card'),
  ];
}

/** Answers a range query of the lanes by what it asks for. */
function matrix(form: URLSearchParams) {
  const query = form.get('query') ?? '';
  const [start, end, step] = ['start', 'end', 'step'].map((name) => Number(form.get(name)));
  const times = Array.from({ length: Math.floor((end - start) / step) + 1 }, (_, at) => start + at * step);
  const slow = (time: number) => time * 1000 > ONSET;
  const gap = (time: number) => time * 1000 > NOW - 140 * MINUTE && time * 1000 < NOW - 130 * MINUTE;
  const peers = query.includes('quantile');
  const series = (metric: Record<string, string>, value: (time: number) => number) => ({
    metric,
    values: times
      .filter((t) => peers || !gap(t))
      .map((t) => [t, String(value(t) * (1 + 0.004 * Math.sin(t / 37)))] as [number, string]),
  });
  const result = [];
  if (query.includes('"throttled"')) {
    result.push(series({ what: 'throttled', reason: 'hw_thermal' }, (t) => (slow(t) ? 0.41 : 0.01)));
    result.push(series({ what: 'throttled', reason: 'sw_power' }, () => 0.03));
    for (const direction of ['receive', 'transmit'])
      result.push(series({ what: 'nvlink', direction }, (t) => (slow(t) ? 9e10 : 1.3e11)));
  }
  if (query.includes('"power_ratio"'))
    result.push(series({ what: 'power_ratio' }, (t) => (peers || !slow(t) ? 0.8 : 0.71)));
  const gauge = (name: string, value: (time: number) => number) => {
    if (new RegExp(`\\b${name}\\b`).test(query) && query.includes('__name__=~'))
      result.push(series({ __name__: name }, value));
  };
  gauge('tg_gpu_sm_clock_hertz', (t) => (peers || !slow(t) ? 1.755e9 : 1.404e9));
  gauge('tg_gpu_temperature_margin_celsius', (t) => (peers || !slow(t) ? 21 : 0));
  gauge('tg_gpu_tensor_active_ratio', (t) => (slow(t) ? (peers ? 0.38 : 0.48) : 0.5));
  gauge('tg_gpu_dram_active_ratio', (t) => (slow(t) ? 0.5 : 0.6));
  gauge('tg_gpu_power_watts', (t) => (peers || !slow(t) ? 560 : 497));
  if (!peers) {
    gauge('tg_gpu_power_limit_watts', () => 700);
    gauge('tg_gpu_memory_used_bytes', () => 7.4e10);
    gauge('tg_gpu_memory_total_bytes', () => 8.59e10);
    gauge('tg_gpu_busy_ratio', () => 0.99);
  }
  return { status: 'success', data: { resultType: 'matrix', result } };
}

function vector() {
  const one = (name: string, labels: Record<string, string>, value: number) => ({
    metric: { __name__: name, host: 'host-3', gpu: '1', uuid: uuidOf(3, 1), ...labels },
    value: [NOW / 1000, String(value)] as [number, string],
  });
  const result = [
    one('tg_gpu_ecc_errors_total', { kind: 'corrected', scope: 'volatile' }, 12),
    one('tg_gpu_ecc_errors_total', { kind: 'uncorrected', scope: 'aggregate' }, 1),
    one('tg_gpu_row_remaps_total', { kind: 'uncorrectable' }, 1),
    one('tg_gpu_row_remap_pending', {}, 1),
    one('tg_gpu_pcie_replays_total', {}, 0),
    one('tg_gpu_energy_joules_total', {}, 123_456_789),
    ...[0, 1, 2].map((link) => one('tg_gpu_nvlink_errors_total', { kind: 'crc', link: String(link) }, link)),
  ];
  return { status: 'success', data: { resultType: 'vector', result } };
}

/** Answers the questions of both pages for `story`; `null` for a fleet without nodes. */
export async function tellFleet(page: Page, story: FleetStory | null): Promise<void> {
  const nobody = { hosts: 0, silent: 0, pci: null, driver: null, allocated: null, missing: 0 };
  await page.route(/\/api\/(tg\/)?v1\/(fleet|incidents|events|query)/, async (route) => {
    const url = new URL(route.request().url());
    const path = url.pathname.replace(/^\/api\/(tg\/)?v1\//, '');
    const json = (body: unknown) => route.fulfill({ json: body });
    const form = new URLSearchParams(route.request().postData() ?? '');
    if (path === 'query_range') return json(matrix(form));
    if (path === 'query') return json(vector());
    if (path === 'events') return json({ events: story ? events() : [], next: null });
    if (path === 'fleet/nodes') return json(story ? nodesOf(story) : { nodes: [], totals: nobody });
    if (path === 'fleet/gpus') {
      const answer = gpusOf(story ?? { hosts: 0, cards: 0 }, url.searchParams);
      return json(answer);
    }
    const uuid = url.searchParams.get('uuid');
    const all = story ? incidentsOf(story).filter((i) => !uuid || i.uuid === uuid) : [];
    const common = [
      {
        id: 'c-1',
        sentence: 'Two nodes of one rack report NVLink faults within 40 s: look at what they share.',
        hosts: ['host-10', 'host-11'],
        incidents: ['i-10', 'i-11'],
      },
    ];
    return json({ incidents: all, common: uuid || !story ? [] : common, left_out: 0, dropped: 0 });
  });
}
