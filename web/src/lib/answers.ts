/** What the server answers, field by field. Times are milliseconds since the epoch. */

/** The states of a run. */
export type State = 'running' | 'stale' | 'failed' | 'finished' | 'paused';

/** A number that JSON may have to spell. */
export type Spelled = number | 'NaN' | '+Inf' | '-Inf' | null;

/** One run in a list. */
export interface RunRow {
  run_id: string;
  organization: string;
  workspace: string;
  project: string;
  run: string;
  state: State;
  state_since_ms: number | null;
  state_reason: string | null;
  created_ms: number;
  started_ms: number | null;
  ended_ms: number | null;
  elapsed_seconds: number | null;
  attempts: number;
  hosts: string[];
  sessions_live: number;
  tags: string[];
  description: string | null;
  last_step: number | null;
  last_time_ms: number | null;
  points: number;
  series: number;
  metric: { name: string; last: Spelled } | null;
  /** The worst that holds it up. */
  verdict?: { claim: string; level: string } | null;
  /** How far its slowest rank is from the median, over the median. */
  spread?: number | null;
}

/** A page of runs. */
export interface RunsAnswer {
  runs: RunRow[];
  next: string | null;
  total: number;
  matching: number;
  counts: Partial<Record<State, number>>;
  warnings?: string[];
}

/** A try at the run. */
export interface Attempt {
  number: number;
  started_ms: number | null;
  ended_ms: number | null;
  job_token: string;
  restart_count: number;
}

/** A process that wrote. */
export interface Session {
  host: string;
  pid: number;
  rank: number | null;
  world_size: number | null;
  attempt: number;
  started_ms: number | null;
  heartbeat_ms: number | null;
  ended_ms: number | null;
  end: string | null;
}

/** One run, whole. */
export interface RunDetail extends RunRow {
  attributes: Record<string, unknown>;
  attempts_list: Attempt[];
  sessions: Session[];
  dropped: Record<string, number>;
  refused: Record<string, number>;
}

/** One series of a run. */
export interface MetricRow {
  name: string;
  display: string;
  labels: Record<string, string>;
  scale: string;
  points: number;
  last_step: number | null;
  last: Spelled;
  first_time_ms: number | null;
  last_time_ms: number | null;
  unit: string;
  kind: string;
  help: string;
  caveat: string;
}

/** News of a run, at most once a second. */
export interface RunNews {
  run_id: string;
  last_step: number | null;
  last_time_ms: number | null;
  points: number;
  state: State;
}

/** Turns a spelled number into one; `null` stays. */
export function unspell(value: Spelled | undefined): number | null {
  if (value === undefined || value === null || typeof value === 'number') return value ?? null;
  if (value === 'NaN') return Number.NaN;
  return value === '-Inf' ? -Infinity : Infinity;
}
