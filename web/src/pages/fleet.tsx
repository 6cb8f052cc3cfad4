/** Fleet: which card is sick, and who is on it? */
import { type Signal, useSignal } from '@preact/signals';
import { useLayoutEffect, useMemo } from 'preact/hooks';
import { Failure } from '../components/failure';
import { FilterBar } from '../components/filter_bar';
import { CritIcon } from '../components/icons';
import { keptQuery } from '../components/link';
import { Menu } from '../components/menu';
import { LabelledSegments, Segments, Toggle } from '../components/segments';
import { Trust } from '../components/trust';
import { RangeControl, shift, widen } from '../explore/range_control';
import type { Gpu, Incident } from '../fleet/answers';
import { EmptyFleet } from '../fleet/empty';
import { useFeed } from '../fleet/feed';
import { completions, unknownKeys } from '../fleet/filter';
import { HeatMap, neighbour } from '../fleet/heat_map';
import { IncidentList } from '../fleet/incidents';
import { Headline, Inventory } from '../fleet/inventory';
import { BINS, Fleet } from '../fleet/model';
import { counted, gpuKey } from '../fleet/names';
import { toggleLive } from '../fleet/range';
import { FactsLine, SelectionPanel, useDetail } from '../fleet/selection';
import { SIGNALS, unitText } from '../fleet/signals';
import { CardTable } from '../fleet/table';
import { cellText } from '../fleet/words';
import { open, param, setParams } from '../lib/address';
import { errorLine } from '../lib/api';
import { switchZone } from '../lib/clock';
import { copy } from '../lib/download';
import { bind } from '../lib/keys';
import { gpuPath } from '../lib/route';
import { formatAge, formatSpan } from '../lib/time';
import '../styles/fleet.css';

/** Ages of data at which one ought to look, seconds: three and ten of the agent's intervals. */
const OLD = 30;
const VERY_OLD = 100;

const isSame = (error: unknown) => (other: unknown) => errorLine(error) === errorLine(other);

/** What could not be read for the page: where all of it fails for one reason, that is said once. */
function failures(fleet: Fleet): unknown[] {
  const all = [fleet.nodesError.value, fleet.gpusError.value].filter((error) => error !== null);
  return all.filter((error, at) => all.findIndex(isSame(error)) === at);
}

/** The page. */
export function FleetPage() {
  const fleet = useMemo(() => new Fleet(), []);
  const said = useSignal('');
  useFeed(fleet, 'Fleet');
  useKeys(fleet, said);
  const nodes = fleet.nodes.value;
  const gpus = fleet.gpus.value;
  const nothing = nodes !== null && gpus !== null && nodes.nodes.length === 0 && gpus.gpus.length === 0;
  return (
    <main class="fleet">
      <div class="page-bar">
        <h1>Fleet</h1>
        {nodes && !nothing && <Headline answer={nodes} />}
        {nodes && nodes.totals.missing > 0 && (
          <a class="pill crit" href="#inventory">
            <CritIcon /> {counted(nodes.totals.missing, 'GPU')} missing
          </a>
        )}
        {!nothing && <Bar fleet={fleet} />}
      </div>
      {failures(fleet).map((error) => (
        <Failure key={errorLine(error)} error={error} retry={() => void fleet.load()} />
      ))}
      {nothing ? (
        <EmptyFleet />
      ) : (
        <>
          <Toolbar fleet={fleet} />
          <Body fleet={fleet} said={said} />
        </>
      )}
    </main>
  );
}

function Body({ fleet, said }: { fleet: Fleet; said: Signal<string> }) {
  const detail = useDetail(fleet);
  return (
    <div class="columns">
      <MapPanel fleet={fleet} said={said} detail={detail.value} />
      <div class="side">
        {fleet.nodes.value && <Inventory answer={fleet.nodes.value} />}
        <Incidents fleet={fleet} />
        <SelectionPanel fleet={fleet} detail={detail.value} />
      </div>
    </div>
  );
}

