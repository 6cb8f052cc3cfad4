/** The charts of a model: which series each draws, and how they are asked for in few questions. */

import type { Line, Shape } from '../charts/shape';
import { holesOf } from '../charts/shape';
import type { RangeAnswer, Series } from '../explore/answer';
import { shapeOfRange } from '../explore/answer';
import type { Objectives } from './answers';

/** A line, by the word that its question gives it. */
interface LineSpec {
  what: string;
  text: string;
  slot: number;
  dash: number[];
}

/** One chart. */
export interface ChartSpec {
  id: string;
  title: string;
  unit: string;
  /** Beside the unit. */
  note: string;
  /** Metric that says what it measures. */
  metric: string;
  log: boolean;
  lines: LineSpec[];
  /** Drawn as bars on a scale of their own. */
  bars: LineSpec | null;
  /** Figure whose reason is shown where there is no line. */
  figure: string;
  /** Whether a line for each value of a label is drawn instead. */
  by: string | null;
  /** Whether marks of restarts are drawn. */
  resets: boolean;
  /** What its values are, where that has to be said in the head. */
  badge: string;
  /** The objective that is drawn as a line. */
  objective: keyof Objectives | null;
  /** What the first line's band lies between. */
  band: [low: string, high: string] | null;
}

const line = (what: string, text: string, slot: number, dash: number[] = []): LineSpec => ({
  what,
  text,
  slot,
  dash,
});

const spec = (
  id: string,
  title: string,
  unit: string,
  metric: string,
  more: Partial<ChartSpec>,
): ChartSpec => ({
  id,
  title,
  unit,
  note: '',
  metric: `tg_engine_${metric}`,
  log: false,
  lines: [],
  bars: null,
  figure: '',
  by: null,
  resets: false,
  badge: '',
  objective: null,
  band: null,
  ...more,
});

/** Dashes of the higher quantiles of one thing. */
const P95 = [6, 3];
const P99 = [2, 2];
/** What counts by reason is asked for under this word. */
const FINISHED = 'finished';

/** The charts in their order. */
export const CHARTS: ChartSpec[] = [
  spec('ttft', 'TTFT', 's', 'ttft_seconds', {
    lines: [line('ttft_p50', 'p50', 0), line('ttft_p95', 'p95', 2, P95), line('ttft_p99', 'p99', 1, P99)],
    figure: 'ttft_p95',
    objective: 'ttft',
  }),
  spec('itl', 'ITL', 'ms', 'itl_seconds', {
    log: true,
    lines: [line('itl_p50', 'p50', 0), line('itl_p99', 'p99', 1, P99)],
    figure: 'itl_p99',
    objective: 'itl',
  }),
  spec('goodput', 'Goodput', '', '', {
    note: 'share inside all objectives',
    metric: 'model:goodput_ratio_lower',
    lines: [line('goodput_lower', 'at least', 0), line('goodput_upper', 'at most', 0)],
    figure: 'goodput_lower',
    badge: 'bounds',
    objective: 'goodput',
    band: ['goodput_lower', 'goodput_upper'],
  }),
  spec('load', 'Requests', '', 'requests_running', {
    lines: [line('running', 'running', 0), line('waiting', 'waiting', 1, P95)],
    figure: 'running',
  }),
  spec('kv', 'KV cache', '', 'kv_usage_ratio', {
    lines: [line('kv_mean', 'use', 0)],
    bars: line('preemptions', 'preempt./s', 6),
    band: ['kv_min', 'kv_max'],
    figure: 'kv_usage',
  }),
  spec('tokens', 'Tokens/s', '', 'output_tokens_total', {
    lines: [line('output', 'output', 0), line('prompt', 'prompt', 3, P95)],
    figure: 'output_tokens_per_second',
    resets: true,
  }),
  spec('joule', 'Tokens per joule', 'tok/J', '', {
    note: 'output tokens',
    metric: 'model:tokens_per_joule',
    lines: [line('tokens_per_joule', 'output', 0)],
    figure: 'tokens_per_joule',
    badge: 'GPU boards only',
  }),
  spec('usd', '$ per million tokens', '', '', {
    metric: 'model:usd_per_mtok',
    lines: [line('usd_per_mtok', 'with idle', 1), line('usd_per_mtok_busy', 'busy only', 0, P95)],
    figure: 'usd_per_mtok',
  }),
  spec('e2e', 'End to end', 's', 'e2e_seconds', {
    lines: [line('e2e_p50', 'p50', 0), line('e2e_p95', 'p95', 2, P95)],
    figure: 'e2e_p95',
  }),
  spec('cache', 'Cache hits', '', 'cache_hit_tokens_total', {
    note: 'share',
    lines: [line('cache_hits', 'hits', 0), line('spec', 'drafts', 3, P95)],
    figure: 'cache_hit_ratio',
  }),
  spec('finished', 'Finished by reason', '1/s', 'requests_finished_total', { by: 'reason' }),
];

