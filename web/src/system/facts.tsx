/** Facts of the selected card: whose it is, what it is, and what it reads beside its peers. */
import { ink } from '../charts/model';
import { Name } from '../components/name';
import type { MetricRow } from '../lib/answers';
import { unspell } from '../lib/answers';
import { copy } from '../lib/download';
import type { CaptureOwner } from '../lib/missing';
import { formatCount, formatValue } from '../lib/number';
import type { SystemBoard } from './board';
import { type Card, cardName, cardsOf } from './cards';
import { laneValue } from './lane';
import * as look from './look';
import { deviation, middle, valueAt } from './series';
import { colours, gpuTitle } from './specs';

/** Whose a card is, in words. */
function ownerText(owner: CaptureOwner, host: string): string {
  const who = owner.rank === null ? `pid ${owner.pid}` : `rank ${owner.rank} · pid ${owner.pid}`;
  return owner.host === host || owner.host === '' ? who : `${who} on ${owner.host}`;
}

/** Why a card has no series, from what the driver's reader says of it. */
function whyNot(card: Card): string {
  const role = card.device?.role;
  if (role === 'mig') return 'partitioned with MIG: not sampled';
  if (role === 'not_visible') return 'not given to this run';
  if (role === 'waiting') return 'waits for its rank to report it';
  if (role === 'unreadable') return `unreadable: ${card.device!.cause}`;
  return 'no series of it have come';
}

/** Counters and states whose newest value is a fact. */
const STANDING: [display: string, title: string][] = [
  ['system/gpu/ecc_errors_total', 'ECC uncorrected'],
  ['system/gpu/row_remap_pending', 'Row remaps pending'],
  ['system/gpu/row_remap_failed', 'Row remaps failed'],
  ['system/gpu/nvlink_errors_total', 'NVLink errors'],
  ['system/gpu/pcie_replays_total', 'PCIe replays'],
];

/** What the driver wants done, by its own codes. */
const RECOVERY = [
  'none',
  'reset the GPU',
  'restart the node',
  'drain its peers',
  'drain and reset',
  'recover the IMEX domain',
  'reset the bus',
  'restart the system',
];

function standing(card: Card, metrics: MetricRow[]): [string, string][] {
  const own = metrics.filter(
    (m) => m.display.startsWith('system/gpu/') && m.labels.host === card.host && m.labels.gpu === card.gpu,
  );
  const last = (display: string, keep: (labels: Record<string, string>) => boolean = () => true) => {
    const rows = own.filter((m) => m.display === display && keep(m.labels));
    if (rows.length === 0) return null;
    return rows.reduce((sum, m) => sum + (unspell(m.last) ?? 0), 0);
  };
  const facts: [string, string][] = [];
  for (const [display, title] of STANDING) {
    const value = last(display, (l) => l.kind !== 'corrected' && l.scope !== 'aggregate');
    if (value !== null) facts.push([title, formatCount(value)]);
  }
  const [generation, width] = [last('system/gpu/pcie_link_generation'), last('system/gpu/pcie_link_width')];
  if (generation !== null && width !== null) facts.push(['PCIe link', `gen ${generation} × ${width}`]);
  const action = last('system/gpu/recovery_action');
  if (action !== null) facts.push(['Recovery action', RECOVERY[action] ?? `code ${action}`]);
  const total = last('system/gpu/memory_total_bytes');
  if (total !== null) facts.push(['Memory in all', formatValue(total, 'B')]);
  return facts;
}

/** The card of facts. */
export function Facts({ system }: { system: SystemBoard }) {
  const key = system.selected.value[0];
  const known = system.cards.value.find((c) => c.key === key);
  if (!known) return null;
  const told = known.device ? undefined : cardsOf([], system.reports(known.host)).find((c) => c.key === key);
  const card = told ? { ...told, drawn: known.drawn } : known;
  const more = system.selected.value.length - 1;
  const { device, owner } = card;
  const slot = ink.value.series(system.slot(card.key));
  return (
    <section class="panel card-facts" aria-label={cardName(card)}>
      <header>
        <h2>
          <i style={{ background: slot }} aria-hidden="true" />
          <Name text={cardName(card)} limit={26} />
          {more > 0 && <span class="quiet"> and {formatCount(more)} more</span>}
        </h2>
      </header>
      <dl>
        {owner && (
          <Fact title="Reported by">
            <Name text={ownerText(owner, card.host)} limit={30} />
          </Fact>
        )}
        {!card.drawn && (
          <Fact title="Series">
            <Absent text={whyNot(card)} />
          </Fact>
        )}
        {device?.model && (
          <Fact title="Model">
            <Name text={device.model} limit={26} />
          </Fact>
        )}
        {device?.uuid && (
          <Fact title="UUID">
            <button type="button" class="mono" title="Copy" onClick={() => copy(device.uuid, 'the UUID')}>
              <Name text={device.uuid} limit={18} />
            </button>
          </Fact>
        )}
        {device?.pci_bus_id && (
          <Fact title="PCI">
            <span class="mono">
              <Name text={device.pci_bus_id} limit={18} />
            </span>
          </Fact>
        )}
        {device?.compute_capability && (
          <Fact title="Compute capability">
            <Name text={device.compute_capability} limit={12} />
          </Fact>
        )}
        <Readings key={card.key} system={system} card={card} />
        {standing(card, system.board.metrics.value ?? []).map(([title, text]) => (
          <Fact key={title} title={title}>
            {text}
          </Fact>
        ))}
        {device?.unsupported.slice(0, 12).map((display) => (
          <Fact key={display} title={gpuTitle(display)}>
            <Absent text="not supported" />
          </Fact>
        ))}
      </dl>
      {system.cards.value.length > 1 && (
        <p class="acts">
          <button
            type="button"
            class="control"
            aria-pressed={system.peers.value}
            title="Draw the spread of the others (p)"
            onClick={() => (system.peers.value = !system.peers.value)}
          >
            Peers
          </button>
        </p>
      )}
    </section>
  );
}

function Fact({ title, children }: { title: string; children: preact.ComponentChildren }) {
  return (
    <div>
      <dt>{title}</dt>
      <dd>{children}</dd>
    </div>
  );
}

const Absent = ({ text }: { text: string }) => (
  <span class="absent">
    — <Name text={text} limit={60} />
  </span>
);

/** What the card's lanes read at the cursor, and what its peers do. */
function Readings({ system, card }: { system: SystemBoard; card: Card }) {
  const x = system.board.cursor[look.laneAxis.value].value;
  const data = system.data.value;
  return (
    <>
      {colours(system.lanes.value).map((lane) => {
        const own = data.get(lane.id);
        const member = own?.members.find((m) => m.key === card.key);
        if (!own || !member) return null;
        const unit = lane.rate ? '' : (system.chart(lane)?.unit ?? '');
        const value = valueAt(own.x, member, x);
        const { spread } = own;
        const median = spread
          ? valueAt(spread.x, { y: spread.median, spacing: spread.spacing }, x)
          : middle(own.members.flatMap((m) => (m === member ? [] : valueAt(own.x, m, x))));
        const far = Number.isFinite(median) ? deviation(value, median, lane.compared!) : Number.NaN;
        const out = Math.abs(far) > lane.compared!.clip / 4 && far < 0 === (lane.compared!.worse === 'low');
        return (
          <Fact key={lane.id} title={lane.title}>
            <b class={out ? 'out' : ''}>{laneValue(lane, value, unit)}</b>
            {Number.isFinite(median) && <span class="quiet"> peers {laneValue(lane, median, '')}</span>}
          </Fact>
        );
      })}
    </>
  );
}
