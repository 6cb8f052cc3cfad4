/** A run's ranks: which one holds the others up, and by how much? */
import type { TabProps } from '../components/later';

/** The tab. */
export function RanksTab({ board }: TabProps) {
  return <p class="nothing">{board.metrics.value === null ? '' : 'Nothing is logged per rank.'}</p>;
}