const quoted = (text: string) => JSON.stringify(text);

/** The series of a model. A model without a name is one of an engine that tells none. */
export const selectorOf = (model: string) => `engine!="",model=${quoted(model)}`;

const named = (query: string, what: string) => `label_replace(${query}, "what", "${what}", "", "")`;

/** Expressions by their word, over `labels`, put together by `by`. */
export function expressions(labels: string, window: string, by: string): Record<string, string> {
  const of = (metric: string) => `tg_engine_${metric}{${labels}}[${window}]`;
  const within = by === '' ? '' : `${by}, `;
  const group = by === '' ? '' : ` by (${by})`;
  const quantile = (q: number, metric: string) =>
    `histogram_quantile(${q}, sum by (${within}le) (rate(${of(`${metric}_bucket`)})))`;
  const gauge = (operator: string, metric: string) => `${operator}${group} (last_over_time(${of(metric)}))`;
  const rate = (metric: string) => `sum${group} (rate(${of(metric)}))`;
  const share = (part: string, whole: string) => `${rate(part)} / ${rate(whole)}`;
  return {
    ttft_p50: quantile(0.5, 'ttft_seconds'),
    ttft_p95: quantile(0.95, 'ttft_seconds'),
    ttft_p99: quantile(0.99, 'ttft_seconds'),
    itl_p50: `1000 * ${quantile(0.5, 'itl_seconds')}`,
    itl_p99: `1000 * ${quantile(0.99, 'itl_seconds')}`,
    e2e_p50: quantile(0.5, 'e2e_seconds'),
    e2e_p95: quantile(0.95, 'e2e_seconds'),
    running: gauge('sum', 'requests_running'),
    waiting: gauge('sum', 'requests_waiting'),
    kv_mean: gauge('avg', 'kv_usage_ratio'),
    kv_min: gauge('min', 'kv_usage_ratio'),
    kv_max: gauge('max', 'kv_usage_ratio'),
    preemptions: rate('preemptions_total'),
    output: rate('output_tokens_total'),
    prompt: rate('prompt_tokens_total'),
    cache_hits: share('cache_hit_tokens_total', 'cache_query_tokens_total'),
    spec: share('spec_accepted_tokens_total', 'spec_draft_tokens_total'),
  };
}

/** What rules have recorded, by its word: ratios have one definition, which is theirs. */
export function recorded(model: string, window: string): Record<string, string> {
  const of = (name: string) => `max(last_over_time(model:${name}{model=${quoted(model)}}[${window}]))`;
  return {
    goodput_lower: of('goodput_ratio_lower'),
    goodput_upper: of('goodput_ratio_upper'),
    tokens_per_joule: of('tokens_per_joule'),
    usd_per_mtok: of('usd_per_mtok'),
    usd_per_mtok_busy: of('usd_per_mtok_busy'),
  };
}

