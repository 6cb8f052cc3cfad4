/** Explore: what exactly is stored, and what does it cost? */
import { effect } from '@preact/signals';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import * as view from '../charts/view';
import { Failure } from '../components/failure';
import { Menu } from '../components/menu';
import { Segments, Toggle } from '../components/segments';
import { Snippet } from '../components/snippet';
import { pythonOf } from '../explore/as_text';
import { askNames } from '../explore/catalogue';
import { Completer } from '../explore/complete';
import { examplesOf } from '../explore/examples';
import { Explore, letterOf } from '../explore/model';
import { QueryBoxes } from '../explore/query_box';
import { type CardKeys, type CardProps, QueryCard } from '../explore/query_card';
import { RangeControl, StepControl, shift, widen } from '../explore/range_control';
import { RuleDialog } from '../explore/rule_dialog';
import { SeriesTable } from '../explore/series_table';
import { Side } from '../explore/side';
import { gridOf } from '../explore/span';
import { CardinalityView, MetricsView } from '../explore/stored';
import { param, paramList, setParams, zoomDepth } from '../lib/address';
import { tokenEntered } from '../lib/api';
import { switchZone } from '../lib/clock';
import { copy } from '../lib/download';
import { bind } from '../lib/keys';
import { shown, visible } from '../lib/text';
import '../styles/explore.css';

type View = 'query' | 'metrics' | 'cardinality';
const VIEWS: View[] = ['query', 'metrics', 'cardinality'];
const LIVE_MS = 10_000;
const HEIGHTS = [420, 260, 220];

const viewNow = (): View => VIEWS.find((v) => v === param('view')) ?? 'query';

/** The page. */
export function ExplorePage() {
  const explore = useMemo(() => new Explore(), []);
  const completer = useMemo(() => new Completer(), []);
  const pointed = useRef<CardKeys | null>(null);
  useFeed(explore);
  useKeys(explore, pointed);
  const now = viewNow();
  const nothing = explore.census.value?.headStats.numSeries === 0;
  return (
    <main class="explore">
      <div class="page-bar">
        <h1>Explore</h1>
        <Segments
          label="View"
          value={now}
          choose={(value) => setParams({ view: value === 'query' ? null : value })}
          choices={[
            { value: 'query', content: 'Query' },
            { value: 'metrics', content: 'Metrics' },
            { value: 'cardinality', content: 'Cardinality' },
          ]}
        />
        {now === 'query' && <Bar explore={explore} />}
      </div>
      {explore.catalogueError.value !== null && (
        <Failure error={explore.catalogueError.value} retry={() => void explore.readCatalogue()} />
      )}
      {now === 'metrics' && <MetricsView explore={explore} />}
      {now === 'cardinality' && <CardinalityView explore={explore} />}
      {now === 'query' && (
        <div class="columns">
          <div class="asked">
            <QueryBoxes explore={explore} completer={completer} />
            {explore.asked.value.length === 0 &&
              (nothing ? <NothingStored /> : <Examples explore={explore} />)}
            {explore.asked.value.map((asked, at) => (
              <CardOrNone
                key={`${letterOf(at)} ${asked.query}`}
                explore={explore}
                asked={asked}
                at={at}
                height={HEIGHTS[Math.min(HEIGHTS.length, explore.asked.value.length) - 1]}
                point={(keys) => (pointed.current = keys)}
              />
            ))}
            <SeriesTable explore={explore} />
          </div>
          <Side explore={explore} />
        </div>
      )}
    </main>
  );
}

