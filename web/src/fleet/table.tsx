/** The map as a table: the same cards in words. */
import { Link } from '../components/link';
import { Name } from '../components/name';
import { formatCount } from '../lib/number';
import { gpuPath } from '../lib/route';
import { shown } from '../lib/text';
import type { Fleet } from './model';
import { gpuKey, ownerText } from './names';
import { valueText } from './signals';
import { absence, peersText } from './words';

/** Rows at most: the filter finds the others, the export has all. */
const ROWS_MAX = 500;

/** The table, in the order of the map. */
export function CardTable({ fleet }: { fleet: Fleet }) {
  const cards = fleet.layout.value.rows.flatMap((row) => row.cells.filter((g) => g !== null));
  const unit = fleet.info.value?.unit ?? '';
  const title = fleet.info.value?.title ?? fleet.drawn.value.text;
  return (
    <div class="field" tabIndex={0} role="region" aria-label="Table of cards">
      <table>
        <thead>
          <tr>
            <th scope="col">Host</th>
            <th scope="col">GPU</th>
            <th scope="col">State</th>
            <th scope="col" class="number">
              {title}
            </th>
            <th scope="col">Peers</th>
            <th scope="col">Xids</th>
            <th scope="col">Owner</th>
          </tr>
        </thead>
        <tbody>
          {cards.slice(0, ROWS_MAX).map((gpu) => (
            <tr key={gpuKey(gpu)}>
              <td>
                <Name text={gpu.host} limit={28} />
              </td>
              <th scope="row">
                <Link href={gpuPath(gpu.host, gpu.gpu, gpu.uuid)}>GPU {shown(gpu.gpu, 12)}</Link>
              </th>
              <td>{gpu.state}</td>
              <td class="number" title={gpu.value === null ? shown(absence(gpu), 200) : undefined}>
                {gpu.value === null ? <span class="absent">absent</span> : valueText(gpu.value, unit)}
              </td>
              <td>{peersText(gpu, unit)}</td>
              <td>{[...new Set(gpu.xids.filter((x) => !x.userspace).map((x) => x.xid))].join(', ')}</td>
              <td>{ownerText(gpu.owner)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {cards.length > ROWS_MAX && (
        <p class="quiet">
          The first {formatCount(ROWS_MAX)} of {formatCount(cards.length)}: a filter finds the others, the
          export has all.
        </p>
      )}
    </div>
  );
}
