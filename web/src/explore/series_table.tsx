/** The series of all queries as a table. */
import { useState } from 'preact/hooks';
import { Name } from '../components/name';
import { zone } from '../lib/clock';
import { slotDash, slotProperty } from '../lib/colour';
import { fileName, save } from '../lib/download';
import { formatCount, formatValue } from '../lib/number';
import { labelText } from '../lib/text';
import { formatFull, formatSecond } from '../lib/time';
import { Absent } from './absent';
import type { Series } from './answer';
import { DRAWN_MAX, type Drawn, type Explore, letterOf } from './model';
import { csvOf } from './table_file';
import { unitOf } from './unit';

const ROWS = 100;
const LABELS_MAX = 8;

interface Row {
  letter: string;
  series: Series;
  unit: string;
  /** Whether it is drawn: the first ones are. */
  drawn: boolean;
  answer: Drawn;
}

/** The table, 100 rows at a time. */
export function SeriesTable({ explore }: { explore: Explore }) {
  const [more, setMore] = useState(ROWS);
  const rows: Row[] = explore.asked.value.flatMap(({ answer, query }, at) => {
    const drawn = answer.value;
    if (!drawn) return [];
    const unit = unitOf(query, explore.known.value);
    const row = (series: Series, place: number): Row => ({
      letter: letterOf(at),
      series,
      unit,
      drawn: place < DRAWN_MAX,
      answer: drawn,
    });
    return drawn.order.map(row);
  });
  if (rows.length === 0) return null;
  const several = explore.asked.value.length > 1;
  const { telling, same } = columnsOf(rows);
  const end = rows[0].answer.range.to;
  const saveAs = (type: string, text: string) =>
    save(new Blob([text], { type }), `${fileName('explore')}.${type.split('/')[1]}`);
  const answers = explore.asked.value.flatMap(({ query, answer }) =>
    answer.value ? [{ query, answer: answer.value }] : [],
  );
  return (
    <section class="panel series-table" aria-label="Series">
      <h2>
        Series <span class="quiet">at {formatSecond(end, zone.value)}, highest last value first</span>
        {same.length > 0 && (
          <span class="quiet same" title={same.map(([k, v]) => labelText({ [k]: v })).join(', ')}>
            all:{' '}
            {same.slice(0, 4).map(([k, v]) => (
              <Name key={k} text={`${k === '__name__' ? 'metric' : k}=${v}`} limit={32} />
            ))}
          </span>
        )}
        <span class="right">
          <button type="button" class="link" onClick={() => saveAs('text/csv', csvOf(answers))}>
            CSV
          </button>
          <button
            type="button"
            class="link"
            onClick={() => saveAs('application/json', JSON.stringify(answers.map(plain), null, 1))}
          >
            JSON
          </button>
        </span>
      </h2>
      <div class="scroll" role="region" aria-label="Table of series" tabIndex={0}>
        <table>
          <thead>
            <tr>
              <th scope="col">
                <span class="unseen">line</span>
              </th>
              {several && <th scope="col">query</th>}
              {telling.map((label) => (
                <th scope="col" key={label}>
                  <Name text={label === '__name__' ? 'metric' : label} limit={24} />
                </th>
              ))}
              {['last', 'min', 'max', 'mean', 'coverage'].map((word) => (
                <th scope="col" class="number" key={word}>
                  {word}
                </th>
              ))}
              <th scope="col">note</th>
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, more).map((row) => (
              <SeriesRow
                key={`${row.letter} ${JSON.stringify(row.series.labels)}`}
                row={row}
                several={several}
                telling={telling}
                slot={row.drawn ? explore.slot(row.series.labels) : null}
              />
            ))}
          </tbody>
        </table>
      </div>
      {(rows.length > more || rows.some((r) => r.answer.total !== r.answer.series.length)) && (
        <p class="quiet">
          {formatCount(Math.min(more, rows.length))} of {formatCount(totalOf(explore))} series.{' '}
          {rows.length > more && (
            <button type="button" class="link" onClick={() => setMore(more + ROWS)}>
              {ROWS} more
            </button>
          )}
          {rows.length <= more && 'The server sends so many: narrow the selector, or rank with topk.'}
        </p>
      )}
    </section>
  );
}

function SeriesRow(props: { row: Row; several: boolean; telling: string[]; slot: number | null }) {
  const { series, unit, answer, letter } = props.row;
  const steps = answer.x.length;
  const ended = series.present[steps - 1] === 0;
  const coverage = steps > 0 ? series.samples / steps : 0;
  const lastAt = answer.x[series.present.lastIndexOf(1)];
  return (
    <tr title={labelText(series.labels)}>
      <td>
        {props.slot !== null && (
          <svg class="swatch" width="18" height="8" aria-hidden="true">
            <path
              d="M0 4h18"
              style={{ stroke: `var(${slotProperty(props.slot)})` }}
              stroke-dasharray={slotDash(props.slot).join(' ')}
            />
          </svg>
        )}
      </td>
      {props.several && <td>{letter}</td>}
      {props.telling.map((label) => (
        <td key={label}>
          {series.labels[label] === undefined ? (
            <span class="quiet">—</span>
          ) : (
            <Name text={series.labels[label]} />
          )}
        </td>
      ))}
      <td class="number strong">{ended ? <Absent /> : formatValue(series.last, unit)}</td>
      {[series.min, series.max, series.mean].map((value, at) => (
        // The columns never change places.
        <td class="number" key={['min', 'max', 'mean'][at]}>
          {formatValue(value, unit)}
        </td>
      ))}
      <td class="number">{coverage.toFixed(2)}</td>
      <td>
        {ended && (
          <span class="quiet" title={formatFull(lastAt, zone.value)}>
            ended {formatSecond(lastAt, zone.value)}, last {formatValue(series.last, unit)}
          </span>
        )}
      </td>
    </tr>
  );
}

/** Labels that differ between rows as columns; those that all have alike, apart. */
function columnsOf(rows: Row[]): { telling: string[]; same: [string, string][] } {
  const telling = [...new Set(rows.flatMap((r) => r.answer.telling))];
  const across = [...new Set(rows.flatMap((r) => Object.keys(r.series.labels)))];
  const differs = (key: string) => new Set(rows.map((r) => r.series.labels[key])).size > 1;
  const columns = across.filter((k) => telling.includes(k) || differs(k)).sort();
  const same = across
    .filter((k) => !columns.includes(k))
    .map((k): [string, string] => [k, rows[0].series.labels[k]]);
  return { telling: columns.slice(0, LABELS_MAX), same };
}

function totalOf(explore: Explore): number {
  return explore.asked.value.reduce(
    (sum, { answer }) => sum + (answer.value?.total ?? answer.value?.series.length ?? 0),
    0,
  );
}

function plain({ query, answer }: { query: string; answer: Drawn }) {
  return {
    query,
    from_ms: answer.range.from,
    to_ms: answer.range.to,
    step_ms: answer.step,
    series: answer.series.map(({ labels, values, present }) => ({
      labels,
      values: Array.from(values, (v, at) =>
        present[at] === 0 ? null : Number.isFinite(v) ? v : formatValue(v),
      ),
    })),
  };
}
