/** A chart as a table: the text alternative with every bucket. */
import { entriesOf, entryText } from '../charts/legend';
import type { Shape } from '../charts/shape';
import { placeText } from '../charts/summary';
import { zone } from '../lib/clock';
import { formatCount, formatValue } from '../lib/number';
import type { Axis } from '../lib/points';
import { Dialog } from './dialog';

const ROWS_MAX = 2000;

/** What a table shows. */
export interface Tabled {
  title: string;
  unit: string;
  axis: Axis;
  shape: Shape;
}

/** Shows what is drawn, row by row. */
export function PointTable({ of: chart, close }: { of: Tabled; close: () => void }) {
  const { title, shape, axis } = chart;
  const lines = entriesOf(shape).flatMap((entry) =>
    entry.lines.map((line) => ({
      line,
      text:
        [
          entryText(entry),
          shape.attempts.length > 1 ? `attempt ${line.attempt}${line.ghost ? ', not kept' : ''}` : '',
        ]
          .filter(Boolean)
          .join(', ') || 'last',
    })),
  );
  return (
    <Dialog title={`${title} as a table`} class="point-table" close={close}>
      <div class="scroll" tabIndex={0} role="region" aria-label="Values">
        <table>
          <thead>
            <tr>
              <th scope="col">{axis}</th>
              {lines.map(({ text }) => (
                <th scope="col" key={text}>
                  {text}
                </th>
              ))}
              <th scope="col">min – max</th>
              <th scope="col">points</th>
            </tr>
          </thead>
          <tbody>
            {Array.from(shape.x.subarray(0, ROWS_MAX), (x, at) => (
              <tr key={x}>
                <th scope="row">{axis === 'step' ? formatCount(x) : placeText(axis, x, zone.value)}</th>
                {lines.map(({ line, text }) => (
                  <td key={text}>{line.count[at] > 0 ? formatValue(line.raw[at], chart.unit) : '—'}</td>
                ))}
                <td>
                  {formatValue(least(lines.map((l) => l.line.min[at])), chart.unit)} –{' '}
                  {formatValue(-least(lines.map((l) => -l.line.max[at])), chart.unit)}
                </td>
                <td>{formatCount(lines.reduce((sum, l) => sum + l.line.count[at], 0))}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Dialog>
  );
}

const least = (values: number[]) =>
  values.reduce((low, v) => (Number.isNaN(v) || v > low ? low : v), Infinity);
