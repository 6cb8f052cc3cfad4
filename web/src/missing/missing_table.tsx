/** Reasons, one a row, with what is missing for each. */
import { useState } from 'preact/hooks';
import { Name } from '../components/name';
import { Sentence } from '../components/sentence';
import { now, zone } from '../lib/clock';
import { copy } from '../lib/download';
import type { MissingMetric, MissingPlace, MissingRow } from '../lib/missing';
import { formatCount } from '../lib/number';
import { formatFull, formatSpan, formatWhen } from '../lib/time';
import { byHost, countText } from './places';

/** Hosts and series of one reason that are written out at first, and at most. */
const SHORT = 4;
const LONG = 500;

/** A list that is cut until somebody wants all of it. */
function Cut<T>({ all, what, each }: { all: T[]; what: string; each: (one: T) => preact.ComponentChildren }) {
  const [whole, setWhole] = useState(false);
  const shown = all.slice(0, whole ? LONG : all.length === SHORT + 1 ? SHORT + 1 : SHORT);
  return (
    <ul>
      {shown.map(each)}
      {!whole && all.length > shown.length && (
        <li>
          <button type="button" class="link" aria-expanded="false" onClick={() => setWhole(true)}>
            {formatCount(all.length - shown.length)} more {what}
          </button>
        </li>
      )}
      {whole && all.length > LONG && <li class="quiet">and {formatCount(all.length - LONG)} more</li>}
    </ul>
  );
}

function Series({ metrics }: { metrics: MissingMetric[] }) {
  return (
    <Cut
      all={metrics}
      what="series"
      each={(m) => (
        <li key={m.display}>
          <Name text={m.display} class="series" /> {m.unit && <span class="quiet">{m.unit}</span>}
        </li>
      )}
    />
  );
}

function Where({ places }: { places: MissingPlace[] }) {
  const hosts = byHost(places);
  const count = countText(places);
  if (hosts.length === 0) return <span class="quiet">the whole run</span>;
  return (
    <>
      {count && <p class="quiet">{count}</p>}
      <Cut
        all={hosts}
        what="hosts"
        each={({ host, what }) => (
          <li key={host}>
            {host ? <Name text={host} limit={32} /> : !what && 'the whole run'}
            {host && what && ' · '}
            {what}
          </li>
        )}
      />
    </>
  );
}

function Since({ since }: { since: number | null }) {
  if (since === null) return <span class="quiet">—</span>;
  return (
    <span title={formatFull(since, zone.value)}>
      {formatWhen(since, now.value, zone.value)}{' '}
      <span class="quiet">{formatSpan(Math.max(0, (now.value - since) / 1000))}</span>
    </span>
  );
}

function Todo({ row }: { row: MissingRow }) {
  return (
    <>
      {row.hint && (
        <p>
          <Sentence text={row.hint} />
        </p>
      )}
      {row.command && (
        <p class="command">
          <code>
            <Name text={row.command} limit={200} />
          </code>
          <button type="button" class="link" onClick={() => copy(row.command ?? '', 'the command')}>
            Copy
          </button>
        </p>
      )}
      {!row.hint && !row.command && <span class="quiet">nothing</span>}
    </>
  );
}

/** The table. */
export function MissingTable({ label, rows }: { label: string; rows: MissingRow[] }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={label}>
      <table>
        <thead>
          <tr>
            {['Series', 'Where', 'Why', 'Since', 'What to do'].map((head) => (
              <th scope="col" key={head}>
                {head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={`${row.reason} ${row.text}`}>
              <th scope="row">
                <Series metrics={row.metrics} />
              </th>
              <td>
                <Where places={row.places} />
              </td>
              <td>
                <Sentence text={row.text} />
              </td>
              <td class="since">
                <Since since={row.since} />
              </td>
              <td>
                <Todo row={row} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
