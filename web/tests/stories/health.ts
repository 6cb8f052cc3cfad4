/** What the made-up runs' health is. */
import type { Figure, Health, Verdict } from '../../src/health/answers';
import type { Firing } from '../../src/health/firings';
import { HOSTILE, type StoryRun } from './world';

const figure = (value: number, unit: string, more: Partial<Figure> = {}): Figure => ({
  value,
  unit,
  reason: null,
  coverage: null,
  ...more,
});
const unknown = (unit: string, reason: string): Figure => ({ value: null, unit, reason, coverage: null });

/** A verdict with the least in it. */
export function verdictOf(more: Partial<Verdict>): Verdict {
  return {
    id: 'v-1',
    class: 'straggler',
    level: 'page',
    claim: 'Rank 17 is slow',
    sentence: '',
    ranks: [17],
    host: 'host-3',
    gpu: '1',
    uuid: 'GPU-17',
    stage: null,
    cause: null,
    rho: null,
    z: null,
    wait_seconds: null,
    peers_wait_seconds: null,
    gain_ratio: null,
    step_seconds: null,
    onset: null,
    since: null,
    cleared: null,
    confidence: null,
    windows: null,
    evidence: [],
    events: [],
    action: null,
    culprits: [],
    ...more,
  };
}

const time = (run: StoryRun, step: number) => run.started + (step / run.steps) * run.seconds * 1000;

function throttled(run: StoryRun): Verdict {
  const id = run.run_id;
  return verdictOf({
    sentence: 'host-3, GPU 1: SM clock 80 % of peers, thermal. Costs 17.1 % of step time since step 4,120.',
    cause: 'thermal',
    rho: 1.2495,
    z: 49.9,
    wait_seconds: 0.15,
    peers_wait_seconds: 0.4,
    gain_ratio: 0.1714,
    step_seconds: 1.4,
    onset: { step: 4120, time: time(run, 4120) },
    since: time(run, 4190),
    confidence: 0.95,
    windows: { held: 4, of: 4 },
    evidence: [
      {
        text: 'Own step time',
        name: 'own',
        value: 1.2495,
        peers: 1,
        unit: 's',
        metric: `train_step_seconds{run_id="${id}",rank="17"}`,
      },
      {
        text: 'Waited in collectives',
        name: 'wait',
        value: 0.15,
        peers: 0.4,
        unit: 's',
        metric: null,
      },
      {
        text: 'SM clock',
        name: 'clock',
        value: 1404e6,
        peers: 1755e6,
        unit: 'hertz',
        metric: 'tg_gpu_sm_clock_hertz{host="host-3",gpu="1"}',
      },
      { text: 'Throttled by heat', name: 'thermal', value: 0.41, peers: 0.04, unit: 'ratio', metric: null },
      { text: 'Arrived last', name: 'last', value: 1, peers: null, unit: 'ratio', metric: null },
    ],
    events: [{ time: time(run, 4118), kind: 'xid', text: `host-6 GPU 4: Xid 94 ${HOSTILE}` }],
    action: {
      word: 'drain',
      sentence: 'Drain `host-3` after the next checkpoint and have its cooling looked at.',
    },
  });
}

const small = (id: string, level: Verdict['level'], claim: string, rank: number) =>
  verdictOf({
    id,
    level,
    class: 'consistently_last',
    claim,
    sentence: 'The others wait 2 % of a step for it.',
    ranks: [rank],
    gain_ratio: 0.02,
    onset: { step: 5000, time: null },
  });

/** A job that stands still: 63 ranks wait for one. */
function standstill(run: StoryRun): Verdict {
  return verdictOf({
    id: 'v-hang',
    class: 'hang',
    claim: 'The job hangs: rank 42 did not enter the collective',
    sentence: '63 ranks wait in collective 1,204 since step 6,200; rank 42 stopped after 1,203.',
    ranks: [42],
    host: 'host-6',
    onset: { step: run.steps, time: time(run, run.steps) },
    since: time(run, run.steps),
    culprits: Array.from({ length: 64 }, (_, rank) => ({
      rank,
      last_step: run.steps,
      last_step_time: time(run, run.steps),
      sequence: rank === 42 ? 1203 : 1204,
      completed: 1203,
      state: rank === 42 ? 'not entered' : 'started',
    })),
    action: { word: 'restart', sentence: 'Reboot `host-6` and restart from the last checkpoint.' },
  });
}

