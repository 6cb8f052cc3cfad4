/** Tables of the card's page: what was counted, its peers, what it does not support, and what happened. */
import { Link } from '../components/link';
import { Name } from '../components/name';
import { Sentence } from '../components/sentence';
import { now, zone } from '../lib/clock';
import { formatValue } from '../lib/number';
import { gpuPath } from '../lib/route';
import { shown, visible } from '../lib/text';
import { formatWhen } from '../lib/time';
import type { FleetEvent, Gpu } from './answers';
import type { Counter } from './card';
import { counted, gpuKey, gpuName, ownerText } from './names';
import { valueText } from './signals';
import { timeTitle } from './words';

/** Peers that are listed at most. */
const PEERS_MAX = 64;
const EVENTS_SHOWN = 60;

/** Sources whose text is the line as it was read; others speak in sentences. */
const FROM_A_LOG = /^(kernel|userspace|unknown)$/;

const natural = new Intl.Collator('en', { numeric: true });

/** Counters that say something is wrong when they are not zero. */
const WRONG = /ecc|remap|replay|error|retired|recovery/;

/** Words of a metric's name. */
const counterText = (name: string) =>
  name
    .replace(/^tg_gpu_/, '')
    .replace(/_total$/, '')
    .replaceAll('_', ' ');

function counterUnit(name: string): string {
  if (/_joules_total$/.test(name)) return 'J';
  if (/_seconds_total$/.test(name)) return 's';
  return /_bytes_total$/.test(name) ? 'B' : '';
}

/** What the driver counts. */
export function Counters({ counters }: { counters: Counter[] }) {
  const rows = counters.toSorted(
    (a, b) =>
      natural.compare(a.name, b.name) || natural.compare(JSON.stringify(a.labels), JSON.stringify(b.labels)),
  );
  return (
    <section class="panel" aria-label="Counters">
      <h2>
        Counters <span class="quiet">now, of the card itself</span>
      </h2>
      {rows.length === 0 ? (
        <p class="quiet">Absent: no source has sent a counter of this card lately.</p>
      ) : (
        <div class="scroll" tabIndex={0} role="region" aria-label="Table of counters">
          <table>
            <tbody>
              {rows.map(({ name, labels, value }) => {
                const words = Object.entries(labels)
                  .map(([key, label]) => (key === 'link' || key === 'gi' ? `${key} ${label}` : label))
                  .join(', ');
                const bad = value > 0 && WRONG.test(name) && !/(^|[ ,])correct/.test(words);
                return (
                  <tr key={`${name} ${words}`}>
                    <th scope="row" title={name}>
                      {counterText(name)}
                    </th>
                    <td>{shown(words, 60)}</td>
                    <td class={`number${bad ? ' warning' : ''}`}>{formatValue(value, counterUnit(name))}</td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

/** The other cards of the same run or job, or of the host where that is not known. */
export function PeerTable({ gpu, peers }: { gpu: Gpu; peers: Gpu[] }) {
  const others = peers
    .filter((p) => gpuKey(p) !== gpuKey(gpu))
    .sort((a, b) => (a.value ?? -1) - (b.value ?? -1) || natural.compare(a.host + a.gpu, b.host + b.gpu));
  const mean = gpu.owner?.run_id ? 'of the same run' : 'of the same host';
  return (
    <section class="panel" aria-label="Peers">
      <h2>
        Peers{' '}
        <span class="quiet">
          {counted(others.length, 'card')} {mean}, by power ÷ limit, the lowest first
        </span>
      </h2>
      {others.length === 0 ? (
        <p class="quiet">No other card {mean}.</p>
      ) : (
        <div class="scroll" tabIndex={0} role="region" aria-label="Table of peers">
          <table>
            <thead>
              <tr>
                <th scope="col">Card</th>
                <th scope="col">Owner</th>
                <th scope="col" class="number">
                  power ÷ limit
                </th>
              </tr>
            </thead>
            <tbody>
              <tr class="own">
                <th scope="row">{gpuName(gpu, 24)}, this card</th>
                <td>{ownerText(gpu.owner)}</td>
                <td class="number">{valueText(gpu.value, 'ratio')}</td>
              </tr>
              {others.slice(0, PEERS_MAX).map((p) => (
                <tr key={gpuKey(p)}>
                  <th scope="row">
                    <Link href={gpuPath(p.host, p.gpu, p.uuid)}>{gpuName(p, 24)}</Link>
                  </th>
                  <td>{ownerText(p.owner)}</td>
                  <td class="number">
                    {p.value === null ? (
                      <span class="absent" title={p.reason ?? undefined}>
                        absent
                      </span>
                    ) : (
                      valueText(p.value, 'ratio')
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
          {others.length > PEERS_MAX && (
            <p class="quiet">{counted(others.length - PEERS_MAX, 'further card')} not shown.</p>
          )}
        </div>
      )}
    </section>
  );
}

/** Fields that the card or its driver has no value for. */
export function Unsupported({ gpu }: { gpu: Gpu }) {
  return (
    <section class="panel" aria-label="Not supported">
      <h2>
        Not supported <span class="quiet">{counted(gpu.unsupported.length, 'field')}</span>
      </h2>
      {gpu.unsupported.length === 0 ? (
        <p class="quiet">The card has a value for every field that is read.</p>
      ) : (
        <ul class="fields">
          {gpu.unsupported.map((field) => (
            <li key={field}>
              <Name text={field} /> <span class="quiet">the card or its driver has no value for it</span>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

/** What happened to the card. */
export function EventTable({ events }: { events: FleetEvent[] }) {
  return (
    <section class="panel" aria-label="Events of the card">
      <h2>
        Events <span class="quiet">{counted(events.length, 'event')} in this range</span>
      </h2>
      {events.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Table of events">
          <table>
            <tbody>
              {events.slice(0, EVENTS_SHOWN).map((event) => (
                <tr key={`${event.time_ns} ${event.key}`} class={event.severity}>
                  <td title={timeTitle(event.time)}>{formatWhen(event.time, now.value, zone.value)}</td>
                  <td>{shown(event.kind, 16)}</td>
                  <td class={event.labels.source === 'userspace' ? 'quiet' : ''}>
                    {event.labels.source === 'userspace' && 'user space: '}
                    {FROM_A_LOG.test(event.labels.source ?? '') ? (
                      <span class="raw">{visible(event.text)}</span>
                    ) : (
                      <Sentence text={event.text} />
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
          {events.length > EVENTS_SHOWN && <p class="quiet">The newest {EVENTS_SHOWN} are shown.</p>}
        </div>
      )}
    </section>
  );
}
