/** Why a series is not there, and what each process's autocapture reported. */
import { ApiError, askJson } from './api';

/** A process of the run, as far as it is known. */
export interface CaptureOwner {
  host: string;
  pid: number;
  rank: number | null;
}

/** A device of a driver, as one process sees it. */
export interface CaptureDevice {
  gpu: number;
  uuid: string;
  model: string;
  pci_bus_id: string;
  compute_capability: string;
  memory_account: string;
  role: 'owned' | 'other' | 'waiting' | 'not_visible' | 'mig' | 'unreadable' | 'reported_elsewhere';
  owner: CaptureOwner | null;
  cause: string;
  /** Display names of series that the device does not have. */
  unsupported: string[];
}

/** What the node's numbers are measured against. */
export interface CaptureLimits {
  cgroup_mode: string;
  memory_measured_at: string;
  memory_ceiling_bytes: number | null;
  cpu_measured_at: string;
  cpu_capacity_cpus: number | null;
}

/** What autocapture of one process found and does. */
export interface CaptureReport {
  host: string;
  boot_id: string;
  pid: number;
  rank: number | null;
  local_rank: number | null;
  state: 'sampling' | 'off' | 'not_linux' | 'not_started' | 'ended';
  failed_ticks: number;
  cause: string;
  interval_seconds: number;
  arbitration: 'shm' | 'tmp' | 'unavailable' | 'none';
  /** Who reports the node: this process, another, or not known. */
  node: 'reports' | CaptureOwner | null;
  driver: { version: string } | { absent: string; text: string; hint: string } | null;
  cuda_device_order: string;
  ownership: string;
  devices: CaptureDevice[];
  limits: CaptureLimits | null;
  failures: { metric: string; gpu: number | null; reason: string; cause: string; backing_off: boolean }[];
  /** When it was sent last. */
  updated?: number | null;
}

/** A series by its names. */
export interface MissingMetric {
  name: string;
  display: string;
  unit: string;
}

/** Where a series is missing; parts that do not apply are `null`. */
export interface MissingPlace {
  host: string | null;
  gpu: string | null;
  pid: string | null;
  rank: string | null;
}

/** One reason, and all that is missing for it. */
export interface MissingRow {
  reason: string;
  text: string;
  hint: string | null;
  command: string | null;
  /** Since when, milliseconds since the epoch. */
  since: number | null;
  /** Whether it is a fault; not so where another process reports the series. */
  alarm: boolean;
  metrics: MissingMetric[];
  places: MissingPlace[];
}

/** The whole answer. */
export interface MissingAnswer {
  run_id: string;
  expected: number;
  present: number;
  /** Whether there is more than the answer holds. */
  cut?: boolean;
  missing: MissingRow[];
  /** Empty where reports were not asked for. */
  capture: CaptureReport[];
}

/** Asks why series are missing, with each process's report or without; `null` from a server that cannot tell. */
export async function askMissing(runId: string, reports: boolean): Promise<MissingAnswer | null> {
  const path = `runs/${encodeURIComponent(runId)}/missing${reports ? '' : '?capture=false'}`;
  try {
    const answer = await askJson<Omit<MissingAnswer, 'capture'> & Partial<MissingAnswer>>(path);
    return { ...answer, missing: answer.missing ?? [], capture: answer.capture ?? [] };
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return null;
    throw error;
  }
}

/** How many series are missing by a fault, each counted once. */
export function alarmCount(answer: MissingAnswer): number {
  return new Set(answer.missing.filter((r) => r.alarm).flatMap((r) => r.metrics.map((m) => m.display))).size;
}

/** Attributes that hold capture reports: shown as a table of their own, never as text. */
export const CAPTURE_PREFIX = 'capture/';

/** Whether an attribute is for people to read. */
export const isFact = (key: string) => !key.startsWith(CAPTURE_PREFIX);
