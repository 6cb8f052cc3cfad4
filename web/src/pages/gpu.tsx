/** GPU: what is this card's story? */
import { useComputed, useSignal } from '@preact/signals';
import { useLayoutEffect, useMemo, useRef } from 'preact/hooks';
import { xTicks } from '../charts/ticks';
import { Failure } from '../components/failure';
import { keptQuery, Link } from '../components/link';
import { Name } from '../components/name';
import { ResetZoom } from '../components/reset_zoom';
import { Toggle } from '../components/segments';
import { RangeControl, shift, widen } from '../explore/range_control';
import { absentText } from '../fleet/absence';
import type { FleetEvent, Gpu } from '../fleet/answers';
import { Card } from '../fleet/card';
import { Counters, EventTable, PeerTable, Unsupported } from '../fleet/card_tables';
import { useFeed } from '../fleet/feed';
import { IncidentList } from '../fleet/incidents';
import { LaneRow } from '../fleet/lane_view';
import { LANES, peersOf, type Subject, sameSubject } from '../fleet/lanes';
import { gpuKey, gpuName, ownerText } from '../fleet/names';
import { OwnerStrip } from '../fleet/owner_strip';
import { toggleLive } from '../fleet/range';
import { useHistory } from '../fleet/use_history';
import { absence, timeTitle } from '../fleet/words';
import { open, param, path, setParams, zoomDepth } from '../lib/address';
import { now, switchZone, zone } from '../lib/clock';
import { bind } from '../lib/keys';
import { formatCount, formatValue } from '../lib/number';
import { parseRoute, remediationPath } from '../lib/route';
import { shown, visible } from '../lib/text';
import { formatSecond, formatSpan } from '../lib/time';
import '../styles/fleet.css';
import '../styles/gpu.css';

const STEPS = 400;
/** A pointer that goes further than this while pressed marks a span, CSS pixels. */
const DRAG_PX = 5;
/** Marks that stand closer than this are one, share of the axis. */
const MERGED = 0.05;

/** The page. */
export function GpuPage() {
  const route = parseRoute(path.value);
  const [host, index] = route.page === 'gpu' ? [route.host, route.gpu] : ['', ''];
  const card = useMemo(() => new Card(host, index), [host, index]);
  useFeed(card, `${shown(card.host)} · GPU ${shown(card.index, 12)}`);
  useKeys(card);
  const gpu = card.gpu.value;
  const known = card.answer.value !== null;
  return (
    <main class="gpu-page">
      <div class="page-bar">
        <h1>
          <Link href="/fleet">Fleet</Link> / <Name text={gpu?.host ?? host} limit={40} /> / GPU{' '}
          <Name text={gpu?.gpu ?? index} limit={16} />
        </h1>
        {gpu && <State gpu={gpu} />}
        {gpu && gpu.state !== 'ok' && <Link href={remediationPath(gpu.host, gpu.gpu)}>Remediation</Link>}
        <span class="right">
          <ResetZoom zoomed={zoomDepth() > 0} reset={() => card.range.choose('-3h', null)} />
          <RangeControl explore={card.range} />
          {'last' in card.range.span.value && (
            <Toggle on={card.range.live.value} set={toggleLive} title="Follows the clock (Space)">
              {card.range.live.value ? (
                <>
                  <span class="dot" /> live
                </>
              ) : (
                'paused'
              )}
            </Toggle>
          )}
        </span>
      </div>
      {card.error.value !== null && <Failure error={card.error.value} retry={() => void card.load()} />}
      {known && !gpu && <Unknown card={card} />}
      {gpu && <Story card={card} gpu={gpu} />}
    </main>
  );
}

function State({ gpu }: { gpu: Gpu }) {
  const tone = { ok: 'ok', suspect: 'warn', missing: 'crit', silent: 'warn' }[gpu.state] ?? '';
  return (
    <span class={`pill ${tone}`} title={gpu.reason ?? undefined}>
      {shown(gpu.state, 16)}
    </span>
  );
}

/** A place or number that no card has. */
function Unknown({ card }: { card: Card }) {
  const others = card.answer.value?.gpus ?? [];
  return (
    <section class="empty">
      <h2>No such card</h2>
      <p>
        {card.uuid.value
          ? `No source has told of the card ${shown(card.uuid.value, 60)} in this range.`
          : `${shown(card.host)} has no GPU ${shown(card.index, 16)} in this range.`}
      </p>
      {others.length > 0 && (
        <p>
          It has{' '}
          {others.slice(0, 16).map((g) => (
            <Link key={gpuKey(g)} href={`/fleet/${encodeURIComponent(g.host)}/${encodeURIComponent(g.gpu)}`}>
              GPU {shown(g.gpu, 8)}{' '}
            </Link>
          ))}
        </p>
      )}
      <p>
        <Link href="/fleet">All cards</Link>
      </p>
    </section>
  );
}

