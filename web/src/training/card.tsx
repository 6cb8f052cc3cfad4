/** A panel: head with readouts, plot, legend, a note below it, and what is there when nothing came. */
import { type ReadonlySignal, useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useMemo, useRef } from 'preact/hooks';
import { stepCursor, zoomAt } from '../charts/gestures';
import { saveImage } from '../charts/image';
import { entriesOf } from '../charts/legend';
import { ink } from '../charts/model';
import { summary } from '../charts/summary';
import * as view from '../charts/view';
import type { CardActions } from '../components/chart_card';
import { LegendList, Readout } from '../components/chart_legend';
import { Failure } from '../components/failure';
import { MoreIcon } from '../components/icons';
import { Menu, type MenuItem } from '../components/menu';
import { Name } from '../components/name';
import type { Tabled } from '../components/point_table';
import { Sentence } from '../components/sentence';
import { Trust } from '../components/trust';
import { zone } from '../lib/clock';
import { copy, saveCsv } from '../lib/download';
import { shown } from '../lib/text';
import type { TrainingBoard } from './board';
import { type Picture, usePanelPlot } from './use_panel_plot';

const HEAD_ENTRIES = 2;
const LEGEND_HEIGHT = 40;
const NOTE_HEIGHT = 18;

/** What is the same for all panels of the page. */
export interface Frame {
  page: TrainingBoard;
  height: number;
  /** Whether panels stand below each other. */
  narrow: boolean;
  full: ReadonlySignal<string | null>;
  setFull: (id: string | null) => void;
  openTable: (table: Tabled) => void;
  point: (actions: CardActions) => void;
}

/** What a panel needs. */
export interface PanelProps extends Frame {
  id: string;
  title: string;
  unit: string;
  help: string;
  caveat: string;
  picture: ReadonlySignal<Picture | null>;
  /** Stands behind the title, such as badges. */
  head?: ComponentChildren;
  /** Stands below the plot. */
  note?: ComponentChildren;
  /** Lines that the note may take. */
  noteLines?: number;
  /** The metric whose points are exported; the menu leaves out what needs one. */
  metric: string | null;
  promql: string | null;
  /** Why it could not be read. */
  error: unknown;
  wide?: boolean;
}

