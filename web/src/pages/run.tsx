/** One run: its head and tabs. */
import { useSignal } from '@preact/signals';
import { useEffect, useLayoutEffect, useMemo } from 'preact/hooks';
import { Board } from '../charts/board';
import { RunRange } from '../charts/run_range';
import { cadence } from '../charts/sections';
import { Failure } from '../components/failure';
import { StateMark } from '../components/icons';
import { LaterTab } from '../components/later';
import { Link } from '../components/link';
import { Name } from '../components/name';
import { elapsedSeconds } from '../components/run_columns';
import { Tags } from '../components/tags';
import { RangeControl, shift, widen } from '../explore/range_control';
import { HealthStrip } from '../health/strip';
import { open, param, params, setParams } from '../lib/address';
import { now, switchZone, zone } from '../lib/clock';
import { saveCsv } from '../lib/download';
import { bind } from '../lib/keys';
import { alarmCount } from '../lib/missing';
import { formatCount } from '../lib/number';
import { runPath, runsPath, type Scope, TABS, type Tab } from '../lib/route';
import { changeTags } from '../lib/runs';
import { visible } from '../lib/text';
import { formatAge, formatFull, formatSecond, formatSpan, formatWhen } from '../lib/time';
import { tellError } from '../lib/toast';
import { percent } from '../money/quantity';
import { ChartsTab } from './charts';
import { isLive, useRunFeed } from './run_feed';

const TAB_NAMES: Record<Tab, string> = {
  overview: 'Overview',
  charts: 'Charts',
  training: 'Training',
  system: 'System',
  ranks: 'Ranks',
  timeline: 'Timeline',
  missing: 'Missing',
};

const overviewTab = () => import('./overview').then((m) => m.OverviewTab);
const trainingTab = () => import('./training').then((m) => m.TrainingTab);
const systemTab = () => import('./system').then((m) => m.SystemTab);
const ranksTab = () => import('./ranks').then((m) => m.RanksTab);
const timelineTab = () => import('./timeline').then((m) => m.TimelineTab);
const missingTab = () => import('./missing').then((m) => m.MissingTab);

/** Tabs that show the part of the run that is chosen. */
const ZOOMED: ReadonlySet<Tab> = new Set(['overview', 'charts', 'system', 'ranks', 'training']);

/** The page. */
export function RunPage({ scope, runId, tab }: { scope: Scope; runId: string; tab: Tab }) {
  const board = useMemo(() => new Board(runId), [runId]);
  const range = useMemo(() => new RunRange(board), [board]);
  const error = useSignal<unknown>(null);
  const editing = useSignal<string | null>(null);
  const pausedAt = useSignal<{ time: number; points: number } | null>(null);

  const readFacts = useRunFeed(board, error, tab);
  const live = isLive();
  const turn = (by: number) => {
    const next = TABS[TABS.indexOf(tab) + by];
    if (next) open(runPath(scope, runId, next) + window.location.search);
  };
  useEffect(() => {
    pausedAt.value = live ? null : { time: Date.now(), points: board.detail.peek()?.points ?? 0 };
    if (live) void board.load(true);
  }, [live, board]);
  useLayoutEffect(
    () =>
      bind(
        { keys: '[', does: 'Previous tab', group: 'Run', run: () => turn(-1) },
        { keys: ']', does: 'Next tab', group: 'Run', run: () => turn(1) },
        { keys: 't', does: 'Edit tags', group: 'Run', run: () => (editing.value = runId) },
        {
          keys: 'Space',
          does: 'Live or paused',
          group: 'Run',
          run: () => setParams({ live: param('live') === '0' ? null : '0' }),
        },
        { keys: 'z', does: 'UTC or local time', group: 'Run', run: switchZone },
        ...(ZOOMED.has(tab)
          ? [
              { keys: '.', does: 'Half a range later', group: 'Run', run: () => shift(range, 0.5) },
              { keys: ',', does: 'Half a range earlier', group: 'Run', run: () => shift(range, -0.5) },
              { keys: '>', does: 'Half the range', group: 'Run', run: () => widen(range, 0.5) },
              { keys: '<', does: 'Twice the range', group: 'Run', run: () => widen(range, 2) },
            ]
          : []),
      ),
    [runId, tab],
  );

  // The tabs of a run share how it is looked at.
  const query = params.value.size > 0 ? `?${params.value}` : '';
  const detail = board.detail.value;
  if (!detail) return <RunLoading runId={runId} error={error.value} retry={() => void readFacts()} />;
  const missing = board.missing.value ? alarmCount(board.missing.value) : 0;
  const elapsed = elapsedSeconds(detail, now.value);
  const change = async (add: string[], remove: string[]) => {
    try {
      await changeTags([runId], add, remove);
      await readFacts();
    } catch (failure) {
      tellError('cannot change the tags', failure);
    }
  };
  return (
    <main class="run-page">
      <div class="page-bar">
        <h1>
          <Name text={detail.run} />
        </h1>
        <StateMark state={detail.state} pill />
        {detail.state_reason && detail.state !== 'running' && (
          <span class="quiet reason">
            <Name text={detail.state_reason} limit={80} />
          </span>
        )}
        <span class="facts">
          {detail.attempts > 0 && <span>attempt {detail.attempts}</span>}
          {detail.hosts.length > 0 && (
            <span title={visible(detail.hosts.slice(0, 50).join(', '))}>
              {detail.hosts.length === 1 ? (
                <Name text={detail.hosts[0]} limit={30} />
              ) : (
                `${detail.hosts.length} hosts`
              )}
            </span>
          )}
          {detail.last_step !== null && (
            <span>
              step <b>{formatCount(detail.last_step)}</b>
            </span>
          )}
          {elapsed !== null && <span>{formatSpan(elapsed)}</span>}
          <HeadFigures board={board} />
        </span>
        <Tags
          row={detail}
          editing={editing.value === runId}
          edit={(id) => (editing.value = id)}
          change={change}
        />
        <div class="right">
          {ZOOMED.has(tab) ? <RangeControl explore={range} /> : <Times board={board} />}
          <Age board={board} paused={pausedAt.value} />
          <Link class="control" href={`/compare?runs=${encodeURIComponent(runId)}`}>
            Compare
          </Link>
          <button type="button" class="control" onClick={() => void saveCsv(runId, detail.run, null)}>
            Export
          </button>
        </div>
      </div>
      <nav class="tabs" aria-label="Tabs of the run">
        {TABS.map((one) => (
          <Link key={one} href={runPath(scope, runId, one) + query} current={one === tab}>
            {TAB_NAMES[one]}
            {one === 'missing' && missing > 0 && (
              <>
                {' '}
                <span class="count">{formatCount(missing)}</span>
              </>
            )}
          </Link>
        ))}
        <Link href={runsPath(scope)} class="back">
          All runs of {scope.project ? <Name text={scope.project} limit={24} /> : 'this project'}
        </Link>
      </nav>
      {error.value !== null && <Failure error={error.value} retry={() => void readFacts()} />}
      <HealthStrip board={board} scope={scope} tab={tab} />
      {tab === 'charts' && <ChartsTab board={board} />}
      {tab === 'overview' && <LaterTab tab={overviewTab} board={board} />}
      {tab === 'training' && <LaterTab tab={trainingTab} board={board} />}
      {tab === 'system' && <LaterTab tab={systemTab} board={board} />}
      {tab === 'ranks' && <LaterTab tab={ranksTab} board={board} />}
      {tab === 'timeline' && <LaterTab tab={timelineTab} board={board} />}
      {tab === 'missing' && <LaterTab tab={missingTab} board={board} />}
    </main>
  );
}

