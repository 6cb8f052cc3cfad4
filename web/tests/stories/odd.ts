/** Odd but possible runs: what a chart does with them. */
import type { StoryMetric, StoryRun } from './world';
import { HOSTILE, NOW } from './world';

const one = (
  display: string,
  value: (step: number) => number,
  more: Partial<StoryMetric> = {},
): StoryMetric => ({
  display,
  unit: '',
  kind: 'gauge',
  help: '',
  caveat: '',
  labels: {},
  stepped: true,
  value,
  ...more,
});

/** A run whose every chart is odd in another way. */
export function oddRun(): StoryRun {
  return {
    run_id: '0000000000000dd1',
    run: `odd \u202e run with a very long name ${'x'.repeat(80)}`,
    project: 'llm',
    state: 'stale',
    reason: 'no heartbeat for 32 min',
    tags: [HOSTILE, 'a', 'b', 'c', 'd'],
    hosts: ['host-1'],
    started: NOW - 7_200_000,
    seconds: 3600,
    steps: 400,
    attempts: [{ number: 1, from: 0, to: 400 }],
    metrics: [
      one('loss', (s) => 3 / (1 + s / 30)),
      one('constant', () => 100),
      one('all_nan', () => Number.NaN),
      one('huge', (s) => (s % 2 ? 1e308 : -1e308)),
      one('denormal', (s) => s * 5e-324),
      one('signs', (s) => Math.sin(s / 20) * 1e-3),
      one('one_point', (s) => (s === 200 ? 7 : Number.POSITIVE_INFINITY)),
      one('often_not_finite', (s) => (s % 7 ? Math.log(s) : s % 2 ? Number.NaN : -Infinity)),
      one('orders_of_magnitude', (s) => 10 ** (s / 40 - 5)),
      one(HOSTILE, (s) => s),
      one(`deep/${'name/'.repeat(20)}end`, (s) => s),
      ...Array.from({ length: 30 }, (_, rank) =>
        one('per_rank', (s) => rank + Math.sin(s / (5 + rank)), {
          labels: { rank: `${rank}`, host: rank === 3 ? '__other__' : `host-${rank % 4}` },
        }),
      ),
      one('system/memory/used', (s) => 2e9 + s * 1e6, {
        unit: 'B',
        stepped: false,
        help: 'Memory in use at the binding level.',
        caveat: 'page cache that can be dropped counts too.',
      }),
    ],
  };
}

/** A run with more metrics than any page can show. */
export function wideRun(): StoryRun {
  return {
    ...oddRun(),
    run_id: '0000000000000dd2',
    run: 'five thousand metrics',
    state: 'running',
    reason: null,
    steps: 50,
    attempts: [{ number: 1, from: 0, to: 50 }],
    metrics: Array.from({ length: 5000 }, (_, at) => one(`group_${at % 40}/metric_${at}`, (s) => s * at)),
  };
}
