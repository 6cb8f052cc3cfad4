/** Compare: what made the difference between these runs? */

import { effect, useSignal } from '@preact/signals';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import * as view from '../charts/view';
import { CHARTS, CompareBoard, RUNS_MAX } from '../compare/board';
import { type CardKeys, CompareCard } from '../compare/compare_card';
import { Differences, Outcome } from '../compare/tables';
import { Failure } from '../components/failure';
import { Link } from '../components/link';
import { Name } from '../components/name';
import { ResetZoom } from '../components/reset_zoom';
import { LabelledSegments, Toggle } from '../components/segments';
import { param, setParams } from '../lib/address';
import { errorLine, tokenEntered } from '../lib/api';
import { switchZone } from '../lib/clock';
import { slotDash, slotProperty } from '../lib/colour';
import { saveRuns } from '../lib/download';
import { bind } from '../lib/keys';
import { formatCount } from '../lib/number';
import type { Axis } from '../lib/points';
import { runPath } from '../lib/route';
import '../styles/compare.css';

const AXES: { value: Axis; content: string; title: string }[] = [
  { value: 'step', content: 'Step', title: 'By the step of the points' },
  { value: 'relative', content: 'Relative', title: 'By the time since the start of each run' },
  { value: 'time', content: 'Wall time', title: 'By the time of the points' },
];
const LIVE_MS = 15_000;

function columnsFor(width: number): number {
  if (width >= 1200) return 3;
  return width >= 720 ? 2 : 1;
}

/** The page. */
export function ComparePage() {
  const board = useMemo(() => new CompareBoard(), []);
  const [columns, setColumns] = useState(columnsFor(window.innerWidth));
  const pointed = useRef<CardKeys | null>(null);
  const hover = useSignal<string | null>(null);
  useEffect(() => {
    const resize = () => setColumns(columnsFor(window.innerWidth));
    window.addEventListener('resize', resize);
    return () => window.removeEventListener('resize', resize);
  }, []);
  useFeed(board);
  useKeys(board, pointed);
  const charts = board.charts.value;
  const names = board.names.value;
  const none = board.ids().length === 0 && param('ids') === '';
  return (
    <main class="compare">
      <div class="page-bar">
        <h1>Compare</h1>
        <span class="facts">
          <span>{formatCount(board.runs.value.length)} runs</span>
        </span>
        <Chips board={board} hover={(id) => (hover.value = id && JSON.stringify({ group: id }))} />
      </div>
      {none ? (
        <section class="empty">
          <h2>No runs are chosen</h2>
          <p>
            Select runs in the list with <kbd>Space</kbd> and press <kbd>c</kbd>.
          </p>
          <p>
            <Link href="/runs">All runs</Link>
          </p>
        </section>
      ) : (
        <Toolbar board={board} />
      )}
      {board.error.value !== null && (
        <Failure error={board.error.value} retry={() => void board.readRuns()} />
      )}
      {board.unknown.value.map((id) => (
        <p class="gone" role="status" key={id}>
          No run has the <code>nemo.run.id</code> <Name text={id} />
        </p>
      ))}
      {board.missing.value.map(({ id, error }) => (
        <p class="gone" role="status" key={id}>
          Run <code>{id}</code> is left out: {errorLine(error)}
        </p>
      ))}
      <div class="charts" onPointerLeave={() => board.pinned.peek() || board.point(board.axis.peek(), null)}>
        <div class="cards" style={{ '--grid': columns }}>
          {charts.map((chart) => (
            <CompareCard
              key={chart.name}
              board={board}
              chart={chart}
              height={columns === 1 ? 226 : 198}
              hover={hover}
              point={(keys) => (pointed.current = keys)}
            />
          ))}
        </div>
        <Elsewhere board={board} />
        <NothingShared board={board} />
        {names !== null && names.length === 0 && board.runs.value.length > 0 && (
          <p class="nothing">None of these runs has a point.</p>
        )}
        {names !== null && param('only') === '' && names.length > board.shown.value && (
          <p class="nothing">
            <button type="button" class="link" onClick={() => (board.shown.value += CHARTS)}>
              {formatCount(Math.min(CHARTS, names.length - board.shown.value))} more of{' '}
              {formatCount(names.length)} metrics
            </button>
          </p>
        )}
      </div>
      {board.runs.value.length > 0 && (
        <div class="tables">
          <Differences board={board} />
          <Outcome board={board} />
        </div>
      )}
    </main>
  );
}

