/** What a query reads and what it probably gets wrong, before it is run. */
import { askJson } from '../lib/api';
import type { Described } from './catalogue';

/** A metric of a query, with its labels. */
export interface ExplainedMetric extends Described {
  labels: { name: string; series: number; values: number }[];
}

/** A likely mistake. */
export interface Advice {
  message: string;
  fix: { says: string; query: string } | null;
}

/** What is known of a query. */
export interface Explained {
  advice: Advice[];
  metrics: ExplainedMetric[];
}

/** Asks about a query. */
export function askExplained(query: string, signal: AbortSignal): Promise<Explained> {
  return askJson<Explained>(`explain?${new URLSearchParams({ query })}`, { signal });
}