function Bar({ explore }: { explore: Explore }) {
  const moves = 'last' in explore.span.value;
  const live = moves && param('live') !== '0';
  const python = () =>
    pythonOf(
      window.location.origin,
      explore.queries(),
      gridOf(explore.range.peek(), explore.step.peek()),
      explore.step.peek(),
    );
  const [rule, setRule] = useState<string | null>(null);
  const asked = explore.asked.value.length > 0;
  return (
    <span class="right">
      <StepControl explore={explore} />
      <RangeControl explore={explore} />
      <fieldset class="segments" aria-label="Drawing">
        {moves && (
          <Toggle on={live} set={toggleLive} title="Asks again as new points come (Space)">
            {live && <span class="dot" />} live
          </Toggle>
        )}
        <Toggle on={view.logAll.value} set={(on) => setParams({ log: on ? '1' : null })}>
          log y
        </Toggle>
      </fieldset>
      {asked && (
        <Menu
          label="Copy"
          named
          class="as-control"
          items={() => [
            { text: 'Python', run: () => void copy(python(), 'Python') },
            { text: 'PromQL', run: () => void copy(explore.queries().join('\n'), 'PromQL') },
            { text: 'Link with these times', run: () => void copy(fixedLink(explore), 'the link') },
          ]}
        >
          Copy as …
        </Menu>
      )}
      {asked && <RuleButton explore={explore} make={setRule} />}
      {rule !== null && <RuleDialog query={rule} close={() => setRule(null)} />}
      <button type="button" class="primary" onClick={() => explore.run()}>
        Run <kbd>Ctrl ⏎</kbd>
      </button>
    </span>
  );
}

/** Makes a rule of the query, or of one of them. */
function RuleButton({ explore, make }: { explore: Explore; make: (query: string) => void }) {
  const queries = explore.queries();
  if (queries.length === 1)
    return (
      <button type="button" class="control" onClick={() => make(queries[0])}>
        Make a rule
      </button>
    );
  return (
    <Menu
      label="Make a rule"
      named
      class="as-control"
      items={() =>
        queries.map((query, at) => ({ text: `${letterOf(at)}  ${shown(query)}`, run: () => make(query) }))
      }
    >
      Make a rule
    </Menu>
  );
}

const toggleLive = () => setParams({ live: param('live') === '0' ? null : '0' });

/** This page at the times that it shows now, whenever it is opened. */
function fixedLink(explore: Explore): string {
  const { from, to } = explore.range.peek();
  const query = new URLSearchParams(window.location.search);
  query.set('from', String(Math.round(from)));
  query.set('to', String(Math.round(to)));
  return `${window.location.origin}${window.location.pathname}?${query}`;
}

/** Asks when the address changes, and again while it is live. */
function useFeed(explore: Explore): void {
  useEffect(() => {
    document.title = 'Explore · truegauge';
    void explore.readCatalogue();
  }, [explore, tokenEntered.value]);
  useEffect(() => {
    let before = '';
    let asked = '';
    const stop = effect(() => {
      const queries = paramList('q');
      const question = JSON.stringify([
        queries,
        param('from'),
        param('to'),
        param('step'),
        tokenEntered.value,
      ]);
      if (viewNow() !== 'query' || question === before) return;
      // Other queries, as after a step back, are put into the boxes; else what is typed there stays.
      if (JSON.stringify(queries) !== asked && queries.length > 0) explore.drafts.value = queries;
      asked = JSON.stringify(queries);
      before = question;
      queueMicrotask(() => void explore.ask());
    });
    const timer = setInterval(() => {
      const live = 'last' in explore.span.peek() && param('live') !== '0' && viewNow() === 'query';
      if (document.hidden || !live || explore.asked.peek().length === 0) return;
      // The next question waits for the answer to this one, and for a step that is new.
      const step = explore.step.peek();
      const due = Date.now() - explore.asOf.peek() >= Math.max(LIVE_MS, step);
      if (due && !explore.asked.peek().some((a) => a.running.peek())) void explore.ask(true);
    }, 1000);
    return () => {
      stop();
      clearInterval(timer);
      explore.end();
    };
  }, [explore]);
}