function Story({ card, gpu }: { card: Card; gpu: Gpu }) {
  const incidents = card.incidents.value;
  const moved = gpu.host !== card.host || gpu.gpu !== card.index;
  return (
    <>
      <Facts gpu={gpu} />
      {moved && (
        <p class="moved warning">
          This card is {gpuName(gpu)} now: its history goes with it. The address still names{' '}
          {shown(card.host)} · GPU {shown(card.index, 16)}.
        </p>
      )}
      {gpu.value === null && gpu.state !== 'ok' && <p class="moved warning">{shown(absence(gpu), 300)}</p>}
      <Lanes card={card} gpu={gpu} />
      {card.sideError.value !== null && (
        <Failure error={card.sideError.value} retry={() => void card.load()} />
      )}
      <div class="below">
        <section class="panel" aria-label="Incidents">
          <h2>
            Incidents <span class="quiet">of this card, open and cleared</span>
          </h2>
          {incidents && incidents.incidents.length > 0 ? (
            <IncidentList answer={incidents} />
          ) : (
            <p class="quiet">{incidents ? 'None in this range.' : ''}</p>
          )}
        </section>
        <EventTable events={card.events.value} />
        <PeerTable gpu={gpu} peers={card.peers.value ?? []} />
        <Counters counters={card.counters.value} />
        <Unsupported gpu={gpu} />
      </div>
    </>
  );
}

/** What the card is. */
function Facts({ gpu }: { gpu: Gpu }) {
  const latest = gpu.latest ?? {};
  const value = (metric: string, unit: string) => {
    const found = latest[metric]?.value;
    return found === null || found === undefined ? '' : formatValue(found, unit);
  };
  const mig = gpu.mig ? `on${gpu.slices.length > 0 ? `, slices ${gpu.slices.join(', ')}` : ''}` : 'off';
  const facts: [string, string][] = [
    ['uuid', gpu.uuid],
    ['model', gpu.gpu_model],
    ['PCI', gpu.pci_bus_id],
    ['driver', gpu.driver],
    ['MIG', mig],
    ['power limit', value('tg_gpu_power_limit_watts', 'W')],
    ['max SM clock', value('tg_gpu_sm_clock_max_hertz', 'Hz')],
    ['memory', value('tg_gpu_memory_total_bytes', 'B')],
    ['owner', ownerText(gpu.owner)],
    ['told by', gpu.sources.join(', ')],
    ['last seen', (gpu.last_seen ?? 0) > 0 ? seen(gpu.last_seen!) : ''],
  ];
  return (
    <dl class="card-facts">
      {facts
        .filter(([, text]) => text !== '')
        .map(([name, text]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>
              <Name text={text} limit={60} />
            </dd>
          </div>
        ))}
    </dl>
  );
}

const seen = (time: number) => `${formatSpan(Math.max(0, Math.floor((now.value - time) / 1000)))} ago`;

/** Everything that has the time as its axis: owners, events, lanes, and the cursor through them. */
function Lanes({ card, gpu }: { card: Card; gpu: Gpu }) {
  const root = useRef<HTMLDivElement>(null);
  const band = useSignal<[number, number] | null>(null);
  const pressed = useRef<number | null>(null);
  const { history, error } = useHistory(useStill(card), card.range.range, LANES, STEPS);
  const { from, to } = card.range.range.value;
  const share = (time: number) => ((time - from) / (to - from)) * 100;
  const timeAt = (event: PointerEvent): number | null => {
    const box = root.current!.querySelector('.overlay')!.getBoundingClientRect();
    const at = (event.clientX - box.left) / box.width;
    return at >= 0 && at <= 1 ? from + at * (to - from) : null;
  };
  const up = () => {
    const span = band.value;
    band.value = null;
    pressed.current = null;
    if (span && ((span[1] - span[0]) / (to - from)) * root.current!.clientWidth > DRAG_PX)
      setParams({ from: String(Math.round(span[0])), to: String(Math.round(span[1])) }, true);
  };
  const marks = card.events.value.filter((e) => e.severity !== 'info' && e.kind !== 'incident');
  const at = card.cursor.value;
  return (
    <section class="panel history" aria-label="History of the card">
      {error.value !== null && <Failure error={error.value} retry={() => void card.load()} />}
      <div
        class="lanes"
        ref={root}
        onPointerDown={(event) => {
          if (event.button === 0) pressed.current = timeAt(event);
        }}
        onPointerMove={(event) => {
          const time = timeAt(event);
          card.cursor.value = time;
          const start = pressed.current;
          if (start !== null && time !== null) band.value = [Math.min(start, time), Math.max(start, time)];
        }}
        onPointerUp={up}
        onPointerLeave={() => {
          card.cursor.value = null;
          band.value = null;
          pressed.current = null;
        }}
        onDblClick={() => card.range.choose('-3h', null)}
      >
        <OwnerStrip owners={gpu.owners ?? []} range={{ from, to }} xids={[]} now={gpu.owner} />
        <Events events={card.events.value} range={{ from, to }} />
        {LANES.map((lane) => (
          <LaneRow
            key={lane.id}
            lane={lane}
            history={history}
            cursor={card.cursor}
            absent={absentText(gpu, lane)}
            ticks
          />
        ))}
        <Axis from={from} to={to} />
        <div class="overlay" aria-hidden="true">
          {marks.map((m) => (
            <i key={m.key} class="mark-line" style={{ left: `${share(m.time)}%` }} />
          ))}
          {at !== null && (
            <i class="cursor-line" style={{ left: `${share(at)}%` }}>
              <span class={share(at) > 80 ? 'flag left' : 'flag'}>{formatSecond(at, zone.value)}</span>
            </i>
          )}
          {band.value && (
            <i
              class="band"
              style={{
                left: `${share(band.value[0])}%`,
                width: `${share(band.value[1]) - share(band.value[0])}%`,
              }}
            />
          )}
        </div>
      </div>
    </section>
  );
}

