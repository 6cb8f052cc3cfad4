/** What the server says of a run's health and money. Times are ms since the epoch. */
import { askJson } from '../lib/api';

/** A number, or why there is none. */
export interface Figure {
  value: number | null;
  unit: string;
  reason: string | null;
  /** Observed share of what it is of; `null` where that has no meaning. */
  coverage?: number | null;
  /** How it is reckoned. */
  explain?: string | null;
}

/** How bad a verdict is. */
export type Level = 'page' | 'warn' | 'info';

/** A number that a verdict stands on. */
export interface Evidence {
  text: string;
  name: string;
  value: number | null;
  peers: number | null;
  unit: string;
  /** What asks for it again. */
  metric: string | null;
}

/** Where a rank stood when nothing went on any more. */
export interface Culprit {
  rank: number;
  host?: string | null;
  last_step: number | null;
  last_step_time: number | null;
  sequence: number | null;
  completed: number | null;
  state: string;
}

/** What is wrong with a run, who does it, and what it costs. */
export interface Verdict {
  id: string;
  class: string;
  level: Level;
  claim: string;
  sentence: string;
  ranks: number[];
  host: string | null;
  gpu: string | null;
  uuid: string | null;
  stage: number | null;
  cause: string | null;
  rho: number | null;
  z: number | null;
  wait_seconds: number | null;
  peers_wait_seconds: number | null;
  gain_ratio: number | null;
  step_seconds: number | null;
  onset: { step: number | null; time: number | null } | null;
  /** When it was found. */
  since: number | null;
  cleared: number | null;
  confidence: number | null;
  windows: { held: number; of: number } | null;
  evidence: Evidence[];
  events: { time: number; kind: string; text: string }[];
  action: { word: string; sentence: string } | null;
  culprits: Culprit[];
}

/** A price as the site's settings have it. */
export interface Price {
  usd_per_gpu_hour: number | null;
  gpu_model: string | null;
  revision: string | null;
}

/** What a run costs; beside figures the price that they are by. */
export type Money = Record<string, Figure | Price | null | undefined> & { price?: Price | null };

/** A run's health. */
export interface Health {
  state: 'ok' | 'warn' | 'page' | 'unknown';
  reason: string | null;
  verdicts: Verdict[];
  history: Verdict[];
  figures: Record<string, Figure | undefined>;
  money: Money;
  watched: {
    ranks: number;
    of: number | null;
    window_steps: number;
    last_step: number | null;
    /** The first step that was looked at. */
    since: number | null;
    /** Why nothing is compared yet, or nobody can be named. */
    reason?: string | null;
  } | null;
}

/** All verdicts: those that hold, then those that are over. */
export const verdictsOf = (health: Health | null): Verdict[] => [
  ...(health?.verdicts ?? []),
  ...(health?.history ?? []),
];

/** Whether more of it comes with no other news of a run that is under way: what it sent is judged a moment later. */
export function isAwaited(health: Health | null): boolean {
  const { ranks, of = null } = health?.watched ?? { ranks: 0 };
  return health?.state === 'unknown' || (of !== null && ranks < of);
}

/** Asks for it. */
export function askHealth(runId: string, signal?: AbortSignal): Promise<Health> {
  return askJson<Health>(`runs/${encodeURIComponent(runId)}/health`, { signal });
}