function Bar({ fleet }: { fleet: Fleet }) {
  const live = fleet.range.live.value;
  const age = fleet.age.value;
  const tone = age === null || age < OLD ? '' : age < VERY_OLD ? ' warn' : ' crit';
  return (
    <span class="right">
      <RangeControl explore={fleet.range} />
      {'last' in fleet.range.span.value && (
        <span class={`live${live ? tone : ' paused'}`}>
          <Toggle on={live} set={toggleLive} title="Follows the clock (Space)">
            {live && <span class="dot" />} {live ? 'live' : 'paused'}
          </Toggle>
          {age !== null && `data age ${formatAge(age)}`}
        </span>
      )}
      <Menu
        label="Export"
        named
        class="as-control"
        items={() => [
          {
            text: param('view') === 'table' ? 'View as map' : 'View as table',
            key: 'v',
            run: toggleTable,
          },
          { text: 'Cards as CSV', run: () => saveCards(fleet) },
          { text: 'Link with these times', run: () => void copy(fixedLink(fleet), 'the link') },
        ]}
      >
        Export
      </Menu>
    </span>
  );
}

const toggleTable = () => setParams({ view: param('view') === 'table' ? null : 'table' });

function fixedLink(fleet: Fleet): string {
  const { from, to } = fleet.range.range.peek();
  const query = new URLSearchParams(window.location.search);
  query.set('from', String(Math.round(from)));
  query.set('to', String(Math.round(to)));
  return `${window.location.origin}${window.location.pathname}?${query}`;
}

/** Saves what the map shows: a row for each card, a column for each bin. */
function saveCards(fleet: Fleet): void {
  const answer = fleet.gpus.peek();
  if (!answer) return;
  const quote = (value: unknown) => `"${String(value ?? '').replaceAll('"', '""')}"`;
  const times = Array.from({ length: BINS }, (_, at) =>
    new Date(answer.from + at * answer.step_ms).toISOString(),
  );
  const head = ['host', 'gpu', 'uuid', 'model', 'state', 'owner', answer.signal, ...times];
  const rows = fleet.kept
    .peek()
    .map((g) => [
      ...[g.host, g.gpu, g.uuid, g.gpu_model, g.state, g.owner?.run ?? g.owner?.job_id ?? '', g.value],
      ...times.map((_, at) => g.bins?.[at] ?? ''),
    ]);
  const text = [head, ...rows].map((row) => row.map(quote).join(',')).join('\n');
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([`${text}\n`], { type: 'text/csv' }));
  link.download = `fleet-${answer.signal}.csv`;
  link.click();
  URL.revokeObjectURL(link.href);
}

function Toolbar({ fleet }: { fleet: Fleet }) {
  const answer = fleet.gpus.value;
  const gpus = answer?.gpus ?? [];
  const stale = gpus.filter((g) => g.state === 'silent' || g.state === 'missing').length;
  const infos = new Map((answer?.signals ?? []).map((s) => [s.key, s]));
  return (
    <div class="toolbar">
      <LabelledSegments
        label="Colour"
        value={fleet.colour.value.key}
        choose={(key) => setParams({ colour: key === SIGNALS[0].key ? null : key })}
        choices={SIGNALS.map((signal, at) => {
          const info = infos.get(signal.key);
          const caveat = info?.caveat ? `: ${info.caveat}` : '';
          return {
            value: signal.key,
            content: info?.trust === 'D' || signal.key === 'busy' ? <i>{signal.text} ⊘</i> : signal.text,
            title: `${info?.title ?? signal.text}${caveat} (${at + 1})`,
          };
        })}
      />
      <LabelledSegments
        label="Group"
        value={fleet.group.value}
        choose={(group) => setParams({ group: group === 'host' ? null : group })}
        choices={[
          { value: 'host', content: 'host', title: 'Hosts in their order (b)' },
          { value: 'job', content: 'job', title: 'Peers of one job side by side (b)' },
        ]}
      />
      <FilterBar
        value={fleet.filter.value}
        change={(f) => setParams({ f: f || null })}
        complete={(typed) => completions(typed, gpus)}
        unknown={unknownKeys(fleet.filter.value)}
      />
      <span class="right quiet" role="status">
        {answer?.coverage !== null && answer?.coverage !== undefined && (
          <span class={`badge${answer.coverage < 0.9 ? ' warn' : ''}`}>
            coverage {answer.coverage.toFixed(2)}
          </span>
        )}
        {answer && `${(gpus.length - stale).toLocaleString('en-US')} fresh`}
        {stale > 0 && ` · ${stale.toLocaleString('en-US')} stale`}
      </span>
    </div>
  );
}

