/** One lane: title and scope, plot, and what it reads at the cursor. */
import { type ReadonlySignal, useComputed, useSignal } from '@preact/signals';
import { useRef } from 'preact/hooks';
import { ink } from '../charts/model';
import { summary } from '../charts/summary';
import * as view from '../charts/view';
import { MoreIcon } from '../components/icons';
import { Menu, type MenuItem } from '../components/menu';
import { Name } from '../components/name';
import { Trust } from '../components/trust';
import { zone } from '../lib/clock';
import { copy, saveCsv } from '../lib/download';
import { formatCount, formatValue, isBytes, THIN } from '../lib/number';
import { shown } from '../lib/text';
import type { SystemBoard } from './board';
import type { Card } from './cards';
import { type Choice, type Drawn, drawnOf } from './drawn';
import * as look from './look';
import { ANSWER_SERIES } from './many';
import { deviation, type Member, valueAt } from './series';
import { CONTEXT, type LaneSpec } from './specs';
import { useLanePlot } from './use_lane_plot';

/** What a lane that is dragged carries: its id. */
const DRAGGED = 'text/x-truegauge-lane';

/** What keys do to the lane that is pointed at. */
export interface LaneActions {
  log: () => void;
  save: () => void;
  table: () => void;
  explain: () => void;
  drawn: () => Drawn | null;
}

/** What a lane needs. */
export interface LaneProps {
  system: SystemBoard;
  lane: LaneSpec;
  /** What its numbers are measured against, in words; empty where that is not known. */
  scope: { text: string; whole: string };
  point: (actions: LaneActions) => void;
  openTable: (lane: LaneSpec) => void;
}

/** Whether a series is a card's own: its process's, its rank's, its host's. */
function belongs(lane: LaneSpec, member: Member, card: Card): boolean {
  const { host, pid, rank } = member.labels;
  if (lane.subject === 'gpu') return member.key === card.key;
  if (lane.subject === 'run') return rank !== undefined && rank === String(card.owner?.rank);
  if (host !== card.host) return false;
  return lane.subject === 'host' || (card.owner !== null && pid === String(card.owner.pid));
}

/** What a lane draws now; `null` until it is read, and while nobody sees it. */
export function useDrawn(system: SystemBoard, lane: LaneSpec, seen: ReadonlySignal<boolean>) {
  return useComputed<Drawn | null>(() => {
    if (!seen.value) return null;
    const data = system.data.value.get(lane.id);
    if (!data || data.axis !== look.laneAxis.value) return null;
    const chosen = system.cards.value.filter((c) => system.selected.value.includes(c.key));
    const cardOf = (member: Member) => chosen.find((card) => belongs(lane, member, card));
    const many = data.spread !== null && look.show.value !== 'map';
    const range = system.range();
    const usual = many ? 'spread' : look.showOf(data.members.length);
    // Cells are coloured against peers: what has none, or none that are better or worse, has its spread.
    const whole = data.spread === null || data.members.length >= Math.min(data.total, ANSWER_SERIES);
    const mapped = lane.compared !== null && data.members.length > 1 && whole;
    const fallback = data.spread || data.members.length > look.LINES_USUAL ? 'spread' : 'lines';
    const choice: Choice = {
      show: usual === 'map' && !mapped ? fallback : usual,
      selects: (member: Member) => cardOf(member) !== undefined,
      slot: (member: Member) => {
        if (lane.subject === 'gpu') return system.slot(member.key);
        const card =
          cardOf(member) ??
          system.cards.value.find((c) => lane.subject !== 'host' && belongs(lane, member, c));
        return system.slot(card?.key ?? member.text);
      },
      peers: system.peers.value,
      range: [range.from, range.to],
    };
    return drawnOf(lane, data, choice, system.marks(lane));
  });
}

