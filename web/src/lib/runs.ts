/** What a page does to runs. */
import type { RunDetail, RunRow } from './answers';
import { ask, askJson } from './api';
import { tell, tellError } from './toast';

const at = (runId: string) => `runs/${encodeURIComponent(runId)}`;

/** Asks for one run. */
export function askRun(runId: string, signal?: AbortSignal): Promise<RunDetail> {
  return askJson<RunDetail>(at(runId), { signal });
}

/** Adds and removes tags; the answer's row is not needed, the list is asked again. */
export async function changeTags(runIds: string[], add: string[], remove: string[]): Promise<void> {
  const body = JSON.stringify({ add_tags: add, remove_tags: remove });
  await Promise.all(runIds.map((id) => ask(at(id), { method: 'PATCH', body })));
}

/** Deletes runs, softly: `changed` is called now and after an undo. */
export async function deleteRuns(rows: RunRow[], changed: () => void): Promise<void> {
  const what = rows.length === 1 ? `run ${rows[0].run}` : `${rows.length} runs`;
  try {
    const answers = await Promise.all(
      rows.map((row) => askJson<{ undo_until_ms?: number }>(at(row.run_id), { method: 'DELETE' })),
    );
    const until = Math.min(...answers.map((a) => a.undo_until_ms ?? Date.now() + 30_000));
    tell(`Deleted ${what}`, () => restoreRuns(rows, what, changed), Math.max(1000, until - Date.now()));
  } catch (error) {
    tellError(`cannot delete ${what}`, error);
  }
  changed();
}

async function restoreRuns(rows: RunRow[], what: string, changed: () => void): Promise<void> {
  try {
    await Promise.all(rows.map((row) => ask(`${at(row.run_id)}/restore`, { method: 'POST' })));
    tell(`Restored ${what}`);
  } catch (error) {
    tellError(`cannot restore ${what}`, error);
  }
  changed();
}
