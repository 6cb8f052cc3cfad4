/** What the server says of remediation: what it would do, may do and did. Times are ms since the epoch. */
import { ask, askJson } from '../lib/api';

/** Nothing is done; everything is played through; commands run. */
export type Mode = 'off' | 'dry_run' | 'real';

/** The states of a host, in the order in which it goes through them. */
export const STATES = [
  'healthy',
  'suspect',
  'cordoned',
  'draining',
  'resetting',
  'rebooting',
  'validating',
  'needs_human',
] as const;
/** One of them. */
export type HostState = (typeof STATES)[number];

/** Hosts that share a budget. */
export interface Pool {
  pool: string;
  nodes: number;
  in_remediation: number;
  budget: number;
  breaker: 'closed' | 'open';
  newly_bad_ratio: number | null;
  quiet: boolean;
}

/** A host and where it stands. */
export interface Host {
  host: string;
  pool: string;
  state: HostState;
  since: number;
  /** Empty where the host itself is meant, as are the others that are not known. */
  gpu: string;
  uuid: string;
  incident: string;
  reason: string;
  resets_24h: number;
  dry_run: boolean;
}

/** How far an act goes by itself: nowhere, to a person, or as soon as its guards let it. */
export type ActMode = 'dry_run' | 'approve' | 'auto';

/** A condition of an act. */
export interface Guard {
  name: string;
  /** `null` where it can't be told. */
  ok: boolean | null;
  text: string;
  /** Nobody can agree around it. */
  hard: boolean;
}

/** One command of an act. */
export interface Command {
  n: number;
  kind: string;
  text: string;
  limit_seconds: number | null;
}

/** What waits for an approval. */
export interface Act {
  id: string;
  key: string;
  host: string;
  gpu: string;
  uuid: string;
  pool: string;
  incident: string;
  verdict: string;
  title: string;
  text: string;
  evidence: string[];
  /** Jobs that are interrupted; one without a run is a scheduler's. */
  affects: {
    run_id: string | null;
    run: string;
    gpus: number | null;
    attempt: number | null;
    /** It has ended, or nothing is heard of it any more. */
    dead: boolean;
  }[];
  checkpoint: { step: number; age_seconds: number | null; steps_lost: number | null } | null;
  /** What the interrupted runs lose together. */
  lost: { steps: number | null; seconds: number | null; usd: number | null; reason: string | null };
  gain_ratio: number | null;
  /** What has to be typed for it to run. */
  confirm: string;
  spare: string | null;
  guards: Guard[];
  commands: Command[];
  asked: number;
  expires: number | null;
  mode: ActMode;
  status: string;
  /** How it ended, or why it waits. */
  outcome: string;
  /** The number of the command that runs or comes next. */
  step: number;
}

/** One edge of a host's states. */
export interface Edge {
  time: number;
  host: string;
  gpu: string;
  from: string;
  to: string;
  text: string;
  actor: string;
  dry_run: boolean;
  /** An incident was seen, something was decided, rehearsed, or done; servers before this told nothing. */
  what?: 'observed' | 'decided' | 'rehearsed' | 'done';
  /** Names of incidents. */
  evidence: string[];
  /** The act; `null` where there is none yet. */
  id: string | null;
  /** Command lines that ran, or would have. */
  commands: string[];
}

/** All of it. */
export interface RemediationAnswer {
  mode: Mode;
  /** Why it is off, and how to begin; `null` where it is not. */
  reason: string | null;
  policy: { name: string; revision: number; file: string } | null;
  pools: Pool[];
  hosts: Host[];
  /** How much waits. */
  waiting: number;
  queue: Act[];
  executing: Act[];
  audit: Edge[];
}

/** A page of edges, the newest first. */
export interface AuditAnswer {
  audit: Edge[];
  next: string | null;
}

/** What the policy would have done on stored incidents. */
export interface ReplayAnswer {
  /** In one sentence. */
  text: string;
  /** Events that were folded anew. */
  events: number;
  pools: { pool: string; nodes: number; most_out: number }[];
  plans: Act[];
  /** Oldest first. */
  audit: Edge[];
}

const query = (fields: Record<string, string | number | null>) => {
  const text = new URLSearchParams();
  for (const [name, value] of Object.entries(fields))
    if (value !== null && value !== '') text.set(name, String(value));
  return text.toString();
};

const post = (path: string, body: unknown) => ask(path, { method: 'POST', body: JSON.stringify(body) });

/** Asks for everything. */
export const askRemediation = (signal?: AbortSignal) => askJson<RemediationAnswer>('remediation', { signal });

/** Asks for edges. */
export const askAudit = (limit: number, cursor: string | null, host = '', signal?: AbortSignal) =>
  askJson<AuditAnswer>(`remediation/audit?${query({ limit, cursor, host })}`, { signal });

/** Lets an act run: as a dry run, or for real with its host's name as one typed it. */
export const approve = (id: string, dryRun: boolean, confirm: string) =>
  post(`remediation/${encodeURIComponent(id)}/approve`, { dry_run: dryRun, confirm });

/** Takes an act out of the queue. */
export const reject = (id: string, reason: string) =>
  post(`remediation/${encodeURIComponent(id)}/reject`, { reason });

/** Has the policy's act for a host, a card or a verdict put into the queue. */
export const propose = (body: { host: string; uuid?: string; verdict: string; reason: string }) =>
  askJson<Act>('remediation/propose', { method: 'POST', body: JSON.stringify(body) });

/** Says that a host is fine. */
export const declareHealthy = (host: string, reason: string) =>
  post(`remediation/${encodeURIComponent(host)}/state`, { state: 'healthy', reason });

/** Plays the policy on what was stored. */
export const askReplay = (from: number, to: number, signal?: AbortSignal) =>
  askJson<ReplayAnswer>('remediation/replay', {
    method: 'POST',
    body: JSON.stringify({ from: Math.round(from), to: Math.round(to) }),
    signal,
  });
