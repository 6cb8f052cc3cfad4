/** A chart: head with readouts, plot, legend, menu and its states. */
import { effect, type ReadonlySignal, useComputed, useSignal } from '@preact/signals';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { type Board, SERIES_MAX } from '../charts/board';
import { valueRange, zeroBelongs } from '../charts/extent';
import { saveImage } from '../charts/image';
import { readInk } from '../charts/ink';
import { type Entry, entriesOf, entryText, readAt } from '../charts/legend';
import { type Look, Plot } from '../charts/plot';
import { confine, shift, zoomAround } from '../charts/range';
import type { ChartInfo } from '../charts/sections';
import type { Shape } from '../charts/shape';
import { summary } from '../charts/summary';
import * as view from '../charts/view';
import { now, zone } from '../lib/clock';
import { slotDash, slotProperty } from '../lib/colour';
import { copy, saveCsv } from '../lib/download';
import type { Axis } from '../lib/points';
import { labelText } from '../lib/text';
import { themePainted } from '../lib/theme';
import { formatSpan } from '../lib/time';
import { Failure } from './failure';
import { MoreIcon } from './icons';
import { Menu, type MenuItem } from './menu';
import { Name } from './name';
import { Trust } from './trust';

/** Entries in the head; more go below the plot. */
const HEAD_ENTRIES = 3;
const LEGEND_HEIGHT = 40;
const STALE_INTERVALS = 10;

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
  point: (name: string, actions: CardActions) => void;
}