/** Metrics that were asked for and have no point on this axis. */
function Elsewhere({ board }: { board: CompareBoard }) {
  const drawn = new Set(board.charts.value.map((c) => c.name));
  const absent = drawn.size > 0 ? board.wanted().filter((name) => !drawn.has(name)) : [];
  if (absent.length === 0) return null;
  return (
    <p class="nothing">
      No point on this axis and range:{' '}
      {absent.slice(0, 6).map((name, at) => (
        <span key={name}>
          {at > 0 && ', '}
          <Name text={name} />
        </span>
      ))}
      {absent.length > 6 && ` and ${formatCount(absent.length - 6)} more`}.
      {board.axis.value === 'step' && (
        <>
          {' '}
          <button
            type="button"
            class="link"
            onClick={() => setParams({ x: 'relative', from: null, to: null })}
          >
            Show them over time
          </button>
        </>
      )}
    </p>
  );
}

/** Where no metric is in two of the runs: what each has. */
function NothingShared({ board }: { board: CompareBoard }) {
  const charts = board.charts.value;
  const none = board.outcomes.value?.length === 0 && param('only') === '';
  if (!none || board.runs.value.length < 2 || charts.length === 0) return null;
  return (
    <section class="panel" aria-label="Nothing in common">
      <h2>No metric is in two of these runs</h2>
      <ul>
        {board.runs.value.map((run) => {
          const own = charts.filter((chart) => chart.columns.some((c) => c.runId === run.run_id));
          return (
            <li key={run.run_id}>
              <Name text={board.runName(run.run_id)} limit={28} /> has{' '}
              {own.length === 0 ? 'none of those shown' : own.map((chart) => chart.display).join(', ')}
            </li>
          );
        })}
      </ul>
    </section>
  );
}

function Chips({ board, hover }: { board: CompareBoard; hover: (id: string | null) => void }) {
  const ids = board.ids();
  const alone = board.by.value === 'none';
  return (
    <ul class="chips" aria-label="Runs" onPointerLeave={() => hover(null)}>
      {board.runs.value.map((run) => {
        const slot = board.slotOfRun(run.run_id);
        return (
          <li key={run.run_id} onPointerEnter={() => hover(alone ? run.run_id : null)}>
            {alone && (
              <svg class="swatch" width="18" height="8" aria-hidden="true">
                <path
                  d="M0 4h18"
                  style={{ stroke: `var(${slotProperty(slot)})` }}
                  stroke-dasharray={slotDash(slot).join(' ')}
                />
              </svg>
            )}
            <Link href={runPath(run, run.run_id)}>
              <Name text={board.runName(run.run_id)} limit={28} />
            </Link>
            <button
              type="button"
              aria-label={`Leave out ${board.runName(run.run_id)}`}
              onClick={() => setParams({ runs: ids.filter((id) => id !== run.run_id).join(',') })}
            >
              ×
            </button>
          </li>
        );
      })}
      {ids.length < RUNS_MAX && ids.length > 0 && (
        <li>
          <Link href={`/runs?sel=${encodeURIComponent(ids.join(','))}`} title="Choose in the list">
            + add
          </Link>
        </li>
      )}
    </ul>
  );
}

