/** Charts of a run: one per metric, in sections by the first part of the name. */
import { type MetricRow, unspell } from '../lib/answers';

/** A chart: all series of one metric. */
export interface ChartInfo {
  /** Display name: the id. */
  name: string;
  promql: string;
  unit: string;
  kind: string;
  help: string;
  caveat: string;
  /** Whether its points have steps: if not, it is drawn over time. */
  stepped: boolean;
  /** Whether it is what a histogram is made of: counts and a sum, of little use by themselves. */
  isPart: boolean;
  series: MetricRow[];
  /** Observed share of what a derived value is of, as it was told last; `null` where nobody tells it. */
  coverage: number | null;
}

/** A section of the page. */
export interface Section {
  /** First part of the names; empty for names without one. */
  prefix: string;
  charts: ChartInfo[];
}

const UNITS: [RegExp, string][] = [
  [/_bytes(_total)?$/, 'B'],
  [/_seconds(_total)?$/, 's'],
  [/_celsius$/, '°C'],
  [/_watts$/, 'W'],
  [/_joules(_total)?$/, 'J'],
  [/_hertz$/, 'Hz'],
];

/** The unit that a metric's name ends with, if any: what has no description may still say it. */
export function unitOfName(name: string): string {
  return UNITS.find(([end]) => end.test(name))?.[1] ?? '';
}

/** What the name of the observed share ends with, beside what it is the share of. */
const COVERAGE = ':coverage';
/** Section of what rules record of a run, and how its names begin. */
const DERIVED = 'derived';
/** Whether a metric is one of the samplers' under its canonical name. */
const isSampled = (name: string) => name.startsWith('tg_');
const isDerived = (name: string) => name.startsWith('run:');

/** Whether a metric is autocapture's: its steps count samples, not training steps. */
export const isSystem = (name: string) => /^system[/_]/.test(name);

/** Names of what histograms are made of: they have buckets. */
function partsOf(metrics: MetricRow[]): Set<string> {
  const wholes = metrics.flatMap((row) =>
    row.labels.le !== undefined && row.name.endsWith('_bucket') ? row.name.slice(0, -'_bucket'.length) : [],
  );
  return new Set(wholes.flatMap((whole) => ['_bucket', '_count', '_sum'].map((end) => whole + end)));
}

/**
 * Puts series of one metric together. Who asks for a metric by its PromQL name gets every spelling of it: where
 * one is logged under that name, the others have no chart of their own.
 */
export function chartsOf(metrics: MetricRow[]): ChartInfo[] {
  const charts = new Map<string, ChartInfo>();
  const plain = new Set(metrics.flatMap((row) => (row.display === row.name ? row.name : [])));
  const parts = partsOf(metrics);
  for (const row of metrics) {
    const name = plain.has(row.name) ? row.name : row.display || row.name;
    const chart = charts.get(name);
    if (chart) {
      chart.series.push(row);
      chart.stepped ||= row.last_step !== null && !isSystem(name);
      continue;
    }
    charts.set(name, {
      name,
      promql: row.name,
      // OpenTelemetry writes what is counted in braces.
      unit: row.unit.replace(/[{}]/g, '') || unitOfName(row.name),
      kind: row.kind ?? '',
      help: row.help ?? '',
      caveat: row.caveat ?? '',
      stepped: row.last_step !== null && !isSystem(name),
      isPart: parts.has(row.name),
      series: [row],
      coverage: null,
    });
  }
  for (const [name, chart] of charts) chart.coverage = leastOf(charts.get(name + COVERAGE));
  return [...charts.values()];
}

/** The least of the latest values of a chart. */
function leastOf(chart: ChartInfo | undefined): number | null {
  const last = (chart?.series ?? []).flatMap((row) => unspell(row.last) ?? []);
  return last.length > 0 ? Math.min(...last) : null;
}

/** Loss-like first, then what tells learning, then throughput, then the rest, then the system. */
export function rank(name: string): number {
  const low = name.toLowerCase();
  if (isSystem(low) || isSampled(low)) return 90;
  if (/(^|[/_. -])loss([/_. -]|$)/.test(low))
    return /(^|[/_])(val|valid|validation|eval|test)/.test(low) ? 1 : 0;
  if (/loss|perplexity|nll|cross_?entropy/.test(low)) return 2;
  if (/grad.*norm|norm.*grad/.test(low)) return 3;
  if (/acc(uracy)?|reward|score|f1|bleu|auc/.test(low)) return 4;
  if (/(^|[/_])(lr|learning[_-]?rate)/.test(low)) return 10;
  if (/tokens?_?(per|\/)|throughput|per_sec|samples?_s|tokens_s|images_s|mfu|flop/.test(low)) return 5;
  if (/step_?(time|seconds)|seconds|duration|latency/.test(low)) return 6;
  return 20;
}

const natural = new Intl.Collator('en', { numeric: true });

/** Prefixes with fewer charts than this share the section without a name. */
const SECTION_CHARTS = 3;

function prefixOf(name: string): string {
  if (isSystem(name) || isSampled(name)) return 'system';
  if (isDerived(name)) return DERIVED;
  return name.includes('/') ? name.split('/')[0] : '';
}

/** Sections in their order; a chart's order inside is by rank, then by name, what histograms are made of last. */
export function sectionsOf(charts: ChartInfo[], filter: string): Section[] {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const names = new Set(charts.map((c) => c.name));
  // The observed share stands as a badge on the card of what it is the share of.
  const isShare = (name: string) => name.endsWith(COVERAGE) && names.has(name.slice(0, -COVERAGE.length));
  const own = charts.filter((c) => !isShare(c.name));
  const matching = own.filter((c) => words.every((w) => c.name.toLowerCase().includes(w)));
  const sizes = new Map<string, number>();
  for (const { name } of own) sizes.set(prefixOf(name), (sizes.get(prefixOf(name)) ?? 0) + 1);
  const sections = new Map<string, ChartInfo[]>();
  for (const chart of matching) {
    const first = prefixOf(chart.name);
    const stays = first === 'system' || first === DERIVED || (sizes.get(first) ?? 0) >= SECTION_CHARTS;
    const prefix = stays ? first : '';
    sections.set(prefix, [...(sections.get(prefix) ?? []), chart]);
  }
  // What is derived stands behind what was logged, the system behind both.
  const late = ({ prefix }: Section) => (prefix === 'system' ? 2 : prefix === DERIVED ? 1 : 0);
  const by = (a: ChartInfo, b: ChartInfo) =>
    Number(a.isPart) - Number(b.isPart) || rank(a.name) - rank(b.name) || natural.compare(a.name, b.name);
  return [...sections]
    .map(([prefix, inside]) => ({ prefix, charts: inside.sort(by) }))
    .sort((a, b) => late(a) - late(b) || by(a.charts[0], b.charts[0]));
}

/** How often points of the run come, ms: the shortest mean distance among its series. */
export function cadence(metrics: MetricRow[]): number | null {
  const every = metrics.flatMap((m) =>
    m.points > 1 && m.first_time_ms !== null && m.last_time_ms !== null
      ? (m.last_time_ms - m.first_time_ms) / (m.points - 1)
      : [],
  );
  return every.length > 0 ? Math.max(1000, Math.min(...every)) : null;
}
