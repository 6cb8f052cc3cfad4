/** Runs that are laid over the page's own: found by their `nemo.run.id`. */
import type { StepMap } from '../charts/step_map';
import { askJson } from '../lib/api';
import type { AskMatrix, Row } from './step_time';

/** A run that is laid over. */
export interface Other {
  runId: string;
  /** Its `nemo.run.id`. */
  name: string;
  map: StepMap | null;
  labels?: Record<string, string>;
  startedMs: number | null;
}

/** Runs that are laid over at most. */
export const OTHERS_MAX = 8;
/** Ids in a list to choose from. */
const IDS_MAX = 500;
/** The label of `nemo.run.id`. */
const LABEL = 'nemo_run_id';
/** The metric by which a run of a trainer is found. */
const ANY = '{__name__=~"megatron_training_.+"}';

const quoted = (text: string) => JSON.stringify(text);

/** A text that a regular expression matches as it is. */
export const literal = (text: string) => text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&');

async function get<T>(path: string, query: [string, string][], signal?: AbortSignal): Promise<T> {
  const { data } = await askJson<{ data: T }>(`/api/v1/${path}?${new URLSearchParams(query)}`, { signal });
  return data;
}

/** Ids that could be laid over. */
export function askIds(signal?: AbortSignal): Promise<string[]> {
  const query: [string, string][] = [
    ['match[]', ANY],
    ['limit', String(IDS_MAX)],
  ];
  return get<string[]>(`label/${LABEL}/values`, query, signal);
}

/** Finds the runs of these ids. An id of the page's own run that is wanted is no other run. */
export async function findIds(
  wanted: string[],
  page: { runId: string; own: string[] },
  signal: AbortSignal,
): Promise<{ others: Other[]; unknown: string[] }> {
  const ids = [...new Set(wanted)].filter((id) => !page.own.includes(id)).slice(0, OTHERS_MAX);
  if (ids.length === 0) return { others: [], unknown: [] };
  const pattern = ids.map(literal).join('|');
  const selector = `{__name__=~"megatron_training_.+",${LABEL}=~${quoted(pattern)}}`;
  const rows = await get<Record<string, string>[]>('series', [['match[]', selector]], signal);
  const runs = new Map<string, Other>();
  for (const { run_id: runId, [LABEL]: name } of rows)
    if (runId !== undefined && runId !== page.runId)
      runs.set(`${runId} ${name}`, { runId, name, map: null, labels: { [LABEL]: name }, startedMs: null });
  const others = ids
    .flatMap((id) => [...runs.values()].filter((run) => run.name === id))
    .slice(0, OTHERS_MAX);
  const started = await Promise.all(others.map((other) => startOf(other.runId, signal)));
  return {
    others: others.map((other, at) => ({ ...other, startedMs: started[at] })),
    unknown: ids.filter((id) => !others.some((other) => other.name === id)),
  };
}

async function startOf(runId: string, signal: AbortSignal): Promise<number | null> {
  const run = await askJson<{ started_ms: number | null }>(`runs/${encodeURIComponent(runId)}`, { signal });
  return run.started_ms;
}

/** Asks for a matrix. */
export const askMatrix: AskMatrix = async (query, { start, end, step }, signal) => {
  const body = new URLSearchParams({ query, start: `${start}`, end: `${end}`, step: `${step}` });
  const headers = { 'content-type': 'application/x-www-form-urlencoded' };
  const init = { method: 'POST', body, headers, signal };
  const { data } = await askJson<{ data: { result: Row[] } }>('/api/v1/query_range', init);
  return data.result;
};
