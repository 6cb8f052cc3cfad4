/** What the metrics of runs came to, as the server reckons it from every point. */
import { askJson } from '../lib/api';
import { formatCount, formatValue } from '../lib/number';

/** A number as JSON has it: NaN and infinities are words. */
type Value = number | 'NaN' | '+Inf' | '-Inf';

/** One metric in one run. */
export interface Reading {
  last: Value;
  last_step: number | null;
  min: number | null;
  min_step: number | null;
  max: number | null;
  max_step: number | null;
}

/** One metric in all runs that are compared, in their order. */
export interface Outcome {
  name: string;
  display: string;
  unit: string;
  /** Which of the two is better, as far as the name tells. */
  best: 'min' | 'max' | null;
  runs: (Reading | null)[];
}

/** Rows of the table of outcomes. */
const OUTCOMES = 8;

/** Asks for the metrics that most tell runs apart: those that two of them have, or the wanted ones. */
export async function askOutcomes(ids: string[], only: string[], signal: AbortSignal): Promise<Outcome[]> {
  const query = new URLSearchParams({ limit: `${OUTCOMES}` });
  for (const id of ids) query.append('run_id', id);
  for (const name of only.slice(0, OUTCOMES)) query.append('metric', name);
  return (await askJson<{ metrics: Outcome[] }>(`compare?${query}`, { signal })).metrics;
}

/** A latest value as a number. */
export function lastOf(reading: Reading): number {
  const words = { NaN: Number.NaN, '+Inf': Number.POSITIVE_INFINITY, '-Inf': Number.NEGATIVE_INFINITY };
  return typeof reading.last === 'number' ? reading.last : words[reading.last];
}

/** How far a value is from that of the base: in percent of it, or as it is where the base is zero. */
export function distance(value: number, base: number, unit: string): string {
  if (!Number.isFinite(value) || !Number.isFinite(base)) return '';
  const sign = value > base ? '+' : '';
  if (value === base) return '±0';
  if (base === 0) return sign + formatValue(value, unit);
  return `${sign}${formatValue((100 * (value - base)) / Math.abs(base), '%')}`;
}

/** The best point, or where the name does not tell which is better the lowest and the highest, with steps. */
export function extremesOf(outcome: Outcome, reading: Reading): string {
  const at = (value: number | null, step: number | null) => {
    const shown = formatValue(value, outcome.unit);
    return step === null || value === null ? shown : `${shown} @ ${formatCount(step)}`;
  };
  if (outcome.best === 'min') return `best ${at(reading.min, reading.min_step)}`;
  if (outcome.best === 'max') return `best ${at(reading.max, reading.max_step)}`;
  return `${at(reading.min, reading.min_step)} – ${at(reading.max, reading.max_step)}`;
}
