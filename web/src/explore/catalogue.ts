/** What this server stores: metrics, what is known of them, and what they cost. */
import { unitOfName } from '../charts/sections';
import type { MetricRow } from '../lib/answers';
import { askJson } from '../lib/api';
import { getProm } from './answer';

/** A metric. */
export interface Described {
  name: string;
  unit: string;
  kind: string;
  help: string;
  /** Series it has; `null` when that is not known. */
  series: number | null;
}

/** A name and a number. */
export interface Counted {
  name: string;
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
  labelValueCountByLabelName: Counted[];
  memoryInBytesByLabelName: Counted[];
  seriesCountByLabelValuePair: Counted[];
}

type Metadata = Record<string, { type: string; help: string; unit: string }[]>;

const CENSUS_ROWS = 1000;

/** Reads the census. */
export function askCensus(): Promise<Census> {
  return getProm<Census>('status/tsdb', { limit: String(CENSUS_ROWS) });
}

/** Names of the metrics that have samples between two times, ms. */
export function askNames(from: number, to: number): Promise<string[]> {
  return getProm<string[]>('label/__name__/values', { start: String(from / 1000), end: String(to / 1000) });
}

/** Reads every metric, in the order of their names. */
export async function askMetrics(census: Census): Promise<Described[]> {
  const [names, metadata] = await Promise.all([
    getProm<string[]>('label/__name__/values'),
    getProm<Metadata>('metadata'),
  ]);
  const counts = new Map(census.seriesCountByMetricName.map((c) => [c.name, c.value]));
  return names.map((name) => {
    const known = Object.hasOwn(metadata, name) ? metadata[name][0] : undefined;
    return {
      name,
      unit: known?.unit || unitOfName(name),
      kind: known?.type ?? '',
      help: known?.help ?? '',
      series: counts.get(name) ?? null,
    };
  });
}

/** A selector of a metric by its name, whatever is in it. */
export function selectorOf(name: string): string {
  if (/^[a-zA-Z_:][\w:]*$/.test(name)) return name;
  return `{__name__=${JSON.stringify(name)}}`;
}

/** What is shown beside a query. */
export interface Details {
  labels: { name: string; values: number }[];
  caveat: string;
}

const LABELS_MAX = 6;

/** Reads the labels of a metric and how many values each has, and its caveat from a run that sends it. */
export async function askDetails(name: string): Promise<Details> {
  const selector = { 'match[]': selectorOf(name) };
  const [names, one] = await Promise.all([
    getProm<string[]>('labels', selector),
    getProm<Record<string, string>[]>('series', { ...selector, limit: '1' }),
  ]);
  const labels = names.filter((n) => n !== '__name__').slice(0, LABELS_MAX);
  const [caveat, ...counts] = await Promise.all([
    caveatOf(name, one[0]?.run_id),
    ...labels.map((label) => getProm<string[]>(`label/${encodeURIComponent(label)}/values`, selector)),
  ]);
  return { labels: labels.map((label, at) => ({ name: label, values: counts[at].length })), caveat };
}

async function caveatOf(name: string, runId: string | undefined): Promise<string> {
  if (!runId) return '';
  try {
    const { metrics } = await askJson<{ metrics: MetricRow[] }>(`runs/${encodeURIComponent(runId)}/metrics`);
    return metrics.find((m) => m.name === name)?.caveat ?? '';
  } catch {
    // A run that was deleted: the metric is shown without its caveat.
    return '';
  }
}