/** The lane. */
export function LaneView({ system, lane, scope, point, openTable }: LaneProps) {
  const root = useRef<HTMLElement>(null);
  const body = useRef<HTMLDivElement>(null);
  const seen = useSignal(false);
  const drawn = useDrawn(system, lane, seen);
  useLanePlot(system, lane, drawn, seen, root, body);
  const chart = system.chart(lane);
  const name = chart?.name ?? lane.title;
  const actions: LaneActions = {
    log: () => view.toggleIn('logs', name),
    save: () => void saveCsv(system.board.runId, system.board.detail.peek()?.run ?? '', name),
    table: () => openTable(lane),
    explain: () => root.current?.querySelector<HTMLElement>('.trust')?.classList.toggle('open'),
    drawn: () => drawn.peek(),
  };
  const at = system.shown.value.findIndex((l) => l.id === lane.id);
  const menu = (): MenuItem[] => [
    { text: 'Move up', run: () => system.move(lane.id, at - 1) },
    { text: 'Move down', run: () => system.move(lane.id, at + 1) },
    ...(CONTEXT.includes(lane.id) ? [] : [{ text: 'Move to the top', run: () => system.move(lane.id, 0) }]),
    { text: 'Hide', run: () => system.toggle(lane.id) },
    { text: view.isLog(name) ? 'Linear axis' : 'Log axis', key: 'l', run: actions.log },
    { text: 'View as table', key: 'v', run: actions.table },
    { text: 'Copy PromQL', run: () => void copy(promql(system, lane), 'the PromQL selector') },
    { text: 'Export CSV, every point', key: 'e', run: actions.save },
  ];
  const now = drawn.value;
  const axis = look.laneAxis.value;
  const range = system.range();
  const unit = lane.rate ? '' : (chart?.unit ?? '');
  const nothing = now !== null && now.shape.lines.length + now.rows.length + now.shape.marks.length === 0;
  return (
    <section
      ref={root}
      class={lane.demoted ? 'sys-lane demoted' : 'sys-lane'}
      style={{ '--lane': `${lane.height}px` }}
      aria-label={lane.note ? `${lane.title}, ${lane.note}` : lane.title}
      data-lane={lane.id}
      tabIndex={0}
      onPointerMove={() => point(actions)}
      onFocusCapture={() => point(actions)}
      onDragOver={(e) => e.dataTransfer?.types.includes(DRAGGED) && e.preventDefault()}
      onDrop={(e) => system.move(e.dataTransfer?.getData(DRAGGED) || lane.id, at)}
    >
      <header draggable onDragStart={(e) => e.dataTransfer?.setData(DRAGGED, lane.id)}>
        <h3>
          <Name text={lane.title} limit={26} />
          {lane.demoted ? (
            <Alone text={chart?.caveat ?? ''} />
          ) : (
            <Trust help={chart?.help ?? ''} caveat={chart?.caveat ?? ''} />
          )}
        </h3>
        {!lane.demoted && (
          <p class="note">
            {lane.note}
            {view.isLog(name) && ', log'}
          </p>
        )}
        {scope.text && (
          <p class="note scope" title={scope.whole}>
            {scope.text}
          </p>
        )}
        <Menu label={`Actions of ${lane.title}`} items={menu} class="icon-menu">
          <MoreIcon />
        </Menu>
      </header>
      <div
        class="plot"
        ref={body}
        role="img"
        aria-label={summary(lane.title, unit, now?.shape ?? null, axis, range, zone.value)}
      >
        {nothing && (
          <p class="none">
            {look.scope.value === 'nodes' && system.agents.value === true && lane.agent === null
              ? 'the agents do not report it'
              : 'no points in this range'}
          </p>
        )}
        {lane.demoted && <p class="caveat">Misleading alone: {chart?.caveat || 'any kernel counts.'}</p>}
      </div>
      <Reads system={system} lane={lane} drawn={now} unit={unit} />
    </section>
  );
}

function promql(system: SystemBoard, lane: LaneSpec): string {
  const series = `${system.chart(lane)?.promql ?? lane.id}{run_id="${system.board.runId}"}`;
  return lane.rate ? `rate(${series}[2m])` : series;
}

/** A struck ring: misleading alone. */
function Alone({ text }: { text: string }) {
  return (
    <span class="trust" role="img" aria-label={`Misleading alone: ${text}`}>
      <svg class="icon" width="11" height="11" viewBox="0 0 12 12" aria-hidden="true">
        <circle cx="6" cy="6" r="4.4" fill="none" stroke="currentColor" stroke-width="1.4" />
        <path d="M2.6 9.4 9.4 2.6" stroke="currentColor" stroke-width="1.4" />
      </svg>
    </span>
  );
}

