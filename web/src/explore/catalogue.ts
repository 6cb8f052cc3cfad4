/** What this server stores: metrics, what is known of them, and what they cost. */
import { askJson } from '../lib/api';
import { getProm } from './answer';

/** A metric. */
export interface Described {
  name: string;
  /** `unknown` when nobody said. */
  type: string;
  unit: string;
  help: string;
  /** How it misleads; empty when it does not, or it is not known. */
  caveat: string;
  series: number;
}

/** A name and a number. */
export interface Counted {
  name: string;
  value: number;
}

/** Series that have a bound of their own: those of a project's runs, or of no run. */
export interface Population {
  organization: string;
  workspace: string;
  project: string;
  runs: boolean;
  value: number;
  limit: number;
}

/** A label that points are refused for. */
export interface RefusedLabel {
  name: string;
  door: string;
  /** The job that sent it, or the project of the run. */
  job: string;
  value: number;
}

/** Which metrics and labels cost how much. */
export interface Census {
  headStats: {
    numSeries: number;
    numLabelPairs: number;
    chunkCount: number;
    minTime: number;
    maxTime: number;
  };
  seriesCountByMetricName: Counted[];
  seriesCountByLabelName: Counted[];
  labelValueCountByLabelName: Counted[];
  memoryInBytesByLabelName: Counted[];
  seriesCountByLabelValuePair: Counted[];
  seriesCountByPopulation: Population[];
  refusedLabels: RefusedLabel[];
}

const CENSUS_ROWS = 1000;
const METRICS_MAX = 500;

/** Reads the census: of all, or of one metric. */
export function askCensus(metric: string | null = null): Promise<Census> {
  const of: Record<string, string> = metric ? { 'match[]': selectorOf(metric) } : {};
  return getProm<Census>('status/tsdb', { limit: String(CENSUS_ROWS), ...of });
}

/** Names of the metrics that have samples between two times, ms. */
export function askNames(from: number, to: number): Promise<string[]> {
  return getProm<string[]>('label/__name__/values', { start: String(from / 1000), end: String(to / 1000) });
}

/** Metrics by name, the first ones of `total`. */
export interface Metrics {
  metrics: Described[];
  total: number;
}

/** Reads metrics whose name or help has `search` in it. */
export function askMetrics(search = '', signal?: AbortSignal): Promise<Metrics> {
  const asked = new URLSearchParams({ search, limit: String(METRICS_MAX) });
  return askJson<Metrics>(`metrics?${asked}`, { signal });
}

/** A selector of a metric by its name, whatever is in it. */
export function selectorOf(name: string): string {
  if (/^[a-zA-Z_:][\w:]*$/.test(name)) return name;
  return `{__name__=${JSON.stringify(name)}}`;
}