/** The card. */
export function ChartCard(props: CardProps) {
  const { board, chart } = props;
  const state = board.state(chart.name);
  const root = useRef<HTMLElement>(null);
  const body = useRef<HTMLDivElement>(null);
  const plot = useRef<Plot | null>(null);
  const seen = useSignal(false);
  const size = useSignal<[number, number]>([0, 0]);
  const hover = useSignal<string | null>(null);
  const hidden = useSignal<ReadonlySet<string>>(new Set());
  const axis = board.axisOf(chart);
  const full = props.full.value === chart.name;
  const shape = state.loaded.value?.axis === axis ? state.loaded.value.shape : null;
  const entries = useMemo(() => (shape ? entriesOf(shape) : []), [shape]);
  const below = entries.length > HEAD_ENTRIES;
  const stale = useStale(board, chart);

  useEffect(() => {
    const box = body.current!;
    const watch = new IntersectionObserver(
      (changes) => {
        const here = changes[changes.length - 1].isIntersecting;
        seen.value = here;
        board.see(chart.name, here, box.clientWidth);
      },
      { rootMargin: '160px' },
    );
    const resize = new ResizeObserver(() => {
      size.value = [box.clientWidth, box.clientHeight];
      board.state(chart.name).width = box.clientWidth;
    });
    watch.observe(root.current!);
    resize.observe(box);
    return () => {
      watch.disconnect();
      resize.disconnect();
      board.see(chart.name, false, box.clientWidth);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [board, chart.name]);

  useEffect(() => {
    const events = plotEvents(board, () => board.axisOf(chart), root);
    const stop = effect(() => {
      void themePainted.value;
      const loaded = state.loaded.value;
      const [width, height] = size.value;
      const ax = board.axisOf(chart);
      if (!seen.value || !loaded || loaded.axis !== ax || width < 40 || height < 40) {
        if (!seen.value) {
          plot.current?.destroy();
          plot.current = null;
        }
        return;
      }
      const log = view.isLog(chart.name);
      const drawn = onlyShown(loaded.shape, hidden.value);
      const range = board.rangeOf(ax);
      const choice = {
        envelope: view.envelope.value && !view.smooth.value,
        clip: view.clip.value,
        log,
        zero: zeroBelongs(chart.name, chart.unit, chart.kind),
      };
      const y = valueRange(
        drawn.x,
        drawn.lines.map((l) => ({ y: l.raw, min: l.min, max: l.max })),
        range.from,
        range.to,
        choice,
      );
      const ink = readInk();
      plot.current ??= new Plot(body.current!, events);
      plot.current.render({
        shape: drawn,
        looks: drawn.lines.map((line) => look(board, ink, JSON.stringify(line.labels), line, hover.value)),
        range,
        y: y ?? (log ? [1, 10] : [0, 1]),
        log,
        envelope: view.envelope.value,
        axis: ax,
        zone: zone.value,
        unit: chart.unit,
        ink,
        width,
        height,
        stale: stale.value,
        named: props.wide || props.full.value === chart.name,
      });
      plot.current.follow(board.cursor[ax].peek());
    });
    const follow = effect(() => plot.current?.follow(board.cursor[board.axisOf(chart)].value));
    return () => {
      stop();
      follow();
    };
  }, [board, chart, state, props.wide]);

  const actions: CardActions = {
    full: () => props.setFull(full ? null : chart.name),
    log: () => view.toggleIn('logs', chart.name),
    save: () => void saveCsv(board.runId, board.detail.peek()?.run ?? board.runId, chart.name),
    table: () => props.openTable(chart.name),
    explain: () => root.current?.querySelector<HTMLElement>('.trust')?.classList.toggle('open'),
    zoom: (factor) => zoomAt(board, board.axisOf(chart), factor),
    step: (by) => stepCursor(board, board.axisOf(chart), state.loaded.peek()?.shape ?? null, by),
  };
  const pointHere = () => props.point(chart.name, actions);
  const menu = (): MenuItem[] => [
    { text: full ? 'Leave full screen' : 'Full screen', key: 'f', run: actions.full },
    { text: view.isLog(chart.name) ? 'Linear axis' : 'Log axis', key: 'l', run: actions.log },
    { text: 'View as table', key: 'v', run: actions.table },
    { text: 'Copy PromQL', run: () => void copy(promql(chart, board.runId), 'the PromQL selector') },
    { text: 'Copy Python', run: () => void copy(python(chart, board.runId), 'Python') },
    { text: 'Export CSV, every point', key: 'e', run: actions.save },
    {
      text: 'Export PNG',
      run: () => {
        const canvas = plot.current?.canvas;
        if (canvas)
          saveImage(
            canvas,
            readInk(),
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
      onPointerEnter={pointHere}
      onFocusCapture={pointHere}
    >
      <header>
        <h3>
          <Name text={chart.name} />
        </h3>
        {chart.unit && <span class="unit">{chart.unit}</span>}
        <Trust help={chart.help} caveat={chart.caveat} />
        {view.isLog(chart.name) && <span class="badge">log</span>}
        {axis === 'time' && view.pageAxis.value === 'step' && (
          <span class="badge" title="These points have no steps: they are drawn over wall time">
            ⇄ time
          </span>
        )}
        {shape && shape.total > entries.length && (
          <span class="badge">
            {Math.min(entries.length, SERIES_MAX)} of {shape.total} shown
          </span>
        )}
        <span class="readouts">
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

function look(
  board: Board,
  ink: ReturnType<typeof readInk>,
  id: string,
  line: { labels: Record<string, string>; ghost: boolean },
  hover: string | null,
): Look {
  const slot = board.slot(line.labels);
  const back = hover !== null && hover !== id;
  return {
    slot,
    stroke: ink.series(slot),
    dash: line.ghost ? [2, 2] : slotDash(slot),
    alpha: (line.ghost ? 0.6 : 1) * (back ? 0.3 : 1),
  };
}

function onlyShown(shape: Shape, hidden: ReadonlySet<string>): Shape {
  if (hidden.size === 0) return shape;
  return { ...shape, lines: shape.lines.filter((l) => !hidden.has(JSON.stringify(l.labels))) };
}

/** `4 min old` when the run lives but this series has stopped coming. */
function useStale(board: Board, chart: ChartInfo): ReadonlySignal<string | null> {
  return useComputed(() => {
    const state = board.detail.value?.state;
    if (state !== 'running' && state !== 'stale') return null;
    const row = chart.series[0];
    const last = Math.max(...chart.series.map((s) => s.last_time_ms ?? 0));
    const every = row.points > 1 ? (last - (row.first_time_ms ?? last)) / (row.points - 1) : 0;
    const age = now.value - last;
    return age > Math.max(60_000, STALE_INTERVALS * every)
      ? `${formatSpan(Math.floor(age / 60_000) * 60)} old`
      : null;
  });
}

function plotEvents(board: Board, axis: () => Axis, root: { current: HTMLElement | null }) {
  const set = (next: { from: number; to: number }, goesOn: boolean) => {
    const full = board.full[axis()].peek();
    const kept = full ? confine(next, full) : next;
    view.setZoom(axis(), kept, goesOn);
  };
  let wheeling: ReturnType<typeof setTimeout> | undefined;
  let panning = false;
  return {
    zoom: (range: { from: number; to: number }) => set(range, false),
    reset: () => view.resetZoom(),
    cursor: (x: number | null) => {
      if (!board.pinned.peek()) board.cursor[axis()].value = x;
    },
    wheel: (event: WheelEvent, at: number) => {
      // A bare wheel scrolls the page unless the card has the focus.
      const focused = root.current?.contains(document.activeElement);
      if (!event.ctrlKey && !event.metaKey && !focused) return;
      event.preventDefault();
      const factor = Math.exp(Math.sign(event.deltaY) * Math.min(0.5, Math.abs(event.deltaY) / 300));
      set(zoomAround(board.rangeOf(axis()), at, factor), wheeling !== undefined);
      clearTimeout(wheeling);
      wheeling = setTimeout(() => {
        wheeling = undefined;
      }, 500);
    },
    pan: (share: number, ended: boolean) => {
      if (!ended && share !== 0) {
        set(shift(board.rangeOf(axis()), share), panning);
        panning = true;
      }
      if (ended) panning = false;
    },
  };
}

/** Zooms around the cursor, or around the middle. */
function zoomAt(board: Board, axis: Axis, factor: number): void {
  const range = board.rangeOf(axis);
  const next = zoomAround(range, board.cursor[axis].peek() ?? (range.from + range.to) / 2, factor);
  const full = board.full[axis].peek();
  view.setZoom(axis, full ? confine(next, full) : next);
}

/** Moves the cursor by buckets of this chart. */
function stepCursor(board: Board, axis: Axis, shape: Shape | null, by: number): void {
  if (!shape || shape.x.length === 0) return;
  const { from, to } = board.rangeOf(axis);
  const inside = Array.from(shape.x).filter((x) => x >= from && x <= to);
  const now = board.cursor[axis].peek();
  const at = now === null ? (by > 0 ? -1 : inside.length) : inside.findLastIndex((x) => x <= now + 1e-9);
  board.cursor[axis].value = inside[Math.min(inside.length - 1, Math.max(0, at + by))] ?? null;
}

function promql(chart: ChartInfo, runId: string): string {
  return `${chart.promql}{run_id="${runId}"}`;
}

function python(chart: ChartInfo, runId: string): string {
  const query = new URLSearchParams({ format: 'csv', metric: chart.name });
  return `import pandas as pd\n\npoints = pd.read_csv("${window.location.origin}/api/tg/v1/runs/${runId}/export?${query}")\n`;
}

function Swatch({ board, entry }: { board: Board; entry: Entry }) {
  const slot = board.slot(entry.labels);
  return (
    <svg class="swatch" width="18" height="8" aria-hidden="true">
      <path
        d="M0 4h18"
        style={{ stroke: `var(${slotProperty(slot)})` }}
        stroke-dasharray={slotDash(slot).join(' ')}
      />
    </svg>
  );
}

interface ReadoutProps {
  board: Board;
  axis: Axis;
  shape: Shape;
  entry: Entry;
  unit: string;
  alone: boolean;
  hover: (on: boolean) => void;
}

function Readout({ board, axis, shape, entry, unit, alone, hover }: ReadoutProps) {
  const reading = readAt(shape, entry, board.cursor[axis].value, unit);
  const text = entryText(entry);
  const attempt = shape.attempts.length > 1 && reading ? `attempt ${reading.attempt}` : '';
  return (
    <span
      class="readout"
      title={[labelText(entry.labels), reading?.spread && `min–max ${reading.spread}`]
        .filter(Boolean)
        .join(' · ')}
      onPointerEnter={() => hover(true)}
      onPointerLeave={() => hover(false)}
    >
      <Swatch board={board} entry={entry} />
      {(text || attempt) && <span class="what">{[text, attempt].filter(Boolean).join(' · ')}</span>}
      <b class={reading && !Number.isFinite(reading.value) ? 'crit' : ''}>
        {reading ? reading.text : 'absent'}
      </b>
      {alone && reading?.spread && (
        <span class="spread">
          min–max <b>{reading.spread}</b>
        </span>
      )}
    </span>
  );
}

interface LegendProps {
  board: Board;
  axis: Axis;
  shape: Shape;
  entries: Entry[];
  unit: string;
  hidden: ReadonlySet<string>;
  setHidden: (hidden: ReadonlySet<string>) => void;
  hover: (id: string | null) => void;
}

/** Sorted by the value at the cursor; click for one alone, `Ctrl` and click to switch one. */
function LegendList({ board, axis, shape, entries, unit, hidden, setHidden, hover }: LegendProps) {
  const cursor = board.cursor[axis].value;
  const read = entries
    .map((entry) => ({ entry, reading: readAt(shape, entry, cursor, unit) }))
    .sort((a, b) => (b.reading?.value ?? -Infinity) - (a.reading?.value ?? -Infinity));
  const click = (event: MouseEvent, id: string) => {
    const others = entries.map((e) => e.id).filter((other) => other !== id);
    if (event.ctrlKey || event.metaKey) {
      const next = new Set(hidden);
      if (!next.delete(id)) next.add(id);
      setHidden(next);
    } else setHidden(others.every((o) => hidden.has(o)) && !hidden.has(id) ? new Set() : new Set(others));
  };
  return (
    <div class="legend" role="group" aria-label="Series" onPointerLeave={() => hover(null)}>
      {read.map(({ entry, reading }) => (
        <button
          type="button"
          key={entry.id}
          tabIndex={-1}
          aria-pressed={!hidden.has(entry.id)}
          title={labelText(entry.labels)}
          onPointerEnter={() => hover(hidden.has(entry.id) ? null : entry.id)}
          onClick={(e) => click(e, entry.id)}
        >
          <Swatch board={board} entry={entry} />
          <span class="what">{entryText(entry) || 'all'}</span>
          <b>{reading?.text ?? 'absent'}</b>
        </button>
      ))}
    </div>
  );
}