/** A stage of the pipeline that takes longer than the others: no rank of it is to blame. */
const stages = (run: StoryRun) =>
  verdictOf({
    id: 'v-stage',
    class: 'stage_imbalance',
    level: 'info',
    claim: 'Stage 1 takes longer than the others',
    sentence: 'The other stages wait 8 % of a step for it.',
    ranks: [1, 2],
    host: null,
    gpu: null,
    uuid: null,
    stage: 1,
    gain_ratio: 0.08,
    onset: { step: Math.round(run.steps / 2), time: time(run, run.steps / 2) },
    since: time(run, run.steps / 2),
    action: { word: 'rebalance', sentence: 'Move layers from stage 1 to another stage.' },
  });

/** The health of a story's run: the first one is throttled, the second hangs, the sixth has a hostile verdict. */
export function healthOf(run: StoryRun, at: number): Health {
  const verdicts =
    at === 0
      ? [
          small('v-3', 'info', 'Rank 9 is always last', 9),
          throttled(run),
          small('v-2', 'warn', 'Ranks of host-4 are slow', 24),
          small('v-4', 'info', `Rank 3 ${HOSTILE}\u202e is last`, 3),
        ]
      : at === 1
        ? [standstill(run)]
        : at === 6
          ? [stages(run)]
          : at === 5
            ? [small('v-5', 'page', HOSTILE, 0)]
            : [];
  const priced = at === 0;
  const noPrice =
    'no price is set for `NVIDIA H100 80GB HBM3`: add `prices = ["h100-sxm=2.50"]` to `[site]` in the server\u2019s settings';
  return {
    state:
      verdicts.length > 0 ? (verdicts[0].level === 'page' ? 'page' : 'warn') : at === 3 ? 'unknown' : 'ok',
    reason: at === 3 ? 'the run logs no `train/step_seconds`: `tg.step` measures it' : null,
    verdicts,
    history:
      at === 0
        ? [
            {
              ...small('v-0', 'warn', 'Communication was slow', 0),
              class: 'communication',
              ranks: [],
              onset: { step: 1200, time: time(run, 1200) },
              since: time(run, 1260),
              cleared: time(run, 1500),
            },
          ]
        : [],
    figures: {
      step_seconds_median: figure(1.4, 'seconds', {
        explain: 'median over the last 20 steps, the slowest rank',
      }),
      step_spread_ratio: figure(0.25, 'ratio', { explain: 'slowest rank\u2019s own time over the median' }),
      tokens_per_second: figure(468_000, 'tokens/s', { coverage: 1 }),
      mfu_ratio: priced
        ? figure(0.311, 'ratio', { coverage: 0.98, explain: '6N, peak 989 TFLOP/s dense bf16' })
        : unknown('ratio', 'nothing said how many parameters the model has: `tg.init(parameters=\u2026)`'),
      ettr_ratio: figure(0.93, 'ratio'),
      goodput_ratio: unknown('ratio', 'no spans'),
      mtbi_seconds: figure(11_135, 'seconds'),
    },
    money: {
      gpu_hours: figure(151.2, 'gpu_hours', { coverage: 1 }),
      usd: priced ? figure(378.04, 'usd') : unknown('usd', noPrice),
      usd_per_hour: priced ? figure(160, 'usd_per_hour') : unknown('usd_per_hour', noPrice),
      usd_lost_to_verdicts: priced ? figure(22.31, 'usd') : unknown('usd', noPrice),
      usd_per_mtok: priced
        ? figure(0.0949, 'usd_per_mtok', { coverage: 0.98 })
        : unknown('usd_per_mtok', noPrice),
      usd_per_mtok_busy: priced ? figure(0.0883, 'usd_per_mtok') : unknown('usd_per_mtok', noPrice),
      price: priced ? { usd_per_gpu_hour: 2.5, gpu_model: 'NVIDIA H100 80GB HBM3', revision: '14' } : null,
      energy_joules: figure(1.9e9, 'joules', { coverage: 0.97 }),
      tokens_per_joule: figure(2.1, 'tokens_per_joule', { coverage: 0.97 }),
    },
    watched: { ranks: 64, of: 64, window_steps: 20, last_step: run.steps, since: run.started },
  };
}

/** Alerts of a run, the latest first. */
export function firingsOf(run: StoryRun, at: number): Firing[] {
  if (at !== 0) return [];
  const firing = (
    rule: string,
    severity: string,
    from: number,
    to: number | null,
    rank?: string,
  ): Firing => ({
    rule,
    severity,
    labels: { alertname: rule, run_id: run.run_id, ...(rank && { rank }) },
    pending_since: null,
    start: time(run, from),
    end: to === null ? null : time(run, to),
    fingerprint: `${rule} ${from}`,
  });
  return [
    firing('StragglerPage', 'page', 4230, null, '17'),
    { ...firing('GoodputBelowTarget', 'ticket', 4600, null), pending_since: time(run, 4400) },
    firing('RunStalled', 'page', 2020, 2300),
  ];
}
