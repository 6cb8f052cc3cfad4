/** Columns of the run table; each has data behind it. */
import type { ComponentChildren } from 'preact';
import type { Shape } from '../charts/shape';
import { type RunRow, unspell } from '../lib/answers';
import { formatCount, formatValue } from '../lib/number';
import { runPath } from '../lib/route';
import { visible } from '../lib/text';
import { formatFull, formatSpan, formatWhen, type Zone } from '../lib/time';
import { StateMark } from './icons';
import { Link } from './link';
import { Name } from './name';
import { Sparkline } from './sparkline';
import { Tags } from './tags';

/** What a cell may need beside its row. */
export interface CellContext {
  now: number;
  zone: Zone;
  metric: string;
  spark: (row: RunRow) => Shape | undefined;
  /** Changes tags of the row in place; the cell shows an editor while it is being edited. */
  editing: string | null;
  edit: (runId: string | null) => void;
  changeTags: (row: RunRow, add: string[], remove: string[]) => void;
}

/** A column. */
export interface Column {
  id: string;
  title: (context: CellContext) => string;
  /** Name of the sort key; empty for none. */
  sort: string;
  /** A number: right-aligned, and the largest first at the first click. */
  number: boolean;
  width: number;
  /** Takes the room that is left. */
  grows?: boolean;
  cell: (row: RunRow, context: CellContext) => ComponentChildren;
}

/** An absent value and why. */
function Absent({ why }: { why: string }) {
  return (
    <span class="absent" title={why}>
      — <span>{why}</span>
    </span>
  );
}

/** Seconds that a run took or has taken. */
export function elapsedSeconds(row: RunRow, now: number): number | null {
  if (row.state === 'running' && row.started_ms !== null) return Math.max(0, (now - row.started_ms) / 1000);
  return row.elapsed_seconds;
}

function StateCell({ row, context }: { row: RunRow; context: CellContext }) {
  const since = row.state === 'running' ? null : row.state_since_ms;
  const title = [visible(row.state_reason ?? ''), since === null ? null : formatFull(since, context.zone)]
    .filter(Boolean)
    .join(' · ');
  return (
    <span title={title}>
      <StateMark state={row.state} />
      {row.state !== 'finished' && since !== null && (
        <span class="since">
          {' '}
          {row.state === 'stale' ? 'since ' : ''}
          {formatWhen(since, context.now, context.zone)}
        </span>
      )}
    </span>
  );
}

/** All columns in their order. */
export const COLUMNS: Column[] = [
  {
    id: 'state',
    title: () => 'State',
    sort: 'state',
    number: false,
    width: 140,
    cell: (row, context) => <StateCell row={row} context={context} />,
  },
  {
    id: 'run',
    title: () => 'Run',
    sort: 'name',
    number: false,
    width: 240,
    grows: true,
    cell: (row, context) => (
      <span class="run-cell">
        <Link href={runPath(row, row.run_id)} class="run-link" tabIndex={-1}>
          <Name text={row.run} />
        </Link>
        <Tags
          row={row}
          editing={context.editing === row.run_id}
          edit={context.edit}
          change={(add, remove) => context.changeTags(row, add, remove)}
        />
      </span>
    ),
  },
  {
    id: 'project',
    title: () => 'Project',
    sort: '',
    number: false,
    width: 140,
    cell: (row) => (
      <Name
        class="quiet"
        text={[row.organization, row.workspace, row.project].filter(Boolean).join(' / ') || '—'}
        limit={40}
      />
    ),
  },
  {
    id: 'started',
    title: () => 'Started',
    sort: 'started',
    number: false,
    width: 84,
    cell: (row, context) =>
      row.started_ms === null ? (
        <Absent why="not known" />
      ) : (
        <time title={formatFull(row.started_ms, context.zone)}>
          {formatWhen(row.started_ms, context.now, context.zone)}
        </time>
      ),
  },
  {
    id: 'elapsed',
    title: () => 'Elapsed',
    sort: 'elapsed',
    number: true,
    width: 92,
    cell: (row, context) => {
      const seconds = elapsedSeconds(row, context.now);
      return seconds === null ? <Absent why="not known" /> : formatSpan(seconds);
    },
  },
  {
    id: 'step',
    title: () => 'Step',
    sort: 'step',
    number: true,
    width: 84,
    cell: (row) => (row.last_step === null ? <Absent why="no steps" /> : formatCount(row.last_step)),
  },
  {
    id: 'metric',
    title: (context) => `${context.metric}, last · all steps`,
    sort: 'metric',
    number: false,
    width: 236,
    cell: (row, context) => {
      const last = unspell(row.metric?.last);
      return (
        <span class="metric-cell" title={visible(row.metric?.name ?? '')}>
          <Sparkline shape={row.metric ? context.spark(row) : undefined} />
          {last === null ? (
            <Absent why="no value" />
          ) : (
            <b class={Number.isFinite(last) ? '' : 'crit'}>{formatValue(last)}</b>
          )}
        </span>
      );
    },
  },
  {
    id: 'points',
    title: () => 'Points',
    sort: 'points',
    number: true,
    width: 88,
    cell: (row) => formatCount(row.points),
  },
  {
    id: 'hosts',
    title: () => 'Hosts',
    sort: '',
    number: false,
    width: 116,
    cell: (row) =>
      row.hosts.length === 0 ? (
        <Absent why="not known" />
      ) : row.hosts.length === 1 ? (
        <Name class="quiet" text={row.hosts[0]} limit={22} />
      ) : (
        <span class="quiet" title={visible(row.hosts.slice(0, 50).join(', '))}>
          {row.hosts.length} hosts
        </span>
      ),
  },
  {
    id: 'attempts',
    title: () => 'Attempts',
    sort: 'attempts',
    number: true,
    width: 78,
    cell: (row) => formatCount(row.attempts),
  },
];
