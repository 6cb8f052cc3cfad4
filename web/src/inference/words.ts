/** Numbers, models and verdicts in words. */
import { formatCount, formatValue, THIN } from '../lib/number';
import { shown } from '../lib/text';
import { formatUsd } from '../money/quantity';
import { type Figure, type Figures, type Model, numberOf, type Objectives, type Replica } from './answers';

/** What a figure is called in the table, and how it is written. */
export interface Column {
  key: string;
  title: string;
  unit: string;
  hint: string;
  /** A second figure after a slash. */
  and?: string;
  write: (value: number) => string;
  /** The one to read first. */
  strong?: boolean;
  /** The objective that it is held against. */
  objective?: keyof Objectives;
}

/** Three digits: a table is scanned, the chart is read. */
export function brief(value: number): string {
  if (!Number.isFinite(value)) return formatValue(value);
  if (value === 0) return '0';
  if (Math.abs(value) < 0.0005) return formatValue(Number(value.toPrecision(2)));
  const size = Math.abs(value);
  if (size >= 999_500) return formatValue(Number(value.toPrecision(3)));
  if (size >= 9999.5) return `${(value / 1000).toFixed(size < 99_950 ? 1 : 0)}${THIN}k`;
  if (size >= 1000) return formatCount(value);
  const text = value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.1 ? 2 : 3);
  return text.replace(/\.0+$/, '');
}

const ms = (value: number) => brief(value * 1000);
const whole = (value: number) => formatCount(Math.round(value));
const ratio = (value: number) => value.toFixed(2);

/** The figures of the table in their order. */
export const COLUMNS: Column[] = [
  {
    key: 'ttft_p50',
    title: 'TTFT p50',
    unit: 's',
    hint: 'Time to the first token, the middle one',
    write: brief,
  },
  {
    key: 'ttft_p95',
    title: 'TTFT p95',
    unit: 's',
    hint: 'Time to the first token, 95 of 100',
    write: brief,
    objective: 'ttft',
  },
  {
    key: 'itl_p50',
    title: 'ITL p50',
    unit: 'ms',
    hint: 'Time between two tokens, the middle one',
    write: ms,
  },
  {
    key: 'itl_p99',
    title: 'ITL p99',
    unit: 'ms',
    hint: 'Time between two tokens, 99 of 100',
    write: ms,
    objective: 'itl',
  },
  { key: 'running', title: 'Running', unit: '', hint: 'Requests that are worked on', write: whole },
  { key: 'waiting', title: 'Waiting', unit: '', hint: 'Requests that wait for room', write: whole },
  {
    key: 'kv_usage',
    and: 'kv_usage_max',
    title: 'KV use /',
    unit: 'max',
    hint: 'Use of the KV cache: mean of the replicas, and the fullest',
    write: ratio,
  },
  {
    key: 'goodput_lower',
    title: 'Goodput',
    unit: 'bounds',
    hint: 'Share of requests inside all objectives: histograms tell only between which bounds it is',
    write: ratio,
  },
  {
    key: 'output_tokens_per_second',
    title: 'out',
    unit: 'tok/s',
    hint: 'Tokens written a second, all replicas',
    write: brief,
  },
  {
    key: 'tokens_per_joule',
    title: 'tok',
    unit: '/ J',
    hint: 'Output tokens for a joule of the GPU boards',
    write: brief,
  },
  {
    key: 'usd_per_mtok',
    title: '$',
    unit: '/ Mtok',
    hint: 'Dollars for a million output tokens, idle time included: what the bill says',
    strong: true,
    write: formatUsd,
  },
  {
    key: 'usd_per_mtok_busy',
    title: 'busy',
    unit: 'only',
    hint: 'What they would cost were no card ever idle',
    write: formatUsd,
  },
];

/** What a model is called. */
export const modelName = (model: string, limit = 48) =>
  model === '' ? 'no model name' : shown(model, limit);

/** What a replica is called. */
export const replicaName = ({ instance, dp_rank }: Pick<Replica, 'instance' | 'dp_rank'>, ranks: boolean) =>
  `${instance}${ranks && dp_rank ? ` · rank ${dp_rank}` : ''}`;

/** How much a model asks for attention. */
export type Need = 'crit' | 'warn' | 'ok' | 'info';

const HELD = ['kv_full', 'queueing', 'memory_bound'];

/** From what is down and what holds it back. */
export function needOf(model: Model): Need {
  const { up, total } = model.targets;
  if (total > 0 && up === 0) return 'crit';
  if (up < total || HELD.includes(model.verdict?.kind ?? '')) return 'warn';
  return model.verdict === null ? 'info' : 'ok';
}

/** Behind every name. */
const LAST = '\uffff';
const RANK: Need[] = ['crit', 'warn', 'info', 'ok'];

/** The one that needs a look first; of equals by name. */
export function ordered(models: Model[]): Model[] {
  const rank = (model: Model) => RANK.indexOf(needOf(model));
  const name = ({ model }: Model) => model || LAST;
  return models.toSorted((a, b) => rank(a) - rank(b) || (name(a) < name(b) ? -1 : 1));
}

/** A column that the table may be sorted by, and which way; the usual order is that of need. */
export interface Order {
  key: string;
  descending: boolean;
}

/** Reads the order of the address: a figure, `up`, `gpus` or `model`, with `-` from the greatest. */
export function parseOrder(text: string): Order | null {
  const key = text.replace(/^-/, '');
  const known = ['model', 'gpus', 'up', ...COLUMNS.map((c) => c.key)].includes(key);
  return known ? { key, descending: text.startsWith('-') } : null;
}