/** The card and its peers, once they are known, anew only when they are others. */
function useStill(card: Card) {
  const kept = useRef<Subject | null>(null);
  return useComputed(() => {
    const [gpu, all] = [card.gpu.value, card.peers.value];
    const now = gpu && all && { gpu, peers: peersOf(gpu, all) };
    if (!sameSubject(kept.current, now)) kept.current = now;
    return kept.current;
  });
}

interface Mark {
  time: number;
  events: FleetEvent[];
}

/** Marks that stand close are one. */
function merged(events: FleetEvent[], range: { from: number; to: number }): Mark[] {
  const marks: Mark[] = [];
  for (const event of events.toSorted((a, b) => a.time - b.time)) {
    if (event.time < range.from || event.time > range.to) continue;
    const near = marks.at(-1);
    if (near && event.time - near.time < (range.to - range.from) * MERGED) near.events.push(event);
    else marks.push({ time: event.time, events: [event] });
  }
  return marks;
}

/** What a mark says beside its diamond. */
function markText({ events }: Mark): string {
  if (events.length > 1) return `${formatCount(events.length)} events`;
  const { kind, body, labels } = events[0];
  const number = body.xid ?? labels.xid ?? body.number;
  return kind === 'xid' && number !== undefined ? `Xid ${shown(String(number), 6)}` : shown(kind, 14);
}

/** Xids, resets, remaps and other events over the axis. */
function Events({ events, range }: { events: FleetEvent[]; range: { from: number; to: number } }) {
  const marks = merged(events, range);
  return (
    <div class="owner-strip events">
      <span class="title quiet">events</span>
      <div class="track">
        {marks.map((mark) => {
          const left = ((mark.time - range.from) / (range.to - range.from)) * 100;
          const worst = mark.events.some((e) => e.severity === 'critical')
            ? 'critical'
            : mark.events.some((e) => e.severity === 'warning')
              ? 'warning'
              : 'info';
          return (
            <span
              key={mark.time}
              class={`event ${worst}${left > 85 ? ' left' : ''}`}
              style={{ left: `${left}%` }}
              title={mark.events.map((e) => `${timeTitle(e.time)} ${visible(e.text)}`).join('\n')}
            >
              <svg width="10" height="10" viewBox="0 0 10 10" aria-hidden="true">
                <path d="M5 0 10 5 5 10 0 5z" />
              </svg>
              {markText(mark)}
            </span>
          );
        })}
      </div>
    </div>
  );
}

function Axis({ from, to }: { from: number; to: number }) {
  const [ticks, labels] = xTicks(
    'time',
    from,
    to,
    Math.max(2, Math.floor(window.innerWidth / 150)),
    zone.value,
  );
  return (
    <div class="lane-row axis" aria-hidden="true">
      <span class="quiet">{zone.value === 'utc' ? 'UTC' : 'local time'}</span>
      <div class="lane-plot">
        {ticks.map((tick, at) => (
          <span key={tick} style={{ left: `${((tick - from) / (to - from)) * 100}%` }}>
            {labels[at]}
          </span>
        ))}
      </div>
    </div>
  );
}

function useKeys(card: Card): void {
  useLayoutEffect(() => {
    const group = 'GPU';
    const owner = () => {
      const run = card.gpu.peek()?.owner?.run_id;
      if (!run) return false;
      open(`/r/${encodeURIComponent(run)}${keptQuery()}`);
      return true;
    };
    const back = () => (zoomDepth() > 0 ? window.history.back() : false);
    return bind(
      { keys: 'o', does: 'The owner’s run', group, run: owner },
      { keys: '.', does: 'Half a range later', group, run: () => shift(card.range, 0.5) },
      { keys: ',', does: 'Half a range earlier', group, run: () => shift(card.range, -0.5) },
      { keys: '>', does: 'Half the range', group, run: () => widen(card.range, 0.5) },
      { keys: '<', does: 'Twice the range', group, run: () => widen(card.range, 2) },
      { keys: '0', does: 'Reset the zoom', group, run: () => card.range.choose('-3h', null) },
      { keys: 'Backspace', does: 'Previous zoom', group, run: back },
      { keys: 'Space', does: 'Live or paused', group, run: toggleLive },
      { keys: 'z', does: 'UTC or local time', group, run: switchZone },
      {
        keys: 'Escape',
        does: 'Back to the fleet',
        group,
        run: () => open(`/fleet${param('uuid') ? `?cell=${encodeURIComponent(param('uuid'))}` : ''}`),
      },
    );
  }, [card]);
}
