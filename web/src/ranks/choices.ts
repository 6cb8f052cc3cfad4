/** Which series of a run can be held rank beside rank. */
import { type ChartInfo, rank as order } from '../charts/sections';
import { shown } from '../lib/text';
import type { Crew } from './crew';

/** Which value of a rank is worth a look: a high one, a low one, or either. */
export type Worse = 'high' | 'low' | 'either';

/** Something to compare ranks by. */
export interface Choice {
  /** Its word in the address. */
  id: string;
  text: string;
  title: string;
  chart: ChartInfo;
  /** Taken from the chart's values: what a rank waited is no work of its own. */
  minus: ChartInfo | null;
  worse: Worse;
  /** Series that belong to a rank. */
  series: number;
}

/** Names of what `tg.step` logs, as the client writes them. */
const STEP = 'train_step_seconds';
const WAIT = 'train_step_wait_seconds';
const PHASE = /^train_step_(\w+)_seconds$/;

const HIGHER_IS_WORSE = /_seconds$|(^|[_/])(time|latency|duration|loss)([_/]|$)/;
const LOWER_IS_WORSE = /clock|throughput|per_second|tokens|(^|[_/])(mfu|flops?|tflops?)([_/]|$)/;

/** Which side of the median is the worse one, by what a name says; either, when it says nothing. */
export function worseOf(name: string): Worse {
  const low = name.toLowerCase();
  // Who waits least is who the others wait for.
  if (low === WAIT || LOWER_IS_WORSE.test(low)) return 'low';
  return HIGHER_IS_WORSE.test(low) ? 'high' : 'either';
}

const natural = new Intl.Collator('en', { numeric: true });

/** Choices, the steps' own times first, then as charts are ordered. */
export function choicesOf(charts: ChartInfo[], crew: Crew): Choice[] {
  const ranked = charts.flatMap((chart): Choice[] => {
    const series = chart.series.filter((s) => crew.rankOf(s.labels) !== null).length;
    if (series === 0) return [];
    const phase = PHASE.exec(chart.name)?.[1];
    return [
      {
        id: chart.name,
        text: phase ?? (chart.name === STEP ? 'whole step' : shown(chart.name, 24)),
        title: chart.help || shown(chart.name),
        chart,
        minus: null,
        worse: worseOf(chart.name),
        series,
      },
    ];
  });
  const wait = ranked.find((c) => c.id === WAIT)?.chart ?? null;
  const step = ranked.find((c) => c.id === STEP);
  const own: Choice[] =
    step && wait
      ? [{ ...step, id: 'own', text: 'own step', title: 'Step time without what was waited', minus: wait }]
      : [];
  const place = ({ id }: Choice) => [STEP, WAIT].indexOf(id) + 1 || (PHASE.test(id) ? 3 : 4);
  ranked.sort((a, b) => place(a) - place(b) || order(a.id) - order(b.id) || natural.compare(a.id, b.id));
  return [...own, ...ranked];
}

/** Choices that have a button at most, and letters on all of them. */
const BUTTONS_MAX = 5;
const LETTERS_MAX = 50;

/** The first choices, as many as fit into a row of buttons; one at least. */
export function buttonsOf(choices: Choice[]): Choice[] {
  let letters = 0;
  const end = choices.findIndex((choice, at) => {
    letters += choice.text.length;
    return at > 0 && (at >= BUTTONS_MAX || letters > LETTERS_MAX);
  });
  return end < 0 ? choices : choices.slice(0, end);
}

/** The choice that the address names, else the first. */
export function chosen(choices: Choice[], id: string): Choice | null {
  return choices.find((c) => c.id === id) ?? choices[0] ?? null;
}
