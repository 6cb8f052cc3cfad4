/** A made-up world, the same each time: runs of every state and shape, with points by formula. */

/** A metric of a made-up run. */
export interface StoryMetric {
  display: string;
  unit: string;
  kind: string;
  help: string;
  caveat: string;
  labels: Record<string, string>;
  stepped: boolean;
  value: (step: number) => number;
}

/** A made-up run. */
export interface StoryRun {
  run_id: string;
  run: string;
  project: string;
  state: string;
  reason: string | null;
  tags: string[];
  hosts: string[];
  started: number;
  seconds: number;
  steps: number;
  attempts: { number: number; from: number; to: number }[];
  metrics: StoryMetric[];
}

/** Now, in the story. */
export const NOW = Date.UTC(2026, 10, 30, 11, 34, 0);

/** A hostile name. */
export const HOSTILE = '<img src=x onerror=alert(1)>';

const noise = (seed: number, at: number) => {
  const value = Math.sin(seed * 127.1 + at * 311.7) * 43758.5453;
  return value - Math.floor(value) - 0.5;
};

function metric(
  display: string,
  value: (step: number) => number,
  more: Partial<StoryMetric> = {},
): StoryMetric {
  return {
    display,
    unit: '',
    kind: 'gauge',
    help: '',
    caveat: '',
    labels: {},
    stepped: true,
    value,
    ...more,
  };
}

function trainMetrics(seed: number, hosts: string[]): StoryMetric[] {
  const host = { host: hosts[0] ?? 'host-1' };
  return [
    metric('loss', (s) =>
      s === 3310
        ? Number.NaN
        : 2.6 + 8 * Math.exp(-s / 420) + 1.4 * Math.exp(-s / 2600) + 0.16 * noise(seed, s),
    ),
    metric('grad_norm', (s) =>
      s === 3310 ? Infinity : s === 3309 ? 1.7 : 0.36 + 2.2 * Math.exp(-s / 200) + 0.08 * noise(seed + 1, s),
    ),
    metric('accuracy', (s) => 1 - Math.exp(-s / 900) * 0.9 + 0.01 * noise(seed + 2, s)),
    metric(
      'tokens_per_second',
      (s) => (s % 480 < 12 && s > 40 ? 470_000 : 568_000) + 9000 * noise(seed + 3, s),
    ),
    metric('lr', (s) => 3e-4 * Math.min(1, s / 300) * (0.5 + 0.5 * Math.cos(s / 2400))),
    ...[0, 1, 2, 3, 4, 5].map((rank) =>
      metric(
        'train/step_seconds',
        (s) => (rank === 2 && s > 4120 ? 1.25 : 1) + 0.02 * noise(seed + rank, s),
        { unit: 's', labels: { rank: String(rank) } },
      ),
    ),
    metric('system/cpu/utilization', (s) => 41 + 12 * Math.sin(s / 300) + 6 * noise(seed + 5, s), {
      unit: '%',
      labels: host,
      stepped: false,
      help: 'Share of the CPU time that this scope may use.',
      caveat: 'the quota changes while it is measured.',
    }),
    metric('system/memory/used', (s) => 21.4e9 + 3e8 * Math.sin(s / 900), {
      unit: 'B',
      labels: host,
      stepped: false,
      help: 'Memory in use at the binding level.',
    }),
    metric('system/gpu/temperature', (s) => 62 + 0.004 * (s % 4000), {
      unit: '°C',
      labels: host,
      stepped: false,
    }),
  ];
}

const STATES = ['running', 'running', 'stale', 'finished', 'failed', 'finished', 'finished', 'finished'];

/** All runs, newest first. */
export function storyRuns(count: number): StoryRun[] {
  return Array.from({ length: count }, (_, at) => {
    const state = STATES[at % STATES.length];
    const steps = at === 0 ? 6263 : Math.round(300 * (1 + ((at * 37) % 90)));
    const hosts = Array.from({ length: at === 0 ? 8 : 1 + (at % 3) }, (__, host) => `host-${host + 1}`);
    const restarted = at === 0;
    const seconds = at === 0 ? 8520 : 600 + ((at * 7919) % 40_000);
    return {
      run_id: (0xabc000 + at).toString(16).padStart(16, '0'),
      run: at === 0 ? 'pretrain-7b' : at === 5 ? HOSTILE : `run-${at.toString().padStart(4, '0')}`,
      project: 'llm',
      state,
      reason:
        state === 'stale'
          ? 'no heartbeat for 32 min'
          : state === 'failed'
            ? 'RuntimeError: loss is not finite'
            : null,
      tags: at === 5 ? [HOSTILE] : ['7b', 'base', 'sweep'].slice(0, at % 4),
      hosts,
      started: NOW - seconds * 1000 - at * 3_600_000,
      seconds,
      steps,
      attempts: restarted
        ? [
            { number: 1, from: 0, to: 2380 },
            { number: 2, from: 2000, to: steps },
          ]
        : [{ number: 1, from: 0, to: steps }],
      metrics: trainMetrics(at, hosts),
    };
  });
}