/** The panel. */
export function Panel(props: PanelProps) {
  const { page, id, title, unit, picture } = props;
  const { board } = page;
  const root = useRef<HTMLElement>(null);
  const body = useRef<HTMLDivElement>(null);
  const hover = useSignal<string | null>(null);
  const hidden = useSignal<ReadonlySet<string>>(new Set());
  const full = props.full.value === id;
  const drawn = picture.value;
  const shape = drawn?.shape ?? null;
  const axis = drawn?.axis ?? page.axis.value;
  const entries = useMemo(() => (shape ? entriesOf(shape) : []), [shape]);
  const below = entries.length > HEAD_ENTRIES;
  const canvas = usePanelPlot(page, picture, root, body, {
    hidden,
    hover,
    wide: (width) => {
      page.width.value = Math.max(width, 1);
    },
  });
  const run = () => board.detail.peek()?.run ?? board.runId;
  const actions: CardActions = {
    full: () => props.setFull(full ? null : id),
    log: () => view.toggleIn('logs', id),
    save: () => props.metric && void saveCsv(board.runId, run(), props.metric),
    table: () => shape && props.openTable({ title, unit, axis, shape }),
    explain: () => root.current?.querySelector<HTMLElement>('.trust')?.classList.toggle('open'),
    zoom: (factor) => zoomAt(page, axis, factor),
    step: (by) => stepCursor(page, axis, picture.peek()?.shape ?? null, by),
  };
  const point = () => props.point(actions);
  const menu = (): MenuItem[] => [
    { text: full ? 'Leave full screen' : 'Full screen', key: 'f', run: actions.full },
    { text: view.isLog(id) ? 'Linear axis' : 'Log axis', key: 'l', run: actions.log },
    ...(props.help || props.caveat ? [{ text: 'What it measures', key: 'i', run: actions.explain }] : []),
    { text: 'View as table', key: 'v', run: actions.table },
    ...(props.promql ? [{ text: 'Copy PromQL', run: () => void copy(props.promql!, 'the PromQL') }] : []),
    ...(props.metric ? [{ text: 'Export CSV, every point', key: 'e', run: actions.save }] : []),
    {
      text: 'Export PNG',
      run: () => {
        const drawnOn = canvas();
        if (drawnOn) saveImage(drawnOn, ink.peek(), title, props.promql ?? title, run());
      },
    },
  ];
  const noteLines = props.noteLines ?? 1;
  const bottom = 4 + (below ? LEGEND_HEIGHT : 0) + (props.note ? NOTE_HEIGHT * noteLines : 0);
  const range = page.rangeOf(axis);
  const finite = shape?.lines.some((l) => l.raw.some(Number.isFinite)) ?? false;
  return (
    <section
      ref={root}
      class={`card${props.wide ? ' wide' : ''}${full ? ' full' : ''}`}
      style={{ '--body': `${props.height}px` }}
      aria-label={title}
      data-panel={id}
      tabIndex={0}
      onPointerMove={(e) => (e.movementX || e.movementY) && point()}
      onFocusCapture={point}
    >
      <header>
        <h3>{title}</h3>
        {unit && <span class="unit">{unit}</span>}
        <Trust help={props.help} caveat={props.caveat} />
        {view.isLog(id) && (
          <span class="badges">
            <span class="badge">log</span>
          </span>
        )}
        {props.head}
        <span class="readouts">
          {shape &&
            !below &&
            entries.map((entry) => (
              <Readout
                key={entry.id}
                board={page}
                axis={axis}
                shape={shape}
                entry={entry}
                unit={unit}
                alone={false}
                hover={(on) => (hover.value = on && entries.length > 1 ? entry.id : null)}
              />
            ))}
        </span>
        <Menu label={`Actions of ${title}`} items={menu} class="icon-menu">
          <MoreIcon />
        </Menu>
      </header>
      <div
        class="plot"
        ref={body}
        role="img"
        aria-label={summary(title, unit, shape, axis, range, zone.value)}
        style={{ bottom: `${bottom}px` }}
      >
        {shape && shape.lines.length === 0 && shape.marks.length === 0 && (
          <p class="none">no points in this range</p>
        )}
        {shape && shape.marks.length > 0 && !finite && (
          <p class="none">no finite value: only NaN or infinities came</p>
        )}
      </div>
      {shape && below && (
        <LegendList
          board={page}
          axis={axis}
          shape={shape}
          entries={entries}
          unit={unit}
          hover={(one) => (hover.value = one)}
          hidden={hidden.value}
          setHidden={(next) => (hidden.value = next)}
        />
      )}
      {props.note && (
        <p class="note" style={{ bottom: `${below ? LEGEND_HEIGHT + 2 : 3}px`, '--lines': noteLines }}>
          {props.note}
        </p>
      )}
      {props.error !== undefined && <Failure error={props.error} retry={() => void page.again()} />}
    </section>
  );
}

/** A panel without points: why, and what fills it. */
export function Absent(props: {
  id: string;
  title: string;
  unit: string;
  height: number;
  text: string;
  command: string | null;
  /** Whether it is a fault and not merely absent. */
  wrong?: boolean;
}) {
  const { title, text, command } = props;
  const word = props.wrong ? 'configuration error' : 'absent';
  return (
    <section
      class={`card absent-card${props.wrong ? ' wrong' : ''}`}
      aria-label={`${title}: ${word}`}
      data-panel={props.id}
      style={{ '--body': `${props.height}px` }}
    >
      <header>
        <h3>{title}</h3>
        <span class="unit">{props.unit}</span>
        {props.wrong && <span class="badge crit">{word}</span>}
      </header>
      <div>
        <p>
          {!props.wrong && 'Absent: '}
          <Told text={text} command={command} />
        </p>
      </div>
    </section>
  );
}

/** A sentence and the switch to copy, which stands behind it unless the sentence names it. */
export function Told({ text, command }: { text: string; command: string | null }) {
  return (
    <>
      <Sentence text={text} />
      {command && (
        <>
          {' '}
          {!text.includes(command) && (
            <code>
              <Name text={command} limit={70} />
            </code>
          )}{' '}
          <button type="button" class="link" onClick={() => void copy(command, 'the switch')}>
            Copy<span class="unseen"> {shown(command)}</span>
          </button>
        </>
      )}
    </>
  );
}
