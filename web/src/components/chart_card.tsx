/** A chart: head with readouts, plot, legend, menu and its states. */
import { type ReadonlySignal, useSignal } from '@preact/signals';
import { useMemo, useRef } from 'preact/hooks';
import { type Board, SERIES_MAX } from '../charts/board';
import { stepCursor, zoomAt } from '../charts/gestures';
import { saveImage } from '../charts/image';
import { entriesOf } from '../charts/legend';
import { ink } from '../charts/model';
import type { ChartInfo } from '../charts/sections';
import type { Shape } from '../charts/shape';
import { summary } from '../charts/summary';
import * as view from '../charts/view';
import { zone } from '../lib/clock';
import { copy, saveCsv } from '../lib/download';
import type { Axis } from '../lib/points';
import { LegendList, Readout } from './chart_legend';
import { CoverageBadge } from './coverage';
import { Failure } from './failure';
import { MoreIcon } from './icons';
import { Menu, type MenuItem } from './menu';
import { Name } from './name';
import { Trust } from './trust';
import { usePlot } from './use_plot';

/** Entries in the head; more go below the plot. */
const HEAD_ENTRIES = 3;
const LEGEND_HEIGHT = 40;

/** What keys do to the chart that is pointed at. */
export interface CardActions {
  full: () => void;
  log: () => void;
  save: () => void;
  table: () => void;
  explain: () => void;
  step: (by: number) => void;
  /** Below 1 goes in, around the cursor or the middle. */
  zoom: (factor: number) => void;
}

/** What a card needs. */
export interface CardProps {
  board: Board;
  chart: ChartInfo;
  wide: boolean;
  height: number;
  /** Name of the chart that fills the window, if any. */
  full: ReadonlySignal<string | null>;
  setFull: (name: string | null) => void;
  openTable: (name: string) => void;
  /** Makes these the actions of the keys, while the card is pointed at. */
  point: (actions: CardActions) => void;
}

