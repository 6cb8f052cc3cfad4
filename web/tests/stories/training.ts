/** A made-up Megatron run of 64 ranks that all export, and what the server would say of it. */
import type { Breakdown, TrainingAnswer } from '../../src/training/answers';
import { NOW, type StoryMetric, type StoryRun } from './world';

const RANKS = 64;
/** Rank 17 is slow from here on. */
const ONSET = 4120;
const STEPS = 6263;
const SECONDS = 8520;
const PREFIX = 'megatron_training_';

const noise = (seed: number, at: number) => {
  const value = Math.sin(seed * 127.1 + at * 311.7) * 43758.5453;
  return value - Math.floor(value) - 0.5;
};

const slow = (step: number) => (step > ONSET ? 1.21 : 1);
/** Iterations of which the optimizer's step was skipped. */
const SKIPPED = [3310, 3311, 3312, 5007];

const CURVES: Record<string, (step: number, rank: number) => number> = {
  loss: (s) =>
    s > 3309 && s < 3313
      ? Number.NaN
      : 2.6 + 8 * Math.exp(-s / 420) + 1.4 * Math.exp(-s / 2600) + 0.16 * noise(1, s),
  tokens_per_sec: (s) => 568_000 / slow(s) + 6000 * noise(3, s),
  throughput_tflops: (s) => 402 / slow(s) + 5 * noise(4, s),
  grad_norm: (s) => (s === 3310 ? Infinity : 0.36 + 2.2 * Math.exp(-s / 200) + 0.08 * noise(5, s)),
  learning_rate: (s) => 3e-4 * Math.min(1, s / 300) * (0.5 + 0.5 * Math.cos(s / 2400)),
  memory_allocated_gb: (s, rank) => 61 + (rank % 8) * 0.7 + (rank === 17 ? 9 : 0) + Math.min(2, s / 1500),
  skipped_iters_total: (s) => SKIPPED.filter((at) => at <= s).length,
};

function metric(display: string, labels: Record<string, string>, stepped: boolean): StoryMetric {
  const rank = Number(labels.dl_rank ?? labels.rank);
  const curve = CURVES[display.replace(PREFIX, '')];
  const step = (s: number) => (0.84 + 0.02 * noise(rank + 9, s)) * (rank === 17 ? slow(s) : 1);
  const value = curve ? (s: number) => curve(s, rank) : step;
  return { display, unit: '', kind: 'gauge', help: '', caveat: '', labels, stepped, value };
}

/** The run; its own points have no steps, those of its iterations have. */
export function trainedRun(): StoryRun {
  const each = Array.from({ length: RANKS }, (_, rank) => rank);
  const labels = (rank: number) => ({
    dl_rank: String(rank),
    nemo_run_id: 'pretrain-70b',
    service_name: 'megatron-lm',
  });
  return {
    run_id: '00000000000007e1',
    run: 'pretrain-70b',
    project: 'megatron-lm',
    state: 'running',
    reason: null,
    tags: [],
    hosts: Array.from({ length: 8 }, (_, host) => `host-${host + 1}`),
    started: NOW - SECONDS * 1000,
    seconds: SECONDS,
    steps: STEPS,
    attempts: [{ number: 1, from: 0, to: STEPS }],
    metrics: [
      ...Object.keys(CURVES).flatMap((name) =>
        each.map((rank) => metric(`${PREFIX}${name}`, labels(rank), false)),
      ),
      metric(`${PREFIX}step_duration_ms_milliseconds_bucket`, { dl_rank: '63' }, false),
      ...each.map((rank) => metric('train_step_seconds', { rank: String(rank) }, true)),
    ],
  };
}

const instrument = (key: string, unit: string, caveat = '') => ({
  key,
  display: `megatron.training.${key}`,
  metric: `${PREFIX}${key}${key === 'skipped_iters' ? '_total' : key === 'step_duration_ms' ? '_milliseconds' : ''}`,
  present: true,
  series: RANKS,
  unit: key === 'step_duration_ms' ? 'ms' : '',
  unit_meant: unit,
  caveat,
  filled_by: '',
  text: null,
});