function MapPanel({ fleet, said, detail }: { fleet: Fleet; said: Signal<string>; detail: Gpu | null }) {
  const answer = fleet.gpus.value;
  const info = fleet.info.value;
  const signal = fleet.drawn.value;
  const empty = answer !== null && fleet.layout.value.rows.length === 0;
  const range = answer ? formatSpan((answer.to - answer.from) / 1000).replace(/ 00 min$/, '') : '';
  const note = answer ? `${range} left to right, ${formatSpan(answer.step_ms / 1000)} a column` : '';
  return (
    <section class="panel map-panel" aria-label="GPUs by host">
      <header>
        <h2>
          {info?.title ?? signal.text} <span class="quiet">{note}</span>
          {info && <Trust help={info.metric} caveat={info.caveat} level={info.trust} />}
        </h2>
        <Legend fleet={fleet} />
      </header>
      {empty ? (
        <p class="nothing">
          {answer.gpus.length > 0 ? (
            <>
              No card is left by this filter.{' '}
              <button type="button" class="link" onClick={() => setParams({ f: null })}>
                Show all
              </button>
            </>
          ) : (
            'No node has told of a GPU.'
          )}
        </p>
      ) : param('view') === 'table' ? (
        <CardTable fleet={fleet} />
      ) : (
        <HeatMap fleet={fleet} said={said} />
      )}
      <FactsLine fleet={fleet} detail={detail} />
    </section>
  );
}

function Legend({ fleet }: { fleet: Fleet }) {
  const { ends, diverging, worse } = fleet.drawn.value;
  const unit = unitText(fleet.info.value?.unit ?? '');
  const stops = diverging
    ? [5, 4, 3, 2, 1].map((at) => `var(--div-${at})`)
    : [1, 2, 3, 4, 5].map((at, place) => `var(--seq-${at}) ${[0, 30, 60, 85, 100][place]}%`);
  const [low, high] = [ends[0] > ends[1] ? '≥' : diverging ? '≤' : '', ends[0] > ends[1] ? '≤' : '≥'];
  const number = (value: number) => `${value}${unit && ` ${unit}`}`;
  return (
    <span class="legend">
      <Segments
        label="What a column keeps"
        value={fleet.agg.value}
        choose={(agg) => setParams({ agg: agg === 'median' ? null : agg })}
        choices={[
          { value: 'median', content: 'median', title: 'The middle value of each column (w)' },
          {
            value: 'worst',
            content: 'worst',
            title: `The ${worse === 'low' ? 'lowest' : 'highest'} value (w)`,
          },
        ]}
      />
      {low} {number(ends[0])}
      <span class="ramp" style={{ background: `linear-gradient(90deg, ${stops.join()})` }} />
      {high} {number(ends[1])}
      <span class="hatched" /> absent
      <span class="xid">
        <svg width="10" height="10" viewBox="0 0 10 10" aria-hidden="true">
          <path d="M5 0 10 5 5 10 0 5z" />
        </svg>{' '}
        Xid
      </span>
    </span>
  );
}

function Incidents({ fleet }: { fleet: Fleet }) {
  const answer = fleet.incidents.value;
  const count = answer?.incidents.filter((i) => i.state === 'open').length ?? 0;
  const select = (incident: Incident) => {
    const all = fleet.gpus.peek()?.gpus ?? [];
    const found = all.find((g) =>
      incident.uuid
        ? g.uuid === incident.uuid
        : g.host === incident.host && (incident.gpu === '' || g.gpu === incident.gpu),
    );
    if (found) fleet.select(found);
    else setParams({ f: `host:${JSON.stringify(incident.host)}` });
  };
  return (
    <section class="panel incident-panel" aria-label="Incidents">
      <h2>
        Incidents <span class="quiet">{answer ? `${count} open, one per cause` : ''}</span>
        <span class="right">
          <Segments
            label="Which incidents"
            value={fleet.all.value ? 'all' : 'open'}
            choose={(which) => setParams({ incidents: which === 'open' ? null : which })}
            choices={[
              { value: 'open', content: 'open' },
              { value: 'all', content: 'all in range' },
            ]}
          />
        </span>
      </h2>
      {fleet.incidentsError.value !== null && !failures(fleet).some(isSame(fleet.incidentsError.value)) && (
        <Failure error={fleet.incidentsError.value} retry={() => void fleet.load()} />
      )}
      {answer && answer.incidents.length === 0 && (
        <p class="quiet calm">
          {fleet.all.value
            ? 'No incident in this range.'
            : `No incident is open: ${counted(fleet.gpus.value?.gpus.length ?? 0, 'GPU')} watched.`}
        </p>
      )}
      {answer && answer.incidents.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="List of incidents">
          <IncidentList answer={answer} select={select} />
        </div>
      )}
    </section>
  );
}