function Toolbar({ board }: { board: CompareBoard }) {
  const by = board.by.value;
  const attributes = board.differences.value.map((d) => `attribute:${d.key}`);
  const choices = ['none', 'tag', 'host', 'rank', ...attributes];
  if (!choices.includes(by)) choices.push(by);
  const zoomed = param('from') !== '';
  return (
    <div class="toolbar">
      <label>
        <span class="label">Group by</span>{' '}
        <select
          class="control"
          value={by}
          onChange={(e) =>
            setParams({ group: e.currentTarget.value === 'none' ? null : e.currentTarget.value })
          }
        >
          {choices.map((choice) => (
            <option key={choice} value={choice}>
              {choice.replace(/^attribute:/, '')}
            </option>
          ))}
        </select>
      </label>
      <LabelledSegments
        label="x axis"
        choices={AXES}
        value={board.axis.value}
        choose={(axis) => setParams({ x: axis === 'step' ? null : axis, from: null, to: null })}
      />
      <fieldset class="segments" aria-label="Drawing">
        <Toggle on={view.logAll.value} set={(on) => setParams({ log: on ? '1' : null })}>
          log y
        </Toggle>
      </fieldset>
      <span class="right">
        <button
          type="button"
          class="plain"
          title="Every point of these runs as Parquet (e)"
          onClick={() => void saveRuns(board.ids())}
        >
          <kbd>e</kbd> export
        </button>
        <ResetZoom zoomed={zoomed} reset={() => board.resetZoom()} />
      </span>
    </div>
  );
}

/** Reads runs when they change, and points when anything they depend on does. */
function useFeed(board: CompareBoard): void {
  useEffect(() => {
    document.title = 'Compare · truegauge';
    let runs = '';
    let question = '';
    let only = param('only');
    const stop = effect(() => {
      const nowRuns = JSON.stringify([param('runs'), param('ids'), tokenEntered.value]);
      const now = ['group', 'x', 'from', 'to', 'only'].map((name) => param(name));
      const nowQuestion = JSON.stringify([now, board.shown.value]);
      if (nowRuns !== runs) queueMicrotask(() => void board.readRuns());
      else if (nowQuestion !== question) {
        const reckoned = only !== param('only');
        queueMicrotask(() => void Promise.all([board.ask(), reckoned && board.reckon()]));
      }
      only = param('only');
      runs = nowRuns;
      question = nowQuestion;
    });
    const timer = setInterval(() => {
      const lives = board.runs.peek().some((r) => r.state === 'running');
      if (!document.hidden && lives && param('from') === '' && param('live') !== '0') void board.readRuns();
    }, LIVE_MS);
    return () => {
      stop();
      clearInterval(timer);
      board.end();
    };
  }, [board]);
}

function useKeys(board: CompareBoard, pointed: { current: CardKeys | null }): void {
  useLayoutEffect(() => {
    const group = 'Compare';
    const one = 'Chart under the pointer or focus';
    const act = (what: (keys: CardKeys) => void) => () => {
      if (!pointed.current) return false;
      what(pointed.current);
      return true;
    };
    const nextAxis = () => {
      const at = AXES.findIndex((a) => a.value === board.axis.peek());
      const { value } = AXES[(at + 1) % AXES.length];
      setParams({ x: value === 'step' ? null : value, from: null, to: null });
    };
    return bind(
      { keys: 'e', does: 'Export every point of these runs', group, run: () => void saveRuns(board.ids()) },
      { keys: 'x', does: 'Next x axis', group, run: nextAxis },
      { keys: 'l', does: 'Log scale', group, run: () => setParams({ log: view.logAll.peek() ? null : '1' }) },
      { keys: '0', does: 'Reset the zoom', group, run: () => board.resetZoom() },
      { keys: 'Backspace', does: 'Previous zoom', group, run: () => board.back() },
      { keys: 'z', does: 'UTC or local time', group, run: switchZone },
      { keys: 'c', does: 'Pin the cursor', group, run: () => (board.pinned.value = !board.pinned.peek()) },
      { keys: 'ArrowLeft', does: 'Cursor back by one bucket', group: one, run: act((k) => k.step(-1)) },
      { keys: 'ArrowRight', does: 'Cursor on by one bucket', group: one, run: act((k) => k.step(1)) },
      { keys: 'Shift+ArrowLeft', does: 'Cursor back by ten', group: one, run: act((k) => k.step(-10)) },
      { keys: 'Shift+ArrowRight', does: 'Cursor on by ten', group: one, run: act((k) => k.step(10)) },
      { keys: '+', does: 'Zoom in', group: one, run: act((k) => k.zoom(0.5)) },
      { keys: '-', does: 'Zoom out', group: one, run: act((k) => k.zoom(2)) },
    );
  }, [board]);
}