/** What the server says of the run's training. */
export function trainingOf(): TrainingAnswer {
  const none = { nan: 0, positive_infinite: 0, negative_infinite: 0, last_time: null, last_step: null };
  return {
    run_id: '00000000000007e1',
    ids: ['pretrain-70b'],
    export: {
      ranks: Array.from({ length: RANKS }, (_, rank) => rank),
      world_size: RANKS,
      interval_seconds: 10,
      text: 'All 64 ranks export, every 10 s.',
    },
    instruments: [
      instrument('step_duration_ms', 'ms', 'One observation a log interval, not one a step.'),
      instrument('loss', '', 'Only ranks of the last pipeline stage have it.'),
      instrument('throughput_tflops', 'TFLOP/s', 'Reckoned from the model’s formula, not measured.'),
      instrument('grad_norm', ''),
      instrument('skipped_iters', ''),
      instrument('learning_rate', ''),
      instrument('tokens_per_sec', 'tokens/s', 'Of all ranks together: do not add it up over ranks.'),
      instrument('memory_allocated_gb', 'GiB', 'A peak, not what is in use.'),
    ],
    mfu: {
      present: true,
      factor: 1 / 989,
      ratio: 402 / 1.21 / 989,
      peak_flops: 989e12,
      gpu: 'h100-sxm',
      gpu_name: 'H100 SXM',
      dtype: 'bf16',
      source: { title: 'data sheet', url: 'https://example.org/h100' },
      as_of: '2025-06',
      reason: null,
      text: 'of 989 TFLOP/s, dense bf16 of an H100 SXM',
      is_error: false,
    },
    skipped: { total: SKIPPED.length },
    non_finite: {
      loss: { ...none, nan: 3, last_time: NOW, last_step: 3312 },
      grad_norm: { ...none, positive_infinite: 1, last_time: NOW, last_step: 3310 },
    },
    step_time: { bounds_top_ms: 10_000, in_last_bucket_ratio: 0, text: null },
    switches: [],
  };
}

/** Where the time of the steps went. */
export function breakdownOf(query: URLSearchParams): Breakdown {
  const buckets = Number(query.get('buckets') ?? 200);
  const from = Number(query.get('from') ?? 1);
  const to = Number(query.get('to') ?? STEPS);
  const rank = query.has('rank') ? Number(query.get('rank')) : null;
  const each = Math.max(1, Math.ceil((to - from + 1) / buckets));
  const x = Array.from({ length: Math.ceil((to - from + 1) / each) }, (_, at) => from + at * each);
  const late = (s: number) => (s > ONSET && rank !== 17 ? 0.17 : 0);
  const phases: Record<string, (step: number) => number> = {
    forward_backward: (s) => (rank === 17 && s > ONSET ? 0.79 : 0.62) + 0.01 * noise(21, s),
    optimizer: () => 0.06,
    communication: (s) => 0.08 + late(s) + 0.01 * noise(22, s),
    data_loading: () => 0,
    checkpoint: (s) => (s % 500 < each ? 0.4 : 0),
    evaluation: (s) => (s % 1000 < each ? 0.3 : 0),
    housekeeping: () => 0.015,
    unattributed: (s) => 0.06 + 0.02 * noise(23, s),
  };
  const seconds = Object.fromEntries(Object.entries(phases).map(([key, of]) => [key, x.map(of)]));
  return {
    run_id: '00000000000007e1',
    phases: Object.keys(phases),
    ranks: Array.from({ length: RANKS }, (_, one) => one),
    rank,
    x,
    count: x.map((first) => Math.min(each, to - first + 1)),
    wall_seconds: x.map((_, at) => Object.values(seconds).reduce((sum, of) => sum + of[at], 0)),
    seconds,
    iterations: to - from + 1,
    sum_error_ratio: 0,
    goodput: {
      wall_seconds: SECONDS,
      productive_seconds: SECONDS * 0.93,
      ratio: 0.93,
      phases: { startup: 212, checkpoint: 301, evaluation: 96 },
      spans: 131,
      text: null,
    },
    switches: [
      {
        phase: 'data_loading',
        switch: null,
        text: 'No span tells of data loading: it is part of what is unattributed.',
      },
    ],
    text: null,
    switch: null,
  };
}

/** Quantiles of the histogram, as `query_range` answers them. */
export function quantilesOf(body: URLSearchParams): object {
  const [start, end, step] = ['start', 'end', 'step'].map((key) => Number(body.get(key)));
  const count = Math.floor((end - start) / step) + 1;
  const times = Array.from({ length: count }, (_, at) => start + at * step);
  const of = (time: number, factor: number) => {
    const at = ((time * 1000 - (NOW - SECONDS * 1000)) / (SECONDS * 1000)) * STEPS;
    return String(0.84 * slow(at) * factor + 0.02 * noise(31, Math.round(at)));
  };
  const row = (q: string, factor: number) => ({
    metric: { q },
    values: times.map((time) => [time, of(time, factor)]),
  });
  return {
    status: 'success',
    data: { resultType: 'matrix', result: [row('p50', 1), row('p95', 1.12)] },
  };
}