/** The order after a click: greatest first, least first, and the usual one again. */
export function nextOrder(now: Order | null, key: string): string | null {
  const first = key !== 'model';
  if (now?.key !== key) return first ? `-${key}` : key;
  return now.descending === first ? (first ? key : `-${key}`) : null;
}

/** Models by a column; those without a value come last, whichever way. */
export function sorted(models: Model[], order: Order | null): Model[] {
  const usual = ordered(models);
  if (!order) return usual;
  const { key, descending } = order;
  const sign = descending ? -1 : 1;
  if (key === 'model') return usual.toSorted((a, b) => sign * (a.model < b.model ? -1 : 1));
  const value = (m: Model) => {
    if (key === 'up') return m.targets.up;
    return key === 'gpus' ? (m.gpus ?? Number.NaN) : numberOf(m.values[key]?.value);
  };
  return usual.toSorted((a, b) => {
    const [left, right] = [value(a), value(b)];
    if (Number.isNaN(left) || Number.isNaN(right))
      return Number(Number.isNaN(left)) - Number(Number.isNaN(right));
    return sign * (left - right);
  });
}

const KINDS: Record<string, string> = {
  memory_bound: 'memory-bound',
  compute_bound: 'compute-bound',
  kv_full: 'KV cache full',
  queueing: 'queueing',
  idle: 'idle',
};

const LATENCIES = ['ttft_p50', 'itl_p50', 'e2e_p50'];

/** Whether no latency is known since the engine tells none. */
export function withoutHistograms(values: Figures): boolean {
  return LATENCIES.every((key) => (values[key]?.reason ?? '').includes(' sent no '));
}

/** What one has to know of a model, in a few words. */
export function toKnow(model: Model): string {
  const { up, total } = model.targets;
  const words = [
    total - up > 0 ? `${total - up} ${total - up === 1 ? 'replica' : 'replicas'} down` : '',
    KINDS[model.verdict?.kind ?? ''] ?? '',
    up > 0 && withoutHistograms(model.values) ? 'no histograms' : '',
  ].filter(Boolean);
  return words.join(' · ');
}

/** Whether a figure is worse than its objective; `false` where either is not known. */
export function misses(model: Model, { key, objective }: Column): boolean {
  const wanted = objective ? model.objectives?.[objective] : null;
  return wanted !== null && wanted !== undefined && numberOf(model.values[key]?.value) > wanted;
}

/** Goodput between its bounds, against what is wanted. */
export interface Bounds {
  low: number;
  high: number;
  target: number | null;
  /** `crit` where even the upper bound misses the target, `warn` where only the lower one does. */
  tone: 'crit' | 'warn' | '';
}

/** Reads them; `null` where they are not known. */
export function goodputOf(model: Model): Bounds | null {
  const low = numberOf(model.values.goodput_lower?.value);
  const high = numberOf(model.values.goodput_upper?.value);
  if (Number.isNaN(low) || Number.isNaN(high)) return null;
  const target = model.objectives?.goodput ?? null;
  const tone = target === null || low >= target ? '' : high < target ? 'crit' : 'warn';
  return { low, high, target, tone };
}

/** Objectives in a line: `TTFT 2 s · TPOT 60 ms · ITL 200 ms · goodput 0.95`; empty where none are set. */
export function objectivesText(objectives: Objectives | null | undefined): string {
  if (!objectives) return '';
  const { ttft, tpot, itl, goodput } = objectives;
  const seconds = (name: string, value: number | null | undefined) =>
    value === null || value === undefined
      ? ''
      : `${name} ${value >= 1 ? `${brief(value)} s` : `${brief(value * 1000)} ms`}`;
  return [
    seconds('TTFT', ttft),
    seconds('TPOT', tpot),
    seconds('ITL', itl),
    goodput === null || goodput === undefined ? '' : `goodput ${goodput.toFixed(2)}`,
  ]
    .filter(Boolean)
    .join(' · ');
}

/** The claim that a verdict makes, before its evidence. */
export function claimOf(model: Model): string {
  const name = model.model === '' ? 'The model without a name' : modelName(model.model);
  switch (model.verdict?.kind) {
    case 'memory_bound':
      return `${name} is memory-bound, whatever “busy” says.`;
    case 'compute_bound':
      return `${name} is compute-bound.`;
    case 'kv_full':
      return `${name} has its KV cache full.`;
    case 'queueing':
      return `${name} has requests waiting.`;
    case 'idle':
      return `${name} is idle.`;
    case undefined:
      return `${name} tells nothing now.`;
    default:
      return `${name} has no known limit.`;
  }
}

/** A figure as text; `null` where it is not known. */
export function figureText(figure: Figure | undefined, write: (value: number) => string): string | null {
  const value = numberOf(figure?.value);
  return Number.isNaN(value) ? null : write(value);
}

const NUMBERS: Record<string, string> = {
  busy: 'GPU busy',
  tensor: 'tensor active',
  dram: 'DRAM active',
  power_ratio: 'power ÷ limit',
  kv_usage_max: 'KV use, fullest',
  running: 'running',
  running_max: 'running, most',
  waiting: 'waiting',
  preemptions_per_second: 'preemptions',
};

/** What a number of a verdict is called. */
export const numberName = (name: string) => NUMBERS[name] ?? shown(name, 32);

const RATIOS = ['busy', 'tensor', 'dram', 'power_ratio', 'kv_usage_max'];

/** A number of a verdict. */
export function numberText(name: string, value: number | null, unit: string): string {
  if (value === null) return '— unknown';
  if (RATIOS.includes(name)) return formatValue(Number((value * 100).toPrecision(3)), '%');
  return formatValue(Number(value.toPrecision(4)), unit);
}
