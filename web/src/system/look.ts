/** How the System tab is looked at: read from the address, written to it. */
import { computed } from '@preact/signals';
import * as view from '../charts/view';
import { param, setParams } from '../lib/address';
import type { Axis } from '../lib/points';

/** Which cards: the run's own, or all of its nodes. */
export type Scope = 'owned' | 'nodes';

/** How many series are drawn. */
export type Show = 'spread' | 'lines' | 'map';

/** With more series than this, their spread is drawn unless the address says otherwise. */
export const LINES_USUAL = 8;

export const scope = computed<Scope>(() => (param('scope') === 'nodes' ? 'nodes' : 'owned'));

const SHOWS: Show[] = ['spread', 'lines', 'map'];

/** What the address says; `null` for what suits the number of series. */
export const show = computed<Show | null>(() => SHOWS.find((one) => one === param('show')) ?? null);

/** How a lane of so many series is drawn. */
export const showOf = (series: number): Show => show.value ?? (series > LINES_USUAL ? 'spread' : 'lines');

/** What the ticks of the x axis say. Samples have no training steps: theirs are those of the same time. */
export const ticks = computed<Axis>(() => (param('axis') === '' ? 'time' : view.pageAxis.value));

/** What lanes are drawn over. */
export const laneAxis = computed<Axis>(() => (view.pageAxis.value === 'relative' ? 'relative' : 'time'));

/** Chooses what the ticks say. */
export function setTicks(axis: Axis): void {
  if (axis === ticks.value) return;
  const none = { from: null, to: null, tfrom: null, tto: null };
  const now = param('axis');
  // Steps are but other tick labels of the same time axis: the zoom stays.
  if (axis === 'step') setParams({ ...(now === '' ? {} : none), axis });
  else if (axis === 'time') setParams({ ...(now === 'step' ? {} : none), axis: null });
  else setParams({ ...none, axis });
}

const list = (name: string) => param(name).split(',').filter(Boolean);

/** Lanes in their order; empty for the usual ones. */
export const lanes = computed(() => list('lanes'));

/** Keys of the selected cards; empty when none was chosen. */
export const cells = computed(() => list('cell'));

/** The lane that cells are coloured by; empty for the first one. */
export const colour = computed(() => param('colour'));

/** Writes a list. */
export const setList = (name: 'lanes' | 'cell', values: string[]) =>
  setParams({ [name]: values.length > 0 ? values.join(',') : null });
