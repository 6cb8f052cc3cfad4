/** Runs with made-up hardware: hosts of eight GPUs, one of which gets too hot and is held back. */
import type { CaptureReport } from '../../src/lib/missing';
import { type Point, Writer } from './push';

/** What a made-up job is. */
export interface Job {
  project?: string;
  run: string;
  hosts: number;
  gpus: number;
  /** Samples of each series. */
  ticks: number;
  /** Seconds between two. */
  every: number;
  endMs: number;
  /** Host and GPU that throttle in the last third. */
  hot?: [host: number, gpu: number];
  /** Ticks at which nothing came, as a share of all: from, to. */
  hole?: [from: number, to: number];
  hostName?: (at: number) => string;
}

const noise = (seed: number, at: number) => {
  const value = Math.sin(seed * 127.1 + at * 311.7) * 43758.5453;
  return value - Math.floor(value) - 0.5;
};

/** A report of one process that owns one GPU of a host. */
export function report(more: Partial<CaptureReport> & Pick<CaptureReport, 'host'>): CaptureReport {
  return {
    boot_id: `boot of ${more.host}`,
    pid: 4242,
    rank: 0,
    local_rank: 0,
    state: 'sampling',
    failed_ticks: 0,
    cause: '',
    interval_seconds: 30,
    arbitration: 'shm',
    node: 'reports',
    driver: { version: '550.90.07' },
    cuda_device_order: 'FASTEST_FIRST',
    ownership: 'LOCAL_RANK',
    devices: [],
    limits: null,
    failures: [],
    ...more,
  };
}

/** A device as a report has it. */
export const device = (gpu: number, more: Partial<CaptureReport['devices'][number]> = {}) => ({
  gpu,
  uuid: `GPU-8b1a2c3d-0000-4000-8000-${gpu.toString().padStart(12, '0')}`,
  model: 'NVIDIA H100 80GB HBM3',
  pci_bus_id: `0000:${(0x18 + gpu).toString(16)}:00.0`,
  compute_capability: '9.0',
  memory_account: 'allocated, without the driver’s reserve',
  role: 'owned' as const,
  owner: null,
  cause: '',
  unsupported: [] as string[],
  ...more,
});

