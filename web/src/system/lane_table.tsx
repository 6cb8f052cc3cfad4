/** A lane as a table: the text alternative with every bucket. */
import { useSignal } from '@preact/signals';
import { placeText } from '../charts/summary';
import { Dialog } from '../components/dialog';
import { zone } from '../lib/clock';
import { shown } from '../lib/text';
import type { SystemBoard } from './board';
import { laneValue, useDrawn } from './lane';
import * as look from './look';
import type { LaneSpec } from './specs';

const ROWS_MAX = 2000;

/** Shows what is drawn, row by row. */
export function LaneTable(props: { system: SystemBoard; lane: LaneSpec; close: () => void }) {
  const { system, lane, close } = props;
  const drawn = useDrawn(system, lane, useSignal(true)).value;
  if (!drawn) return null;
  const unit = lane.rate ? '' : (system.chart(lane)?.unit ?? '');
  const { x, lines } = drawn.shape;
  const spread = drawn.peers !== null;
  const axis = look.laneAxis.value;
  return (
    <Dialog title={`${lane.title} as a table`} class="point-table" close={close}>
      <div class="scroll" tabIndex={0} role="region" aria-label="Values">
        <table>
          <thead>
            <tr>
              <th scope="col">{axis}</th>
              {lines.map((line) => (
                <th scope="col" key={line.key}>
                  {shown(line.key, 28) || 'value'}
                </th>
              ))}
              {spread && <th scope="col">{drawn.peers?.band ?? 'spread'}</th>}
            </tr>
          </thead>
          <tbody>
            {Array.from(x.subarray(0, ROWS_MAX), (place, at) => (
              <tr key={place}>
                <th scope="row">{placeText(axis, place, zone.value)}</th>
                {lines.map((line) => (
                  <td key={line.key}>{line.count[at] > 0 ? laneValue(lane, line.raw[at], unit) : '—'}</td>
                ))}
                {spread && (
                  <td>
                    {lines
                      .filter((l) => l.key === 'median' && l.count[at] > 0)
                      .map((l) => `${laneValue(lane, l.min[at], '')} – ${laneValue(lane, l.max[at], unit)}`)}
                  </td>
                )}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Dialog>
  );
}
