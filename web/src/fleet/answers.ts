/** What the server says of nodes, cards and incidents. Times are ms since the epoch. */
import { askJson } from '../lib/api';

/** How far a signal is to be trusted, from a counted fact to what misleads alone. */
export type Level = 'A' | 'B' | 'C' | 'D';

/** A signal that cards may be coloured by. */
export interface SignalInfo {
  key: string;
  title: string;
  unit: string;
  trust: Level;
  caveat: string;
  metric: string;
  peers: boolean;
}

/** Who has a card. */
export interface Owner {
  run_id?: string | null;
  run?: string | null;
  job_id?: string | null;
  namespace?: string | null;
  pod?: string | null;
  container?: string | null;
  /** Number of sharers; absent for a sole owner. */
  shared?: number | null;
  confidence?: string | null;
}

/** The middle one of the other cards that are alike. */
export interface Peers {
  median: number | null;
  ratio: number | null;
  of: 'run' | 'pod' | 'model';
  /** How many they are, the card among them. */
  count: number;
}

/** A card. */
export interface Gpu {
  host: string;
  gpu: string;
  uuid: string;
  gpu_model: string;
  driver: string;
  pci_bus_id: string;
  mig: boolean;
  slices: string[];
  state: 'ok' | 'suspect' | 'missing' | 'silent';
  value: number | null;
  reason: string | null;
  /** One number a bin; `null` where nothing was seen, or where nothing was at all. */
  bins: (number | null)[] | null;
  peers: Peers | null;
  owner: Owner | null;
  /** The incident that is open. */
  incident: string | null;
  /** Those that a process wrote are no fault. */
  xids: { time: number; xid: number; userspace: boolean }[];
  unsupported: string[];
  last_seen: number | null;
  sources: string[];
  latest?: Record<string, { value: number | null; unit: string; time: number }>;
  owners?: { from: number; to: number; owner: Owner | null }[];
}

/** Cards by one signal. */
export interface GpusAnswer {
  signal: string;
  signals: SignalInfo[];
  from: number;
  to: number;
  step_ms: number;
  coverage: number | null;
  gpus: Gpu[];
}

/** A node. */
export interface Node {
  host: string;
  state: 'live' | 'silent';
  last_seen: number | null;
  agents: number;
  agent_version: string | null;
  boot_id: string | null;
  gpus: { pci: number | null; driver: number | null; allocated: number | null };
  missing: { pci_bus_id: string | null; uuid: string | null; since: number | null }[];
  cpu_ratio: number | null;
  memory_used_bytes: number | null;
  memory_total_bytes: number | null;
  incidents: number;
}

/** All nodes. */
export interface NodesAnswer {
  nodes: Node[];
  totals: {
    hosts: number;
    silent: number;
    pci: number | null;
    driver: number | null;
    allocated: number | null;
    missing: number;
  };
}

/** A code of an incident. */
export interface Code {
  code: string;
  number: number | null;
  count: number;
  part: 'cause' | 'symptom' | 'detail';
  title: string;
  first: number;
  last: number;
}

/** A line that an incident rests on. */
export interface Evidence {
  time: number;
  text: string;
  code: string | null;
  source: string;
  /** Written by a program, not by the kernel: never acted on. */
  userspace: boolean;
}

/** Everything that one cause brought about. */
export interface Incident {
  id: string;
  host: string;
  /** The driver's index; empty where it is not known. */
  gpu: string;
  uuid: string | null;
  pci_bus_id: string | null;
  state: 'open' | 'cleared';
  first: number;
  last: number;
  severity: 'info' | 'warning' | 'critical';
  action: string;
  /** What is to be done when that did not help. */
  then?: string | null;
  provenance: string;
  confidence: string;
  /** Until when the driver's own verdict is waited for. */
  waits_until: number | null;
  title: string;
  effect: string;
  codes: Code[];
  conflicts: string[];
  evidence: Evidence[];
  /** Lines beyond the bound of an answer. */
  evidence_left_out: number;
  processes: { pid: number; name: string | null }[];
  jobs: string[];
  runs: { run_id: string; run: string | null }[];
  slices: string[];
  remap_pending: boolean;
  cleared: { time: number; by: string } | null;
  /** The common cause that it belongs to. */
  common: string | null;
}

/** Incidents, and causes that several have in common. */
export interface IncidentsAnswer {
  incidents: Incident[];
  common: { id: string; sentence: string; hosts: string[]; incidents: string[] }[];
  /** Incidents beyond the bound of an answer. */
  left_out: number;
  /** Open ones that were forgotten since there were too many. */
  dropped: number;
}

/** Something that happened. */
export interface FleetEvent {
  time: number;
  time_ns: string;
  kind: string;
  severity: 'info' | 'warning' | 'critical';
  key: string;
  labels: Record<string, string>;
  text: string;
  body: Record<string, unknown>;
}

type Query = Record<string, string | number | null | undefined>;

function ask<T>(path: string, query: Query, signal?: AbortSignal): Promise<T> {
  const text = new URLSearchParams();
  for (const [name, value] of Object.entries(query))
    if (value !== null && value !== undefined && value !== '') text.set(name, String(value));
  const asked = text.toString();
  return askJson<T>(asked ? `${path}?${asked}` : path, { signal });
}

/** Asks for the nodes. */
export const askNodes = (signal?: AbortSignal) => ask<NodesAnswer>('fleet/nodes', {}, signal);

/** Asks for cards. */
export const askGpus = (query: Query, signal?: AbortSignal) => ask<GpusAnswer>('fleet/gpus', query, signal);

/** Asks for incidents. */
export const askIncidents = (query: Query, signal?: AbortSignal) =>
  ask<IncidentsAnswer>('incidents', query, signal);

/** Asks for events, the newest first. */
export const askEvents = (query: Query, signal?: AbortSignal) =>
  ask<{ events: FleetEvent[]; next: string | null }>('events', query, signal);