/** Sends a job: its loss, the step time of each rank, its GPUs and hosts, and what each process reports. */
export async function pushJob(url: string, job: Job): Promise<void> {
  const { project = 'p', run, hosts, gpus, ticks, every, endMs, hot } = job;
  const start = endMs - (ticks - 1) * every * 1000;
  const away = (at: number) => job.hole && at >= job.hole[0] * ticks && at < job.hole[1] * ticks;
  const points = (phase: number, value: (at: number) => number): Point[] =>
    Array.from({ length: ticks }, (_, at) => ({
      ms: start + at * every * 1000 + phase,
      value: value(at),
      step: at,
    })).filter((_, at) => !away(at));
  const onset = Math.floor(ticks * 0.68);
  const first = new Writer(url);
  await first.push({
    project,
    run,
    event: 1,
    job: 'job',
    host: job.hostName?.(0) ?? 'host-1',
    timeMs: start,
    series: [
      { name: 'loss', points: points(0, (at) => 2.6 + 8 * Math.exp(-at / (ticks / 6)) + 0.1 * noise(1, at)) },
    ],
  });
  for (let h = 0; h < hosts; h++) {
    const host = job.hostName?.(h) ?? `host-${h + 1}`;
    // A card has one UUID in the world: the server takes a second one for the same card.
    const uuid = (at: number) => `GPU-8b1a2c3d-${h.toString(16).padStart(4, '0')}-4000-8000-00000000000${at}`;
    for (let g = 0; g < gpus; g++) {
      const rank = h * gpus + g;
      const isHot = hot?.[0] === h && hot[1] === g;
      const seed = rank + 3;
      const slow = (at: number) => (isHot && at >= onset ? 1 : 0);
      const heat = (at: number) =>
        isHot ? Math.min(1, Math.max(0, (at - onset * 0.9) / (ticks * 0.08))) : 0;
      const others = (at: number) => (hot && at >= onset ? 1 : 0);
      const labels = { host, gpu: String(g) };
      let thermal = 0;
      let power = 0;
      const phase = (rank * 617) % (every * 1000);
      const gauge = (name: string, value: (at: number) => number, more = {}) => ({
        name: `system/gpu/${name}`,
        labels: { ...labels, ...more },
        points: points(phase, value),
      });
      const pid = 4000 + rank;
      const own = report({
        host,
        pid,
        rank,
        local_rank: g,
        interval_seconds: every,
        node: g === 0 ? 'reports' : { host, pid: 4000 + h * gpus, rank: h * gpus },
        devices: Array.from({ length: gpus }, (_, at) =>
          at === g
            ? device(at, { uuid: uuid(at), unsupported: ['system/gpu/memory_temperature_celsius'] })
            : device(at, {
                uuid: uuid(at),
                role: 'other',
                owner: { host, pid: 4000 + h * gpus + at, rank: h * gpus + at },
              }),
        ),
        limits:
          g === 0
            ? {
                cgroup_mode: 'v2',
                memory_measured_at: '/sys/fs/cgroup/system.slice/job_48213',
                memory_ceiling_bytes: 2 ** 40,
                cpu_measured_at: '/sys/fs/cgroup/system.slice/job_48213/cpu.stat',
                cpu_capacity_cpus: 96,
              }
            : null,
      });
      await new Writer(url).push({
        project,
        run,
        event: 1,
        job: 'job',
        host,
        timeMs: start,
        attributes: { [`capture/${host}/rank-${rank}`]: JSON.stringify(own) },
        series: [
          {
            name: 'train/step_seconds',
            labels: { rank: String(rank) },
            points: points(phase, (at) => 1 + 0.25 * slow(at) + 0.01 * noise(seed, at)),
          },
          gauge('sm_clock_mhz', (at) => 1755 - 351 * slow(at) + 18 * noise(seed, at) + (rank % 5) * 2),
          gauge('sm_clock_max_mhz', () => 1980),
          gauge('throttled_seconds_total', (at) => (thermal += at === 0 ? 0 : every * (0.44 * heat(at))), {
            reason: 'thermal',
          }),
          gauge(
            'throttled_seconds_total',
            (at) => (power += at === 0 ? 0 : every * (0.02 + 0.01 * noise(seed + 1, at))),
            { reason: 'sw_power' },
          ),
          gauge('temperature_celsius', (at) => 64 + 22 * heat(at) + noise(seed + 2, at) + (rank % 3)),
          gauge(
            'power_limit_ratio',
            (at) => 0.93 - 0.13 * others(at) - 0.09 * slow(at) + 0.02 * noise(seed + 3, at),
          ),
          gauge(
            'tensor_active_ratio',
            (at) => 0.47 - 0.09 * others(at) + 0.1 * slow(at) + 0.02 * noise(seed + 4, at),
          ),
          gauge(
            'dram_active_ratio',
            (at) => 0.41 - 0.06 * others(at) + 0.07 * slow(at) + 0.02 * noise(seed + 5, at),
          ),
          gauge('memory_utilization', (at) => 71 + noise(seed + 6, at)),
          gauge('utilization', () => 100),
          gauge('ecc_errors_total', () => 0, { kind: 'uncorrected', scope: 'volatile' }),
          gauge('row_remap_pending', () => 0),
          gauge('row_remap_failed', () => 0),
          gauge('pcie_link_generation', () => 5),
          gauge('pcie_link_width', () => 16),
          {
            name: 'system/process_tree/cpu_utilization',
            labels: { host, pid: String(pid) },
            points: points(phase, (at) => 180 + 40 * noise(seed + 7, at)),
          },
          {
            name: 'system/process_tree/rss_bytes',
            labels: { host, pid: String(pid) },
            points: points(phase, (at) => 21e9 + 1e9 * noise(seed + 8, at)),
          },
        ],
      });
    }
    await pushHost(url, { project, run }, host, points);
  }
  await first.push({ project, run, host: job.hostName?.(0) ?? 'host-1', job: 'job' });
}

/** The series of a host alone. */
async function pushHost(
  url: string,
  job: Pick<Job, 'project' | 'run'>,
  host: string,
  points: (phase: number, value: (at: number) => number) => Point[],
): Promise<void> {
  const seed = [...host].reduce((sum, char) => sum + char.charCodeAt(0), 0);
  const series = (name: string, value: (at: number) => number) => ({
    name: `system/${name}`,
    labels: { host },
    points: points(0, value),
  });
  await new Writer(url).push({
    project: job.project,
    run: job.run,
    host,
    event: 1,
    job: 'job',
    timeMs: points(0, () => 0)[0].ms,
    series: [
      series('cpu/utilization', (at) => 41 + 12 * Math.sin(at / 30) + 6 * noise(seed, at)),
      series('memory/used_bytes', (at) => 412e9 + 3e9 * noise(seed + 1, at)),
      series('memory/utilization', (at) => 37 + noise(seed + 1, at)),
      series('disk/utilization', (at) => 18 + at / 100),
      series('pressure/cpu_waiting_ratio', (at) => 0.04 + 0.02 * noise(seed + 2, at)),
      series('pressure/memory_waiting_ratio', () => 0),
      series('pressure/io_waiting_ratio', (at) => 0.11 + 0.1 * noise(seed + 3, at)),
    ],
  });
}