/** A value as a lane writes it: shares with two digits, all else without the unit where the note has it. */
export function laneValue(lane: LaneSpec, value: number, unit: string): string {
  if (Number.isNaN(value)) return 'absent';
  if (lane.parted || (unit === '' && lane.metrics[0].endsWith('_ratio'))) return value.toFixed(2);
  return formatValue(value, isBytes(unit) || unit === '%' ? unit : '');
}

interface Row {
  key: string;
  what: string;
  text: string;
  colour: string | null;
}

/** What a lane reads at `x`: what is named, the parts of the selected card, then the peers. */
function rowsOf(lane: LaneSpec, drawn: Drawn, x: number | null, unit: string): Row[] {
  const rows: Row[] = [];
  const value = (y: Float64Array, spacing: number, of = drawn.x) => valueAt(of, { y, spacing }, x);
  const { series } = ink.value;
  for (const { word, y, slot } of drawn.parts)
    rows.push({
      key: `part ${word}`,
      what: word.replace(/_/g, ' '),
      text: laneValue(lane, value(y, drawn.named[0].member.spacing), unit),
      colour: series(slot),
    });
  const first = drawn.named[0];
  if (drawn.parts.length === 0) {
    for (const { member, slot } of drawn.named)
      rows.push({
        key: member.text,
        what: member.text,
        text: laneValue(lane, value(member.y, member.spacing), unit),
        colour: lane.demoted ? null : series(slot),
      });
  }
  if (drawn.peers && drawn.peerCount > 0) {
    const { median, low, high, spacing, band } = drawn.peers;
    const of = (y: Float64Array) => value(y, spacing, drawn.peers!.x);
    const middle = of(median);
    const [least, most] = [of(low), of(high)].map((v) => laneValue(lane, v, isBytes(unit) ? unit : ''));
    const same = least.split(THIN)[1] === most.split(THIN)[1];
    rows.push({
      key: 'median',
      what: `median of ${formatCount(drawn.peerCount)}`,
      text: laneValue(lane, middle, unit),
      colour: null,
    });
    const own = first ? value(first.member.y, first.member.spacing) : Number.NaN;
    if (lane.compared?.by === 'ratio' && Number.isFinite(own) && middle !== 0 && Number.isFinite(middle))
      rows.push({
        key: 'ratio',
        what: 'ratio',
        text: (deviation(own, middle, lane.compared) + 1).toFixed(2),
        colour: null,
      });
    if (!Number.isNaN(middle))
      rows.push({
        key: 'band',
        what: band,
        text: `${same ? least.split(THIN)[0] : least}–${most}`,
        colour: null,
      });
  }
  return rows;
}

/** The rows that fit, and how many do not. */
function Reads(props: { system: SystemBoard; lane: LaneSpec; drawn: Drawn | null; unit: string }) {
  const { system, lane, drawn, unit } = props;
  if (!drawn) return <dl class="reads" />;
  const x = system.board.cursor[look.laneAxis.value].value;
  const rows = rowsOf(lane, drawn, x, unit);
  const fit = Math.max(1, Math.floor((lane.height - 4) / 16));
  const kept = rows.length > fit ? keep(rows, fit) : rows;
  return (
    <dl class="reads">
      {kept.map((row) => (
        <div key={row.key}>
          <dt title={shown(row.what, 200)}>
            {row.colour && <i style={{ background: row.colour }} aria-hidden="true" />}
            {shown(row.what, 22) || 'value'}
          </dt>
          <dd>{row.text}</dd>
        </div>
      ))}
    </dl>
  );
}

/** Of too many rows, the median stays beside the first ones, and the last one counts the rest. */
function keep(rows: Row[], fit: number): Row[] {
  const median = rows.find((r) => r.key === 'median');
  const others = rows.filter((r) => r !== median);
  if (median) {
    const first = others.slice(0, fit - 1);
    return rows.filter((r) => r === median || first.includes(r));
  }
  if (fit < 2) return rows.slice(0, fit);
  const left = rows.length - (fit - 1);
  const more = { key: 'more', what: `and ${formatCount(left)} more`, text: '', colour: null };
  return [...rows.slice(0, fit - 1), more];
}