/** Whether keys that move are meant for the map: not while something else has the focus. */
function onMap(): boolean {
  const focused = document.activeElement;
  return focused === null || focused === document.body || focused.closest('.fleet .map') !== null;
}

function useKeys(fleet: Fleet, said: Signal<string>): void {
  useLayoutEffect(() => {
    const group = 'Fleet';
    const move = (right: number, down: number) => () => {
      if (!onMap()) return false;
      const next = neighbour(fleet.layout.peek(), fleet.selected.peek(), right, down);
      const answer = fleet.gpus.peek();
      if (!next || !answer) return true;
      fleet.select(next);
      said.value = cellText(answer, next, -1);
      return true;
    };
    const withCard = (act: (gpu: Gpu) => unknown) => () => {
      const gpu = fleet.selected.peek();
      return gpu && onMap() ? act(gpu) : false;
    };
    const go = (href: string) => {
      const kept = keptQuery();
      open(kept ? href + (href.includes('?') ? kept.replace('?', '&') : kept) : href);
    };
    return bind(
      ...SIGNALS.map((signal, at) => ({
        keys: String(at + 1),
        does: `Colour by ${signal.text}`,
        group,
        run: () => setParams({ colour: at === 0 ? null : signal.key }),
      })),
      { keys: 'ArrowLeft', does: 'The card to the left', group, run: move(-1, 0) },
      { keys: 'ArrowRight', does: 'The card to the right', group, run: move(1, 0) },
      { keys: 'ArrowUp', does: 'The host above', group, run: move(0, -1) },
      { keys: 'ArrowDown', does: 'The host below', group, run: move(0, 1) },
      {
        keys: 'Enter',
        does: 'Page of the card',
        group,
        run: withCard((g) => go(gpuPath(g.host, g.gpu, g.uuid))),
      },
      {
        keys: 'o',
        does: 'The owner’s run',
        group,
        run: withCard((g) => (g.owner?.run_id ? go(`/r/${encodeURIComponent(g.owner.run_id)}`) : false)),
      },
      {
        keys: 'b',
        does: 'Group by host or by job',
        group,
        run: () => setParams({ group: fleet.group.peek() === 'job' ? null : 'job' }),
      },
      {
        keys: 'w',
        does: 'Worst or median of a column',
        group,
        run: () => setParams({ agg: fleet.agg.peek() === 'worst' ? null : 'worst' }),
      },
      { keys: 'v', does: 'Map or table', group, run: toggleTable },
      {
        keys: 'f',
        does: 'Open or fold the row of the card, where a row is one strip',
        group,
        run: withCard((g) =>
          fleet.toggle(fleet.layout.peek().rows[fleet.layout.peek().places.get(gpuKey(g))?.row ?? 0].key),
        ),
      },
      { keys: '.', does: 'Half a range later', group, run: () => shift(fleet.range, 0.5) },
      { keys: ',', does: 'Half a range earlier', group, run: () => shift(fleet.range, -0.5) },
      { keys: '>', does: 'Half the range', group, run: () => widen(fleet.range, 0.5) },
      { keys: '<', does: 'Twice the range', group, run: () => widen(fleet.range, 2) },
      { keys: 'Space', does: 'Live or paused', group, run: toggleLive },
      { keys: 'z', does: 'UTC or local time', group, run: switchZone },
      {
        keys: 'Escape',
        does: 'No card selected',
        group,
        run: () => (param('cell') ? setParams({ cell: null }) : false),
      },
    );
  }, [fleet]);
}
