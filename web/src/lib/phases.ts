/** What the time of a step goes to: one word and one colour for each, wherever it is shown. */

/** A phase as the server names it, in words, and the custom property of its colour. */
export interface Phase {
  key: string;
  text: string;
  token: string;
}

/** Every phase, in the order of a legend; the last is for spans that no phase is known of. */
export const PHASES: readonly Phase[] = [
  { key: 'forward_backward', text: 'forward, backward', token: '--series-1' },
  { key: 'optimizer', text: 'optimizer', token: '--series-3' },
  { key: 'communication', text: 'communication', token: '--series-2' },
  { key: 'data_loading', text: 'data loading', token: '--series-4' },
  { key: 'checkpoint', text: 'checkpoint', token: '--series-5' },
  { key: 'evaluation', text: 'evaluation', token: '--series-6' },
  { key: 'startup', text: 'startup', token: '--series-7' },
  { key: 'housekeeping', text: 'housekeeping', token: '--series-10' },
  { key: 'iteration', text: 'iteration', token: '--peer' },
  { key: 'other', text: 'other', token: '--series-8' },
];

/** The phase of spans that no phase is known of. */
export const OTHER = PHASES.length - 1;

/** The place of a phase among all of them. */
export function phaseAt(key: string | null): number {
  const at = PHASES.findIndex((p) => p.key === key);
  return at < 0 ? OTHER : at;
}