const HEAD_FIGURES: [key: string, text: string, hint: string, write: (value: number) => string][] = [
  ['ettr_ratio', 'ETTR', 'Share of the wall time that trained what was kept', (v) => v.toFixed(2)],
  ['step_spread_ratio', 'spread', 'Slowest rank’s own step time above the median of all', percent],
];

/** What of the run's health stands in its head; what is not known stands on the Overview, with its reason. */
function HeadFigures({ board }: { board: Board }) {
  const figures = board.health.value?.figures;
  return (
    <>
      {HEAD_FIGURES.map(([key, text, hint, write]) => {
        const value = figures?.[key]?.value ?? null;
        return value === null ? null : (
          <span key={key} title={figures?.[key]?.explain ?? hint}>
            {text} {write(value)}
          </span>
        );
      })}
    </>
  );
}

/** The frame of a run that is not read yet, or can't be. */
export function RunLoading({ runId, error, retry }: { runId: string; error: unknown; retry: () => void }) {
  return (
    <main class="run-page">
      <div class="page-bar">
        <h1>
          Run <Name text={runId} />
        </h1>
      </div>
      {error !== null && <Failure error={error} retry={retry} />}
    </main>
  );
}

/** When the run was, where a part of it cannot be chosen. */
function Times({ board }: { board: Board }) {
  const detail = board.detail.value;
  if (!detail || detail.started_ms === null) return null;
  return (
    <button
      type="button"
      class="plain quiet"
      title="Switch between UTC and local time (z)"
      onClick={switchZone}
    >
      {formatWhen(detail.started_ms, now.value, zone.value)} –{' '}
      {detail.ended_ms === null ? 'now' : formatWhen(detail.ended_ms, now.value, zone.value)}{' '}
      {zone.value === 'utc' ? 'UTC' : 'local'}
    </button>
  );
}

/** How old the newest point is, or since when the page stands still. */
function Age({ board, paused }: { board: Board; paused: { time: number; points: number } | null }) {
  const detail = board.detail.value;
  if (!detail) return null;
  const last = detail.last_time_ms;
  if (detail.state !== 'running' && detail.state !== 'stale') {
    return last === null ? null : (
      <span class="live off" title={formatFull(last, zone.value)}>
        last point {formatWhen(last, now.value, zone.value)}
      </span>
    );
  }
  if (paused) {
    const fresh = Math.max(0, detail.points - paused.points);
    return (
      <span class="live paused" role="status">
        paused at {formatSecond(paused.time, zone.value)}
        {fresh > 0 ? `, ${formatCount(fresh)} new ${fresh === 1 ? 'point' : 'points'}` : ''}
      </span>
    );
  }
  const age = last === null ? null : Math.max(0, Math.floor((now.value - last) / 1000));
  const ahead = last !== null && last > now.value + 5000;
  const every = (cadence(board.metrics.value ?? []) ?? 10_000) / 1000;
  const level =
    age === null || age < Math.max(5, 3 * every) ? 'fresh' : age < Math.max(15, 10 * every) ? 'warn' : 'crit';
  return (
    <span class={`live ${level}`}>
      <span class="dot" />
      {age === null
        ? 'live · waiting for the first point'
        : ahead
          ? `live · clock ${formatSpan((last - now.value) / 1000)} ahead`
          : `live · data age ${formatAge(age)}`}
    </span>
  );
}