const QUANTILES = ['ttft_p50', 'ttft_p95', 'ttft_p99', 'itl_p50', 'itl_p99', 'e2e_p50', 'e2e_p95'];
const RESETS = 'resets';

/** The questions that all charts of a model are drawn from. */
export function questionsOf(model: string, window: string): string[] {
  const labels = selectorOf(model);
  const all = expressions(labels, window, '');
  const ask = (words: string[]) => words.map((what) => named(all[what], what)).join(' or ');
  const counter = `tg_engine_output_tokens_total{${labels}}[${window}]`;
  return [
    ask(QUANTILES),
    ask(Object.keys(all).filter((what) => !QUANTILES.includes(what))),
    Object.entries(recorded(model, window))
      .map(([what, query]) => named(query, what))
      .join(' or '),
    [
      named(`sum by (reason) (rate(tg_engine_requests_finished_total{${labels}}[${window}]))`, FINISHED),
      named(`sum by (job, instance) (resets(${counter})) > 0`, RESETS),
    ].join(' or '),
  ];
}

/** What one may copy of a chart and ask again. */
export function promqlOf(chart: ChartSpec, model: string, window: string): string[] {
  const labels = selectorOf(model);
  if (chart.by) return [`sum by (${chart.by}) (rate(${chart.metric}{${labels}}[${window}]))`];
  const all = { ...expressions(labels, window, ''), ...recorded(model, window) };
  return [...chart.lines, ...(chart.bars ? [chart.bars] : [])].map(({ what }) => all[what]);
}

/** A restart: an engine's counter began anew. */
export interface Reset {
  time: number;
  instance: string;
}

/** What a chart draws. */
export interface Picture {
  shape: Shape;
  /** The bars, on the same x. */
  bars: Shape | null;
  resets: Reset[];
}

/** Everything that was read of a model. */
export interface Pictures {
  model: string;
  window: string;
  charts: Map<string, Picture>;
  resets: Reset[];
  warnings: string[];
}

/** Reasons that are drawn at most. */
const REASONS_MAX = 12;

/** Puts the series of the answers into their charts. */
export function picturesOf(model: string, window: string, answers: RangeAnswer[]): Pictures {
  const byWhat = new Map<string, [RangeAnswer, Series[]]>();
  for (const answer of answers)
    for (const series of answer.series) {
      const what = series.labels.what ?? '';
      const known = byWhat.get(what);
      if (known) known[1].push(series);
      else byWhat.set(what, [answer, [series]]);
    }
  const [marked, markers] = byWhat.get(RESETS) ?? [null, []];
  const resets = marked ? resetsOf(marked, markers) : [];
  const charts = new Map<string, Picture>();
  for (const chart of CHARTS) {
    const found = pictureOf(chart, byWhat, chart.resets ? resets : []);
    if (found) charts.set(chart.id, found);
  }
  return { model, window, charts, resets, warnings: [...new Set(answers.flatMap((a) => a.warnings))] };
}

type ByWhat = Map<string, [RangeAnswer, Series[]]>;

function pictureOf(chart: ChartSpec, byWhat: ByWhat, resets: Reset[]): Picture | null {
  if (chart.by) {
    const [answer, series] = byWhat.get(FINISHED) ?? [null, []];
    if (!answer) return null;
    const order = series.toSorted((a, b) => b.mean - a.mean || (a.labels.reason < b.labels.reason ? -1 : 1));
    const shape = shapeOfRange({ ...answer, total: series.length }, order.slice(0, REASONS_MAX), [chart.by]);
    return { shape, bars: null, resets };
  }
  const words = [...new Set([...chart.lines.map((l) => l.what), ...(chart.band ?? [])])];
  const wanted = [...words, ...(chart.bars ? [chart.bars.what] : [])];
  const [answer] = wanted.flatMap((what) => byWhat.get(what) ?? []) as [RangeAnswer | undefined];
  if (!answer) return null;
  const pick = (all: string[]) => all.flatMap((what) => byWhat.get(what)?.[1] ?? []);
  // One answer, so that bars and lines stand on one x.
  const whole = shapeOfRange({ ...answer, total: 0 }, pick(wanted), []);
  const named = (what: string) => whole.lines.find((l) => l.labels.what === what);
  const [low, high] = (chart.band ?? []).map(named);
  const lines = chart.lines.flatMap(({ what, text }, at) => {
    const found = named(what);
    return found ? [{ ...found, key: text, ...(at === 0 ? band(low, high) : {}) }] : [];
  });
  if (lines.length === 0 && !chart.bars) return null;
  const bars = chart.bars && named(chart.bars.what);
  const part = (some: Line[]): Shape => ({ ...whole, lines: some, holes: holesOf(some), total: some.length });
  return { shape: part(lines), bars: bars ? part([{ ...bars, key: chart.bars!.text }]) : null, resets };
}

