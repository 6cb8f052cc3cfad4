/** Autocapture of a run: who reports which card, and what it is measured against. */
import { Name } from '../components/name';
import { Sentence } from '../components/sentence';
import type { CaptureReport } from '../lib/missing';
import { formatCount } from '../lib/number';
import { visible } from '../lib/text';
import { captureFacts, ownersOf, ownerText } from './owners';

const ROWS_MAX = 1000;

/** The panel; nothing where no process has reported. */
export function CapturePanel({ capture }: { capture: CaptureReport[] }) {
  if (capture.length === 0) return null;
  const hosts = ownersOf(capture);
  const rows = hosts.flatMap(({ host, owned }) => owned.map((one) => ({ host, ...one })));
  return (
    <section class="panel capture">
      <h2>
        Capture{' '}
        <span class="quiet">
          {formatCount(capture.length)} {capture.length === 1 ? 'process' : 'processes'}
          {hosts.length > 1 && ` on ${formatCount(hosts.length)} hosts`}
        </span>
      </h2>
      <table>
        <tbody>
          {captureFacts(capture, hosts).map(([name, words]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td>
                <Sentence text={words} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      <div class="scroll" tabIndex={0} role="region" aria-label="Who reports what">
        <table>
          <thead>
            <tr>
              <th scope="col">Host</th>
              <th scope="col">Device</th>
              <th scope="col">Model</th>
              <th scope="col">Reported by</th>
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, ROWS_MAX).map(({ host, gpu, model, uuid, owner, why }) => (
              <tr key={`${host} ${gpu}`}>
                <td>
                  <Name text={host} limit={32} />
                </td>
                <td>{gpu === null ? 'node' : `GPU ${gpu}`}</td>
                <td title={visible(uuid) || undefined}>{model ? <Name text={model} limit={32} /> : '—'}</td>
                <td>
                  {owner ? (
                    <>
                      {ownerText(owner)}
                      {owner.host !== host && owner.host && (
                        <>
                          {' '}
                          on <Name text={owner.host} limit={32} />
                        </>
                      )}
                    </>
                  ) : (
                    <span class="quiet">
                      — <Name text={why} limit={160} />
                    </span>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
        {rows.length > ROWS_MAX && <p class="quiet">and {formatCount(rows.length - ROWS_MAX)} more</p>}
      </div>
    </section>
  );
}