function useKeys(explore: Explore, pointed: { current: CardKeys | null }): void {
  useLayoutEffect(() => {
    const group = 'Explore';
    const one = 'Chart under the pointer or focus';
    const field = () => document.querySelector<HTMLTextAreaElement>('.box textarea')?.focus();
    const turn = (by: number) => () => {
      const next = VIEWS[(VIEWS.indexOf(viewNow()) + by + VIEWS.length) % VIEWS.length];
      setParams({ view: next === 'query' ? null : next });
    };
    const act = (what: (keys: CardKeys) => void) => () => {
      if (!pointed.current) return false;
      what(pointed.current);
      return true;
    };
    const back = () => (zoomDepth() > 0 ? window.history.back() : explore.resetZoom());
    return bind(
      { keys: 'Ctrl+Enter', does: 'Run the queries', group, run: () => explore.run() },
      { keys: '/', does: 'Type a query', group, run: field },
      { keys: '[', does: 'Previous view', group, run: turn(-1) },
      { keys: ']', does: 'Next view', group, run: turn(1) },
      { keys: '.', does: 'Half a range later', group, run: () => shift(explore, 0.5) },
      { keys: ',', does: 'Half a range earlier', group, run: () => shift(explore, -0.5) },
      { keys: '>', does: 'Half the range', group, run: () => widen(explore, 0.5) },
      { keys: '<', does: 'Twice the range', group, run: () => widen(explore, 2) },
      { keys: '0', does: 'Reset the zoom', group, run: () => explore.resetZoom() },
      { keys: 'Backspace', does: 'Previous zoom', group, run: back },
      { keys: 'l', does: 'Log scale', group, run: () => setParams({ log: view.logAll.peek() ? null : '1' }) },
      { keys: 'Space', does: 'Live or paused', group, run: toggleLive },
      { keys: 'z', does: 'UTC or local time', group, run: switchZone },
      {
        keys: 'c',
        does: 'Pin the cursor',
        group,
        run: () => (explore.pinned.value = !explore.pinned.peek()),
      },
      { keys: 'ArrowLeft', does: 'Cursor back by one step', group: one, run: act((k) => k.step(-1)) },
      { keys: 'ArrowRight', does: 'Cursor on by one step', group: one, run: act((k) => k.step(1)) },
      { keys: 'Shift+ArrowLeft', does: 'Cursor back by ten', group: one, run: act((k) => k.step(-10)) },
      { keys: 'Shift+ArrowRight', does: 'Cursor on by ten', group: one, run: act((k) => k.step(10)) },
      { keys: '+', does: 'Zoom in', group: one, run: act((k) => k.zoom(0.5)) },
      { keys: '-', does: 'Zoom out', group: one, run: act((k) => k.zoom(2)) },
    );
  }, [explore]);
}

/** A query that never had an answer has no card: its box says why. */
function CardOrNone(props: CardProps) {
  const { answer, error } = props.asked;
  return answer.value === null && error.value !== null ? null : <QueryCard {...props} />;
}

/** Queries that have data here, to begin with. */
function Examples({ explore }: { explore: Explore }) {
  const [names, setNames] = useState<Set<string>>(new Set());
  const { from, to } = explore.range.value;
  useEffect(() => {
    let wanted = true;
    askNames(from, to).then(
      (found) => wanted && setNames(new Set(found)),
      // Without names there are no examples: the catalogue tells what is wrong.
      () => {},
    );
    return () => {
      wanted = false;
    };
  }, [from, to]);
  const examples = examplesOf((explore.metrics.value ?? []).filter((m) => names.has(m.name)));
  if (examples.length === 0) return null;
  return (
    <section class="panel" aria-label="Examples">
      <h2>
        Queries that have data here <span class="quiet">a click runs one</span>
      </h2>
      <ul class="examples">
        {examples.map(({ query, says }) => (
          <li key={query}>
            <button type="button" onClick={() => explore.open(query)}>
              <code>{visible(query)}</code>
            </button>
            <span class="quiet">{says}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** A server without a series. */
function NothingStored() {
  return (
    <section class="empty">
      <h2>Nothing is stored yet</h2>
      <p>What comes in can be asked for here at once, by runs and by scrapes.</p>
      <Snippet />
    </section>
  );
}
