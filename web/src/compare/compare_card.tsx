/** One metric of all runs. */
import { type ReadonlySignal, useComputed, useSignal } from '@preact/signals';
import { useMemo, useRef } from 'preact/hooks';
import { zeroBelongs } from '../charts/extent';
import { stepCursor, zoomAt } from '../charts/gestures';
import { entriesOf } from '../charts/legend';
import { summary } from '../charts/summary';
import { LegendList, Readout } from '../components/chart_legend';
import { Name } from '../components/name';
import { useOverlayPlot } from '../components/use_overlay_plot';
import { zone } from '../lib/clock';
import { formatCount } from '../lib/number';
import type { CompareBoard, Compared } from './board';

const HEAD_ENTRIES = 2;
const LEGEND_HEIGHT = 40;

/** What keys do to the chart that is pointed at. */
export interface CardKeys {
  step: (by: number) => void;
  zoom: (factor: number) => void;
}

/** What a card needs. */
export interface CardProps {
  board: CompareBoard;
  chart: Compared;
  height: number;
  /** The group that stands out in all cards. */
  hover: ReadonlySignal<string | null>;
  point: (keys: CardKeys) => void;
}

/** The card. */
export function CompareCard({ board, chart, height, hover: everywhere, point }: CardProps) {
  const root = useRef<HTMLElement>(null);
  const body = useRef<HTMLDivElement>(null);
  const own = useSignal<string | null>(null);
  const hover = useComputed(() => own.value ?? everywhere.value);
  const hidden = useSignal<ReadonlySet<string>>(new Set());
  const latest = useSignal(chart);
  latest.value = chart;
  const axis = board.axis.value;
  const entries = useMemo(() => entriesOf(chart.shape), [chart.shape]);
  const below = entries.length > HEAD_ENTRIES;
  const zero = zeroBelongs(chart.display, chart.unit, '');
  useOverlayPlot(board, latest, root, body, { hidden, hover, unit: chart.unit, zero, axis, envelope: true });
  const keys: CardKeys = {
    step: (by) => stepCursor(board, board.axis.peek(), latest.peek().shape, by),
    zoom: (factor) => zoomAt(board, board.axis.peek(), factor),
  };
  const [came, exist] = chart.series;
  const runs = board.runs.value.length;
  return (
    <section
      ref={root}
      class="card"
      style={{ '--body': `${height}px` }}
      aria-label={chart.display}
      data-chart={chart.display}
      tabIndex={0}
      onPointerMove={(e) => (e.movementX || e.movementY) && point(keys)}
      onFocusCapture={() => point(keys)}
    >
      <header>
        <h2>
          <Name text={chart.display} />
        </h2>
        {chart.unit && <span class="unit">{chart.unit}</span>}
        <span class="badges">
          {chart.runs < runs && (
            <span class="badge" title="The others do not have this metric">
              {chart.runs} of {runs} runs
            </span>
          )}
          {came > entries.length && (
            <span class="badge" title="Mean as a line, lowest and highest as a band">
              mean of {formatCount(came)}
              {exist > came && ` of ${formatCount(exist)}`}
            </span>
          )}
        </span>
        <span class="readouts">
          {!below &&
            entries.map((entry) => (
              <Readout
                key={entry.id}
                board={board}
                axis={axis}
                shape={chart.shape}
                entry={entry}
                unit={chart.unit}
                alone={false}
                hover={(on) => (own.value = on ? entry.id : null)}
              />
            ))}
        </span>
      </header>
      <div
        class="plot"
        ref={body}
        role="img"
        aria-label={summary(chart.display, chart.unit, chart.shape, axis, board.rangeOf(axis), zone.value)}
        style={below ? { bottom: `${LEGEND_HEIGHT}px` } : undefined}
      />
      {below && (
        <LegendList
          board={board}
          axis={axis}
          shape={chart.shape}
          entries={entries}
          unit={chart.unit}
          hover={(id) => (own.value = id)}
          hidden={hidden.value}
          setHidden={(next) => (hidden.value = next)}
        />
      )}
    </section>
  );
}