/** What lies between two lines, as the band of another: all replicas of their mean, or what bounds leave open. */
function band(min: Line | undefined, max: Line | undefined): Partial<Line> {
  return min && max ? { min: min.raw, max: max.raw } : {};
}

/** Where counters began anew: the first step of each run of steps that see it. */
export function resetsOf(answer: RangeAnswer, series: Series[]): Reset[] {
  const found: Reset[] = [];
  for (const { labels, present } of series)
    present.forEach((is, at) => {
      if (is > 0 && !(present[at - 1] > 0))
        found.push({ time: answer.x[at], instance: labels.instance ?? '' });
    });
  return found.sort((a, b) => a.time - b.time);
}

/** What replicas may be compared by. */
export const COMPARED: { key: string; text: string; unit: string; figure: string; worse: 'high' | 'low' }[] =
  [
    { key: 'ttft_p95', text: 'TTFT p95', unit: 's', figure: 'ttft_p95', worse: 'high' },
    { key: 'itl_p99', text: 'ITL p99', unit: 'ms', figure: 'itl_p99', worse: 'high' },
    { key: 'running', text: 'running', unit: '', figure: 'running', worse: 'high' },
    { key: 'waiting', text: 'waiting', unit: '', figure: 'waiting', worse: 'high' },
    { key: 'kv_mean', text: 'KV use', unit: '', figure: 'kv_usage', worse: 'high' },
    { key: 'output', text: 'output tok/s', unit: '', figure: 'output_tokens_per_second', worse: 'low' },
  ];

/** The question that draws one line for each replica. */
export function replicaQuestion(model: string, key: string, window: string): string {
  return expressions(selectorOf(model), window, 'job, instance, dp_rank')[key];
}

/** Names of histograms that quantiles are drawn of. */
const HISTOGRAMS = 'tg_engine_(ttft|itl|e2e)_seconds_bucket';

/** The question for the bounds of a model's buckets. */
export const boundsQuestion = (model: string, window: string) =>
  `group by (__name__, le) (last_over_time({__name__=~"${HISTOGRAMS}",${selectorOf(model)}}[${window}]))`;

/** Upper bounds of buckets in their order, by metric, seconds. */
export type Bounds = ReadonlyMap<string, number[]>;

/** Reads the answer. */
export function boundsOf(rows: { metric: Record<string, string> }[]): Bounds {
  const found = new Map<string, number[]>();
  for (const { metric } of rows) {
    const name = (metric.__name__ ?? '').replace(/_bucket$/, '');
    const bound = metric.le === '+Inf' ? Infinity : Number(metric.le);
    found.set(name, [...(found.get(name) ?? []), bound]);
  }
  for (const all of found.values()) all.sort((a, b) => a - b);
  return found;
}

/** The bounds of the bucket that a quantile lies in: it may be anywhere between them. */
export function bucketOf(bounds: number[], value: number): [low: number, high: number] | null {
  const at = bounds.findIndex((bound) => value <= bound);
  return at < 0 ? null : [bounds[at - 1] ?? 0, bounds[at]];
}
