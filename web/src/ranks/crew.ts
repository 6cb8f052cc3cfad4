/** Who is who in a run: the ranks, their hosts, and which series are a rank's. */
import type { MetricRow, RunDetail } from '../lib/answers';
import type { CaptureReport } from '../lib/missing';

/** The processes of a run, by rank. */
export interface Crew {
  /** Ranks that the job has, as far as anybody has told; 0 when nobody has. */
  world: number;
  /** Host of a rank; empty when not known. */
  hostOf: (rank: number) => string;
  /** The rank that series with these labels belong to; `null` when they belong to none. */
  rankOf: (labels: Record<string, string>) => number | null;
}

const RANK = /^\d{1,7}$/;
const at = (host: string, what: string | number) => `${host}\n${what}`;

/** Reads the label `rank`, or `dl_rank` of what came by OpenTelemetry; `null` unless it is a whole number. */
export function rankLabel(labels: Record<string, string>): number | null {
  const text = labels.rank ?? labels.dl_rank ?? '';
  return RANK.test(text) ? Number(text) : null;
}

/** Puts together what sessions, reports and labels say of it; newer sessions and reports win. */
export function crewOf(detail: RunDetail | null, capture: CaptureReport[], metrics: MetricRow[]): Crew {
  const hosts = new Map<number, string>();
  const processes = new Map<string, number>();
  const cards = new Map<string, number>();
  let world = 0;
  const newest = Math.max(0, ...(detail?.attempts_list ?? []).map((a) => a.number));
  for (const { host, pid, rank, attempt, world_size } of detail?.sessions ?? []) {
    if (attempt === newest) world = Math.max(world, world_size ?? 0);
    if (rank === null) continue;
    hosts.set(rank, host);
    processes.set(at(host, pid), rank);
  }
  for (const { host, pid, rank, devices } of capture) {
    if (rank === null) continue;
    hosts.set(rank, host);
    processes.set(at(host, pid), rank);
    for (const { gpu, role } of devices) if (role === 'owned') cards.set(at(host, gpu), rank);
  }
  for (const { labels } of metrics) {
    const rank = rankLabel(labels);
    if (rank !== null && labels.host && !hosts.has(rank)) hosts.set(rank, labels.host);
  }
  return {
    world,
    hostOf: (rank) => hosts.get(rank) ?? '',
    rankOf: (labels) => {
      const rank = rankLabel(labels);
      if (rank !== null || labels.rank !== undefined) return rank;
      if (labels.pid !== undefined) return processes.get(at(labels.host ?? '', labels.pid)) ?? null;
      if (labels.gpu !== undefined) return cards.get(at(labels.host ?? '', labels.gpu)) ?? null;
      return null;
    },
  };
}
