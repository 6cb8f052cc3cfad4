/** Attributes of runs side by side: only what differs. */
import type { RunDetail } from '../lib/answers';
import { isFact } from '../lib/missing';

/** A key and what each run has for it; `null` where it has none. */
export interface Difference {
  key: string;
  values: (string | null)[];
}

/** An attribute as text. */
export function attributeText(value: unknown): string {
  if (value === null) return 'null';
  return typeof value === 'string' ? value : JSON.stringify(value);
}

/** Keys whose values are not the same in all runs, those of the configuration first. */
export function differencesOf(runs: RunDetail[]): Difference[] {
  const keys = new Set(runs.flatMap((run) => Object.keys(run.attributes).filter(isFact)));
  const all = [...keys].map((key) => ({
    key,
    values: runs.map((run) =>
      Object.hasOwn(run.attributes, key) ? attributeText(run.attributes[key]) : null,
    ),
  }));
  const config = (d: Difference) => Number(!d.key.startsWith('config/'));
  return all
    .filter((d) => new Set(d.values).size > 1)
    .sort((a, b) => config(a) - config(b) || (a.key < b.key ? -1 : 1));
}
