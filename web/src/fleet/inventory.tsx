/** What the inventory lacks: cards that the bus has and the driver does not, and nodes that report twice. */
import { WarnIcon } from '../components/icons';
import { Name } from '../components/name';
import { now, zone } from '../lib/clock';
import { formatWhen } from '../lib/time';
import type { Node, NodesAnswer } from './answers';
import { counted } from './names';

/** Nodes whose counts do not agree, or that two agents report. */
export const gapsOf = ({ nodes }: NodesAnswer): Node[] =>
  nodes.filter(
    ({ gpus, missing, agents }) =>
      missing.length > 0 ||
      agents > 1 ||
      (gpus.pci !== null && gpus.driver !== null && gpus.pci > gpus.driver),
  );

/** `32 hosts · 255 GPUs by driver, 256 by PCI` */
export function Headline({ answer }: { answer: NodesAnswer }) {
  const { hosts, silent, driver, pci, allocated } = answer.totals;
  return (
    <p class="facts">
      <span>
        <b>{counted(hosts, 'host')}</b>
        {silent > 0 && `, ${silent} silent`}
      </span>
      <span>
        {!driver ? 'GPUs not counted by a driver' : `${counted(driver, 'GPU')} by driver`}
        {pci !== null && pci > 0 && (
          <>
            , <b>{pci.toLocaleString('en-US')}</b> by PCI
          </>
        )}
        {allocated !== null && allocated > 0 && `, ${allocated.toLocaleString('en-US')} allocated`}
      </span>
    </p>
  );
}

const count = (value: number | null) => (value === null ? '—' : String(value));

/** The table; nothing where the counts agree. */
export function Inventory({ answer }: { answer: NodesAnswer }) {
  const gaps = gapsOf(answer);
  if (gaps.length === 0) return null;
  return (
    <section class="panel inventory" aria-label="Inventory gaps" id="inventory">
      <h2>
        <WarnIcon /> Inventory <span class="quiet">what is there, by whom</span>
      </h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="Nodes with gaps">
        <table>
          <thead>
            <tr>
              <th scope="col">Host</th>
              <th scope="col" class="number">
                PCI
              </th>
              <th scope="col" class="number">
                driver
              </th>
              <th scope="col" class="number">
                allocated
              </th>
              <th scope="col">Missing</th>
            </tr>
          </thead>
          <tbody>
            {gaps.map((node) => (
              <tr key={node.host}>
                <th scope="row">
                  <Name text={node.host} limit={20} />
                </th>
                <td class="number">{count(node.gpus.pci)}</td>
                <td class="number">{count(node.gpus.driver)}</td>
                <td class="number">{count(node.gpus.allocated)}</td>
                <td>
                  {node.missing.map((card) => (
                    <div key={`${card.pci_bus_id} ${card.uuid}`} title={card.uuid ?? undefined}>
                      <Name text={card.pci_bus_id || card.uuid || 'a card'} limit={24} />
                      {card.since !== null && ` since ${formatWhen(card.since, now.value, zone.value)}`}
                    </div>
                  ))}
                  {node.agents > 1 && <div class="warning">{node.agents} agents, one is refused</div>}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