/** The card. */
export function ChartCard(props: CardProps) {
  const { board, chart } = props;
  const state = board.state(chart.name);
  const root = useRef<HTMLElement>(null);
  const body = useRef<HTMLDivElement>(null);
  const hover = useSignal<string | null>(null);
  const hidden = useSignal<ReadonlySet<string>>(new Set());
  const axis = board.axisOf(chart);
  const full = props.full.value === chart.name;
  const shape = state.loaded.value?.axis === axis ? state.loaded.value.shape : null;
  const entries = useMemo(() => (shape ? entriesOf(shape) : []), [shape]);
  const below = entries.length > HEAD_ENTRIES;

  const canvas = usePlot(board, chart, root, body, { hidden, hover, named: props.wide || full });

  const actions: CardActions = {
    full: () => props.setFull(full ? null : chart.name),
    log: () => view.toggleIn('logs', chart.name),
    save: () => void saveCsv(board.runId, board.detail.peek()?.run ?? board.runId, chart.name),
    table: () => props.openTable(chart.name),
    explain: () => root.current?.querySelector<HTMLElement>('.trust')?.classList.toggle('open'),
    zoom: (factor) => zoomAt(board, board.axisOf(chart), factor),
    step: (by) => stepCursor(board, board.axisOf(chart), state.loaded.peek()?.shape ?? null, by),
  };
  const pointHere = () => props.point(actions);
  const menu = (): MenuItem[] => [
    { text: full ? 'Leave full screen' : 'Full screen', key: 'f', run: actions.full },
    { text: view.isLog(chart.name) ? 'Linear axis' : 'Log axis', key: 'l', run: actions.log },
    ...(chart.help || chart.caveat ? [{ text: 'What it measures', key: 'i', run: actions.explain }] : []),
    { text: 'View as table', key: 'v', run: actions.table },
    { text: 'Copy PromQL', run: () => void copy(promql(chart, board.runId), 'the PromQL selector') },
    { text: 'Copy Python', run: () => void copy(python(chart, board.runId), 'Python') },
    { text: 'Export CSV, every point', key: 'e', run: actions.save },
    {
      text: 'Export PNG',
      run: () => {
        const picture = canvas();
        if (picture)
          saveImage(
            picture,
            ink.peek(),
            chart.name,
            promql(chart, board.runId),
            board.detail.peek()?.run ?? board.runId,
          );
      },
    },
  ];
  const range = board.rangeOf(axis);
  return (
    <section
      ref={root}
      class={`card${props.wide ? ' wide' : ''}${full ? ' full' : ''}`}
      style={{ '--body': `${props.height}px` }}
      aria-label={chart.name}
      data-chart={chart.name}
      tabIndex={0}
      onPointerMove={(e) => (e.movementX || e.movementY) && pointHere()}
      onFocusCapture={pointHere}
    >
      <header>
        <h3>
          <Name text={chart.name} />
        </h3>
        {chart.unit && <span class="unit">{chart.unit}</span>}
        <Trust help={chart.help} caveat={chart.caveat} />
        <Badges chart={chart} axis={axis} shape={shape} drawn={entries.length} />
        <span class={entries.length === 1 ? 'readouts alone' : 'readouts'}>
          {shape &&
            !below &&
            entries.map((entry) => (
              <Readout
                key={entry.id}
                board={board}
                axis={axis}
                shape={shape}
                entry={entry}
                unit={chart.unit}
                alone={entries.length === 1}
                hover={(on) => (hover.value = on && entries.length > 1 ? entry.id : null)}
              />
            ))}
        </span>
        <Menu label={`Actions of ${chart.name}`} items={menu} class="icon-menu">
          <MoreIcon />
        </Menu>
      </header>
      <div
        class="plot"
        ref={body}
        role="img"
        aria-label={summary(chart.name, chart.unit, shape, axis, range, zone.value)}
        style={below ? { bottom: `${LEGEND_HEIGHT}px` } : undefined}
      >
        {shape && shape.lines.length === 0 && shape.marks.length === 0 && (
          <p class="none">no points in this range</p>
        )}
        {shape && shape.marks.length > 0 && !shape.lines.some((l) => l.raw.some(Number.isFinite)) && (
          <p class="none">no finite value: only NaN or infinities came</p>
        )}
      </div>
      {shape && below && (
        <LegendList
          board={board}
          axis={axis}
          shape={shape}
          entries={entries}
          unit={chart.unit}
          hover={(id) => (hover.value = id)}
          hidden={hidden.value}
          setHidden={(next) => (hidden.value = next)}
        />
      )}
      {state.error.value !== null && (
        <Failure error={state.error.value} retry={() => void board.load(true)} />
      )}
    </section>
  );
}

function promql(chart: ChartInfo, runId: string): string {
  return `${chart.promql}{run_id="${runId}"}`;
}

function python(chart: ChartInfo, runId: string): string {
  const query = new URLSearchParams({ format: 'csv', metric: chart.name });
  return `import pandas as pd\n\npoints = pd.read_csv("${window.location.origin}/api/tg/v1/runs/${runId}/export?${query}")\n`;
}

function Badges({
  chart,
  axis,
  shape,
  drawn,
}: {
  chart: ChartInfo;
  axis: Axis;
  shape: Shape | null;
  drawn: number;
}) {
  const log = view.isLog(chart.name);
  const cut = log && shape?.lines.some((l) => l.min.some((v) => v <= 0));
  return (
    <span class="badges">
      {chart.coverage !== null && <CoverageBadge share={chart.coverage} />}
      {log && (
        <span class="badge" title={cut ? 'Values of 0 and below have no place on this axis' : undefined}>
          {cut ? 'log, ≤ 0 left out' : 'log'}
        </span>
      )}
      {axis === 'time' && view.pageAxis.value === 'step' && (
        <span class="badge" title="These points have no steps: they are drawn over wall time">
          ⇄ time
        </span>
      )}
      {shape && shape.total > drawn && (
        <span class="badge">
          {Math.min(drawn, SERIES_MAX)} of {shape.total} shown
        </span>
      )}
    </span>
  );
}
