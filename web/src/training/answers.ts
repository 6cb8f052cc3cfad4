/** What the server says about a run's training beside its points. */
import type { Spelled } from '../lib/answers';
import { askJson } from '../lib/api';

/** One instrument of the trainer, sent or not. */
export interface Instrument {
  /** The end of its name, such as `loss`. */
  key: string;
  display: string;
  /** The canonical name of its series; `null` where it was never sent. */
  metric: string | null;
  present: boolean;
  series: number;
  unit: string;
  /** The unit that its values have. */
  unit_meant: string;
  caveat: string;
  /** What fills it; empty when nothing more is needed than the export. */
  filled_by: string;
  text: string | null;
}

/** Model FLOPs utilization: throughput times `factor`, or why it cannot be told. */
export interface Mfu {
  present: boolean;
  factor: number | null;
  ratio: Spelled;
  peak_flops: number | null;
  gpu: string | null;
  gpu_name: string | null;
  dtype: string | null;
  source: { title: string; url: string } | null;
  as_of: string | null;
  reason: string | null;
  text: string;
  /** Over 1: the peak or the model's formula is wrong. */
  is_error: boolean;
}

/** How often an instrument was no finite number. */
export interface NotFinite {
  nan: number;
  positive_infinite: number;
  negative_infinite: number;
  last_time: number | null;
  last_step: number | null;
}

/** A switch of the trainer, and what it would fill. */
export interface Switch {
  /** As it is written, such as `--log-throughput`. */
  key: string;
  text: string;
}

/** The whole answer. */
export interface TrainingAnswer {
  run_id: string;
  /** `nemo.run.id` of what was sent. */
  ids: string[];
  export: { ranks: number[]; world_size: number | null; interval_seconds: number | null; text: string };
  instruments: Instrument[];
  mfu: Mfu;
  skipped: { total: number | null };
  non_finite: Record<string, NotFinite>;
  step_time: { bounds_top_ms: number | null; in_last_bucket_ratio: number | null; text: string | null };
  switches: Switch[];
}

/** Productive share of the wall time, where goodput spans tell it. */
export interface Goodput {
  wall_seconds: number;
  productive_seconds: number;
  ratio: number;
  phases: Record<string, number>;
  spans: number;
  text: string | null;
}

/** Where the time of iterations went. */
export interface Breakdown {
  run_id: string;
  phases: string[];
  /** Ranks that can be asked for. */
  ranks: number[];
  /** `null` is the mean over ranks. */
  rank: number | null;
  /** An iteration, or the first one of a bucket. */
  x: number[];
  /** Iterations in each. */
  count: number[];
  wall_seconds: (number | null)[];
  seconds: Record<string, (number | null)[]>;
  iterations: number;
  /** How far the parts are from the wall, at most. */
  sum_error_ratio: number;
  goodput: Goodput | null;
  /** Phases that no span fills, and what would. */
  switches: { phase: string; switch: string | null; text: string }[];
  text: string | null;
  switch: string | null;
}

const at = (runId: string, part: string) => `runs/${encodeURIComponent(runId)}/${part}`;

/** Asks what is known of a run's training. */
export function askTraining(runId: string, signal: AbortSignal): Promise<TrainingAnswer> {
  return askJson<TrainingAnswer>(at(runId, 'training'), { signal });
}

/** Asks where the time of iterations went: of all of them or of some, of one rank or on average. */
export function askBreakdown(
  runId: string,
  asked: { from: number | null; to: number | null; rank: number | null; buckets: number },
  signal: AbortSignal,
): Promise<Breakdown> {
  const query = new URLSearchParams({ part: 'breakdown', buckets: String(asked.buckets) });
  for (const key of ['from', 'to', 'rank'] as const) {
    const value = asked[key];
    if (value !== null) query.set(key, String(key === 'rank' ? value : Math.round(value)));
  }
  return askJson<Breakdown>(at(runId, `timeline?${query}`), { signal });
}
