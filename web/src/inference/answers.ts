/** What the server says of engines that serve models. Times are ms since the epoch. */
import { getProm } from '../explore/answer';
import type { Price } from '../health/answers';
import { askJson } from '../lib/api';

/** A number, or why there is none. */
export interface Figure {
  value: number | string | null;
  unit: string;
  reason: string | null;
  /** Observed share of the window. */
  coverage: number | null;
}

/** Figures by name, such as `ttft_p95`. */
export type Figures = Record<string, Figure>;

/** What holds a model back, and the numbers that say so. */
export interface Verdict {
  kind: string;
  sentence: string;
  numbers: { name: string; value: number | null; unit: string; metric: string }[];
}

/** One process that serves a model, or one rank of it. */
export interface Replica {
  job: string;
  instance: string;
  engine: string;
  dp_rank: string | null;
  up: boolean;
  error: string | null;
  since: number | null;
  values: Figures;
}

/** What users of a model are to get, seconds; of goodput the share of requests. */
export interface Objectives {
  ttft: number | null;
  tpot: number | null;
  itl: number | null;
  goodput: number | null;
}

/** A model. */
export interface Model {
  /** Empty where the engine does not tell. */
  model: string;
  engines: string[];
  targets: { up: number; total: number };
  gpus: number | null;
  gpus_reason: string | null;
  values: Figures;
  finished: Record<string, number | string>;
  verdict: Verdict | null;
  objectives?: Objectives | null;
  price?: Price | null;
  replicas: Replica[];
}

/** A target that is an engine. */
export interface Target {
  job: string;
  instance: string;
  engine: string;
  up: boolean;
  error: string | null;
  last_scrape: number | null;
}

/** Engines in a window. */
export interface EnginesAnswer {
  from: number;
  to: number;
  models: Model[];
  /** How many there are, with those that are not in this answer. */
  models_total: number;
  /** The last name where more come after it. */
  next: string | null;
  targets: Target[];
}

/** A page compared with what is known of its engine. */
export interface Page {
  job: string;
  instance: string;
  engine: string;
  title: string;
  version: string | null;
  url: string;
  read: string;
  matched: { source: string; canonical: string | null; note: string }[];
  unknown: string[];
  missing: { canonical: string; expected: string[]; text: string }[];
}

/** What is scraped, as the Prometheus API says it. */
export interface Scraped {
  labels: { job?: string; instance?: string };
  health: 'up' | 'down' | 'unknown';
  lastError: string;
  scrapeUrl: string;
  scrapeInterval: string;
}

/** What a canonical metric is, and how far it is to be trusted. */
export interface Described {
  name: string;
  help: string;
  caveat: string;
  trust?: string;
}

/** Asks for all models, of very many for the first by name, and for the one that is `named` in any case. */
export async function askEngines(
  from: number,
  to: number,
  named: string | null,
  signal?: AbortSignal,
): Promise<EnginesAnswer> {
  const window = `from=${from}&to=${to}`;
  const all = await askJson<EnginesAnswer>(`engines?${window}`, { signal });
  if (named === null || all.next === null || all.models.some((m) => m.model === named)) return all;
  const one = `engines?${window}&model=${encodeURIComponent(named)}`;
  const { models, targets } = await askJson<EnginesAnswer>(one, { signal });
  return { ...all, models: [...all.models, ...models], targets: [...all.targets, ...targets] };
}

/** Compares the page of one target as it was at `to`. */
export async function askPage(instance: string, to: number, signal?: AbortSignal): Promise<Page | null> {
  const query = new URLSearchParams({ instance, to: String(to) });
  const { targets } = await askJson<{ targets: Page[] }>(`engines/vocabulary?${query}`, { signal });
  return targets[0] ?? null;
}

/** Asks how the targets stand that are scraped here. */
export async function askScraped(signal?: AbortSignal): Promise<Scraped[]> {
  const { activeTargets } = await getProm<{ activeTargets: Scraped[] }>(
    'targets',
    { state: 'active' },
    signal,
  );
  return activeTargets;
}

/** Asks what the canonical metrics of engines are. */
export async function askDescribed(signal?: AbortSignal): Promise<Map<string, Described>> {
  const { metrics } = await askJson<{ metrics: Described[] }>('metrics?search=tg_engine_&limit=200', {
    signal,
  });
  return new Map(metrics.map((metric) => [metric.name, metric]));
}

/** A number of the API, which writes what JSON has no number for as text; NaN where there is none. */
export function numberOf(value: number | string | null | undefined): number {
  if (value === null || value === undefined) return Number.NaN;
  return typeof value === 'number' ? value : Number(value.replace('Inf', 'Infinity'));
}
