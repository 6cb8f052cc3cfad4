/** Files and the clipboard. */
import { ask } from './api';
import { tell, tellError } from './toast';

/** A name that every file system takes. */
export function fileName(...pieces: string[]): string {
  const name = pieces
    .map((p) => p.replace(/[^\p{L}\p{N}._-]+/gu, '_').replace(/^[._]+/, ''))
    .filter(Boolean)
    .join('-');
  return name.slice(0, 120) || 'truegauge';
}

/** Saves a blob as a file. */
export function save(blob: Blob, name: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Saves every stored point of a run, or of one metric, as CSV. */
export async function saveCsv(runId: string, run: string, metric: string | null): Promise<void> {
  const query = new URLSearchParams({ format: 'csv', ...(metric ? { metric } : {}) });
  try {
    const answer = await ask(`runs/${encodeURIComponent(runId)}/export?${query}`);
    save(await answer.blob(), `${fileName(run, metric ?? 'points')}.csv`);
  } catch (error) {
    tellError('cannot export', error);
  }
}

/** Saves every stored point of several runs as one Parquet file. */
export async function saveRuns(runIds: string[]): Promise<void> {
  const query = new URLSearchParams({ format: 'parquet' });
  for (const id of runIds) query.append('run_id', id);
  try {
    save(await (await ask(`export?${query}`)).blob(), `${runIds.length}-runs.parquet`);
  } catch (error) {
    tellError('cannot export', error);
  }
}

/** Copies text and says so. */
export async function copy(text: string, what: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    tell(`Copied ${what}`);
  } catch (error) {
    tellError(`cannot copy ${what}`, error);
  }
}
