/** Sentences of the Training tab. */
import { formatCount, THIN } from '../lib/number';
import { formatFull, formatSpan, type Zone } from '../lib/time';
import type { Breakdown, NotFinite, TrainingAnswer } from './answers';
import { instrumentOf } from './panels';
import type { Part, Stack } from './parts';

/** Three digits, which are enough for a share or a mean. */
export const rounded = (value: number, unit: string) => `${Number(value.toPrecision(3))}${THIN}${unit}`;

/** A share as people read it. */
export function percent(share: number): string {
  return Number.isFinite(share) ? rounded(share * 100, '%') : '—';
}

/** How many values were not finite, by kind. */
export function notFiniteText(found: NotFinite): string {
  const kinds: [number, string][] = [
    [found.nan, 'NaN'],
    [found.positive_infinite, '+Inf'],
    [found.negative_infinite, '−Inf'],
  ];
  return kinds.flatMap(([n, kind]) => (n > 0 ? [`${formatCount(n)} ${kind}`] : [])).join(', ');
}

const times = (n: number) => (n === 1 ? 'once' : `${formatCount(n)} times`);

/** The step at a time, where steps and times are joined. */
export type StepOf = (time: number) => number | null;

/** Where it was last. */
function placeOf(found: NotFinite, zone: Zone, stepOf: StepOf): string {
  const step = found.last_step ?? (found.last_time === null ? null : stepOf(found.last_time));
  if (step !== null) return `at step ${formatCount(step)}`;
  return found.last_time === null ? '' : `at ${formatFull(found.last_time, zone)}`;
}

const total = (found: NotFinite | undefined) =>
  found ? found.nan + found.positive_infinite + found.negative_infinite : 0;

/** Whether the training is healthy, as far as what it sends can tell; empty where it sends no loss. */
export function healthText(
  training: TrainingAnswer,
  zone: Zone,
  stepOf: StepOf,
): { claim: string; bad: boolean } {
  const loss = training.non_finite.loss;
  const skipped = training.skipped.total ?? 0;
  const skips = `${formatCount(skipped)} ${skipped === 1 ? 'iteration was' : 'iterations were'} skipped`;
  const bad = total(loss);
  if (bad > 0) {
    const also = skipped > 0 ? `; ${skips}` : '';
    // Every rank that exports tells of the same loss.
    const ranks = training.export.ranks.length;
    const often = ranks > 1 ? `in ${formatCount(bad)} values of ${formatCount(ranks)} ranks` : times(bad);
    return {
      claim: `The loss was not finite ${often}, last ${placeOf(loss, zone, stepOf)}${also}.`,
      bad: true,
    };
  }
  const norm = total(training.non_finite.grad_norm);
  if (norm > 0) return { claim: `The gradient norm was not finite ${times(norm)}; ${skips}.`, bad: true };
  if (skipped > 0) return { claim: `${skips}; every loss that came is finite.`, bad: true };
  if (!instrumentOf(training, 'loss')?.present) return { claim: '', bad: false };
  return { claim: 'Every loss that came is finite, no iteration was skipped.', bad: false };
}

/** What a step's time goes to: the two largest parts, and what no span tells. */
export function stepText({ parts, wallSeconds, iterations }: Stack): string {
  if (!(wallSeconds > 0)) return '';
  const told = parts.filter((p) => p.token !== null && p.whole > 0).sort((a, b) => b.whole - a.whole);
  const rest = parts[parts.length - 1];
  const words = told.slice(0, 2).map((p) => `${percent(p.whole)} ${p.text}`);
  if (rest.whole > 0.0005) words.push(`${percent(rest.whole)} unattributed`);
  const mean = iterations > 0 ? ` A step takes ${rounded(wallSeconds / iterations, 's')} on average.` : '';
  return `Of a step's time: ${words.join('; ')}.${mean}`;
}

/** What the parts sum up to. */
export function sumText(breakdown: Breakdown): string {
  const off = breakdown.sum_error_ratio;
  const within = Number.isFinite(off) ? `${Math.max(0.01, Math.ceil(off * 1e4) / 100)}${THIN}%` : '—';
  return `The parts sum to the wall time of each iteration within ${within}.`;
}

/** Whose iterations these are. */
export function whoseText(breakdown: Breakdown): string {
  const { rank, ranks, iterations } = breakdown;
  const whose =
    rank !== null
      ? `rank ${rank}`
      : ranks.length > 1
        ? `mean of ${formatCount(ranks.length)} ranks`
        : ranks.length === 1
          ? `rank ${ranks[0]}`
          : '';
  const count = `${formatCount(iterations)} ${iterations === 1 ? 'iteration' : 'iterations'}`;
  return [count, whose].filter(Boolean).join(', ');
}

/** Productive share of the wall time. */
export function goodputText(breakdown: Breakdown): string {
  const { goodput } = breakdown;
  if (!goodput) return '';
  const productive = `Productive: ${percent(goodput.ratio)} of ${formatSpan(goodput.wall_seconds)}`;
  const rest = Object.entries(goodput.phases)
    .filter(([phase, seconds]) => phase !== 'productive' && seconds > 0)
    .sort((a, b) => b[1] - a[1])
    .slice(0, 3)
    .map(([phase, seconds]) => `${phase.replace(/_/g, ' ')} ${formatSpan(seconds)}`);
  return `${productive}${rest.length > 0 ? ` (${rest.join(', ')})` : ''}.`;
}

/** A part in the legend: its share at the cursor, or of all. */
export function partText(part: Part, column: number): string {
  if (part.absent) return '—';
  return column >= 0 ? percent(part.share[column]) : percent(part.whole);
}
