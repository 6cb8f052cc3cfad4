/** Columns of the run table; each has data behind it. */
import type { ComponentChildren } from 'preact';
import type { Shape } from '../charts/shape';
import type { Figure } from '../health/answers';
import { type RunRow, unspell } from '../lib/answers';
import { formatCount, formatValue } from '../lib/number';
import { runPath } from '../lib/route';
import type { RunFigures } from '../lib/run_figures';
import { visible } from '../lib/text';
import { formatFull, formatSpan, formatWhen, type Zone } from '../lib/time';
import { formatUsd, percent } from '../money/quantity';
import { CritIcon, InfoIcon, StateMark, WarnIcon } from './icons';
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
  figures: (row: RunRow) => RunFigures | undefined;
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
  /** Shown only where it is asked for. */
  extra?: boolean;
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

/** How far the slowest rank is from the others; red only where that is a verdict. */
function SpreadCell({ row }: { row: RunRow }) {
  const spread = row.spread ?? null;
  if (spread === null)
    return (
      <span class="absent" title="needs steps of two ranks of a run under way">
        —
      </span>
    );
  return <span class={row.verdict?.level === 'page' ? 'crit' : undefined}>{percent(spread)}</span>;
}

/** A figure of the run; a dash with the reason where there is none. */
function FigureCell({ figure, write }: { figure: Figure | undefined; write: (value: number) => string }) {
  if (!figure) return null;
  if (figure.value === null)
    return (
      <span class="absent" title={visible(figure.reason ?? 'not known')}>
        —
      </span>
    );
  return <span title={visible(figure.explain ?? '')}>{write(figure.value)}</span>;
}

/** The short name of a kind of GPU: `H100` of `NVIDIA H100 80GB HBM3`. */
export function shortGpu(model: string): string {
  const words = model.split(/[\s_-]+/).filter((word) => !/^(nvidia|amd|tesla|instinct|geforce)$/i.test(word));
  return words[0] === 'RTX' || words[0] === 'Quadro' ? words.slice(0, 2).join(' ') : (words[0] ?? model);
}

/** How many GPUs of which kind. */
function GpusCell({ figures }: { figures: RunFigures | undefined }) {
  const model = figures?.gpu_model ?? null;
  if (!figures || figures.gpus.value === null || model === null)
    return <FigureCell figure={figures?.gpus} write={formatCount} />;
  return (
    <span title={visible(model)}>
      {formatCount(figures.gpus.value)} × {visible(shortGpu(model))}
    </span>
  );
}

/** The one sentence that matters: what is wrong, else why the run is not well. */
function VerdictCell({ row }: { row: RunRow }) {
  const { verdict } = row;
  if (!verdict) return row.state_reason ? <Name class="quiet" text={row.state_reason} limit={40} /> : null;
  const level = verdict.level === 'page' || verdict.level === 'warn' ? verdict.level : 'info';
  return (
    <span class={`level ${level}`}>
      {level === 'page' ? <CritIcon /> : level === 'warn' ? <WarnIcon /> : <InfoIcon />}{' '}
      <Name text={verdict.claim} limit={40} />
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
    width: 128,
    cell: (row, context) => <StateCell row={row} context={context} />,
  },
  {
    id: 'run',
    title: () => 'Run',
    sort: 'name',
    number: false,
    width: 160,
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
    width: 104,
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
    width: 76,
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
    width: 76,
    cell: (row, context) => {
      const seconds = elapsedSeconds(row, context.now);
      return seconds === null ? <Absent why="not known" /> : formatSpan(seconds);
    },
  },
  {
    id: 'gpus',
    title: () => 'GPUs',
    sort: '',
    number: false,
    width: 84,
    cell: (row, context) => <GpusCell figures={context.figures(row)} />,
  },
  {
    id: 'step',
    title: () => 'Step',
    sort: 'step',
    number: true,
    width: 72,
    cell: (row) => (row.last_step === null ? <Absent why="no steps" /> : formatCount(row.last_step)),
  },
  {
    id: 'metric',
    title: (context) => `${context.metric}, last · all steps`,
    sort: 'metric',
    number: false,
    width: 184,
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
    id: 'tokens',
    title: () => 'tokens/s',
    sort: '',
    number: true,
    width: 72,
    cell: (row, context) => (
      <FigureCell
        figure={context.figures(row)?.tokens_per_second}
        write={(value) => formatValue(Number(value.toPrecision(3)))}
      />
    ),
  },
  {
    id: 'mfu',
    title: () => 'MFU',
    sort: '',
    number: true,
    width: 60,
    cell: (row, context) => <FigureCell figure={context.figures(row)?.mfu_ratio} write={percent} />,
  },
  {
    id: 'spread',
    title: () => 'Spread',
    sort: '',
    number: true,
    width: 64,
    cell: (row) => <SpreadCell row={row} />,
  },
  {
    id: 'ettr',
    title: () => 'ETTR',
    sort: '',
    number: true,
    width: 60,
    cell: (row, context) => (
      <FigureCell figure={context.figures(row)?.ettr_ratio} write={(value) => value.toFixed(2)} />
    ),
  },
  {
    id: 'cost',
    title: () => 'Cost',
    sort: '',
    number: true,
    width: 72,
    cell: (row, context) => <FigureCell figure={context.figures(row)?.usd} write={formatUsd} />,
  },
  {
    id: 'verdict',
    title: () => 'Verdict',
    sort: '',
    number: false,
    width: 184,
    cell: (row) => <VerdictCell row={row} />,
  },
  {
    id: 'points',
    title: () => 'Points',
    sort: 'points',
    number: true,
    width: 88,
    extra: true,
    cell: (row) => formatCount(row.points),
  },
  {
    id: 'hosts',
    title: () => 'Hosts',
    sort: '',
    number: false,
    width: 116,
    extra: true,
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
    extra: true,
    cell: (row) => formatCount(row.attempts),
  },
];
