/** A run's training: is it healthy, and where does a step's time go? */

import { useComputed, useSignal } from '@preact/signals';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { ink } from '../charts/model';
import { divided } from '../charts/shape';
import * as view from '../charts/view';
import type { CardActions } from '../components/chart_card';
import { EventLane, type NamedMark } from '../components/event_lane';
import { Failure } from '../components/failure';
import type { TabProps } from '../components/later';
import { PointTable, type Tabled } from '../components/point_table';
import { ResetZoom } from '../components/reset_zoom';
import { LabelledSegments, Toggle } from '../components/segments';
import { Sentence } from '../components/sentence';
import { param, setParams } from '../lib/address';
import { now, zone } from '../lib/clock';
import { bind } from '../lib/keys';
import { formatCount } from '../lib/number';
import type { Axis } from '../lib/points';
import { formatSpan } from '../lib/time';
import { TrainingBoard } from '../training/board';
import { Absent, type Frame, Panel } from '../training/card';
import { LogPanel } from '../training/log_panel';
import { Overlays } from '../training/overlays';
import { paintSkips } from '../training/paint';
import { absence, instrumentOf, PANELS, type PanelSpec } from '../training/panels';
import { stackOf } from '../training/parts';
import { SpreadPanel } from '../training/spread_panel';
import { StepTimePanel } from '../training/step_time_panel';
import { Strip } from '../training/strip';
import type { Picture } from '../training/use_panel_plot';
import { healthText, notFiniteText, stepText } from '../training/words';
import { useChartKeys } from './chart_keys';
import '../styles/training.css';

const AXES: { value: Axis; content: string; title: string }[] = [
  { value: 'step', content: 'Step', title: 'By iteration; what came without one is moved there by its time' },
  { value: 'relative', content: 'Relative', title: 'Time since the start of the run' },
  { value: 'time', content: 'Wall time', title: 'Time of the points' },
];

/** Panels above the breakdown. */
const FIRST = 6;
const OLD_MS = 60_000;
const STALE_INTERVALS = 10;

function columnsFor(width: number): number {
  if (width >= 1200) return 3;
  return width >= 720 ? 2 : 1;
}

/** The tab. */
export function TrainingTab({ board }: TabProps) {
  const page = useMemo(() => new TrainingBoard(board), [board]);
  const [columns, setColumns] = useState(columnsFor(window.innerWidth));
  const full = useSignal<string | null>(null);
  const table = useSignal<Tabled | null>(null);
  const pointed = useRef<CardActions | null>(null);
  useEffect(() => () => page.end(), [page]);
  useEffect(() => {
    const resize = () => setColumns(columnsFor(window.innerWidth));
    window.addEventListener('resize', resize);
    return () => window.removeEventListener('resize', resize);
  }, []);
  useChartKeys(board, pointed, full);
  useKeys();
  const marks = useComputed<NamedMark[]>(() =>
    PANELS.filter((p) => p.id !== 'mfu').flatMap((p) => {
      const data = page.data.value.get(p.key);
      return data?.axis === page.axis.value ? data.shape.marks.map((m) => ({ ...m, name: p.title })) : [];
    }),
  );
  const frame: Frame = {
    page,
    height: columns === 1 ? 226 : 184,
    narrow: columns === 1,
    full,
    setFull: (id) => {
      full.value = id;
    },
    openTable: (one) => {
      table.value = one;
    },
    point: (actions) => {
      pointed.current = actions;
    },
  };
  const leave = () => {
    if (board.pinned.peek()) return;
    for (const axis of ['step', 'time', 'relative'] as const) board.point(axis, null);
  };
  const failed = page.errors.value.get('training');
  return (
    <div class="training">
      <Toolbar page={page} />
      <Health page={page} />
      {failed !== undefined && <Failure error={failed} retry={() => void page.again()} />}
      <EventLane board={board} axis={page.axis.value} marks={marks.value} attempts={page.attempts()} />
      <div class="charts" onPointerLeave={leave}>
        <div class="cards" style={{ '--grid': columns }}>
          {PANELS.slice(0, FIRST).map((spec) => (
            <Instrumented key={spec.id} spec={spec} {...frame} />
          ))}
        </div>
        <Strip {...frame} />
        <div class="cards" style={{ '--grid': columns }}>
          {PANELS.slice(FIRST).map((spec) => (
            <Instrumented key={spec.id} spec={spec} {...frame} />
          ))}
          <StepTimePanel {...frame} />
          <SpreadPanel {...frame} />
        </div>
        <LogPanel page={page} />
      </div>
      {table.value !== null && <PointTable of={table.value} close={() => (table.value = null)} />}
    </div>
  );
}

function useKeys(): void {
  useLayoutEffect(() => {
    const next = () => {
      const at = AXES.findIndex((a) => a.value === view.pageAxis.peek());
      view.setAxis(AXES[(at + 1) % AXES.length].value);
    };
    const group = 'Training';
    return bind(
      { keys: 'x', does: 'Next x axis', group, run: next },
      { keys: '0', does: 'Reset the zoom', group, run: () => view.resetZoom() },
    );
  }, []);
}

function Toolbar({ page }: { page: TrainingBoard }) {
  const zoomed = param('from') !== '' || param('tfrom') !== '';
  return (
    <div class="toolbar">
      <LabelledSegments label="x axis" choices={AXES} value={view.pageAxis.value} choose={view.setAxis} />
      <fieldset class="segments" aria-label="Drawing">
        <Toggle on={view.logAll.value} set={(on) => setParams({ log: on ? '1' : null })}>
          log y
        </Toggle>
        <Toggle
          on={view.clip.value}
          set={(on) => setParams({ clip: on ? '1' : null })}
          title="Leave the lowest and the highest percent out of the scale"
        >
          clip
        </Toggle>
      </fieldset>
      <Overlays page={page} />
      <span class="right">
        <ResetZoom zoomed={zoomed} reset={() => view.resetZoom()} />
      </span>
    </div>
  );
}

/** The answer in words: whether it is healthy, where a step's time goes, and who says so. */
function Health({ page }: { page: TrainingBoard }) {
  const training = page.training.value;
  if (!training) return <p class="training-health" />;
  const { claim, bad } = healthText(training, zone.value, (time) => page.stepOf(time));
  const breakdown = page.breakdown.value;
  // What stands behind a sentence waits for it, so that nothing moves.
  const settled = breakdown !== null || page.errors.value.has('breakdown');
  const errors = [...page.errors.value].filter(([what]) => what === 'ids');
  return (
    <p class="training-health">
      <b role="status" class={bad ? 'crit' : ''}>
        {claim}
      </b>{' '}
      {breakdown && stepText(stackOf(breakdown))}{' '}
      {settled && (
        <span class="quiet">
          <Sentence text={training.export.text} />
        </span>
      )}
      {page.axis.value !== view.pageAxis.value && (
        <span class="quiet"> No point has a step: drawn over time.</span>
      )}
      {errors.length > 0 && <span class="warning"> The other runs cannot be read.</span>}
    </p>
  );
}

/** The panel of an instrument, or why it has none. */
function Instrumented(props: Frame & { spec: PanelSpec }) {
  const { page, spec, height } = props;
  const training = page.training.value;
  const instrument = instrumentOf(training, spec.key);
  const mfu = training?.mfu;
  const isMfu = spec.id === 'mfu';
  const unit = spec.unit ?? instrument?.unit_meant ?? '';
  const common = { id: spec.id, title: spec.title, unit, height };
  if (training && isMfu && mfu?.is_error) return <Absent {...common} text={mfu.text} command={null} wrong />;
  if (training && isMfu && mfu && mfu.factor === null && (instrument?.present ?? false))
    return <Absent {...common} text={mfu.text} command={null} />;
  if (training && !instrument?.present) {
    const { text, command } = absence(training, spec.key);
    return <Absent {...common} text={text} command={command} />;
  }
  return <Curve {...props} unit={unit} />;
}

function Curve(props: Frame & { spec: PanelSpec; unit: string }) {
  const { page, spec, unit } = props;
  const instrument = instrumentOf(page.training.value, spec.key);
  const isMfu = spec.id === 'mfu';
  const picture = useComputed<Picture | null>(() => {
    const data = page.data.value.get(spec.key);
    const factor = page.training.value?.mfu.factor ?? null;
    if (!data || (isMfu && factor === null)) return null;
    const colours = ink.value;
    const skips = spec.id === 'loss' ? page.skips.value : [];
    return {
      axis: data.axis,
      shape: isMfu ? divided(data.shape, 1 / (100 * factor!)) : data.shape,
      unit,
      zero: spec.zero,
      log: view.isLog(spec.id),
      stale: staleness(page, spec.key),
      ...(skips.length > 0 ? { above: (u) => paintSkips(u, skips, colours) } : {}),
    };
  });
  const data = page.data.value.get(spec.key);
  const error = page.errors.value.get('points');
  return (
    <Panel
      {...props}
      id={spec.id}
      title={spec.title}
      unit={unit}
      help={isMfu ? '' : (page.rowsOf(spec.key)[0]?.help ?? '')}
      caveat={instrument?.caveat ?? ''}
      picture={picture}
      head={<Badges page={page} spec={spec} />}
      note={<Note page={page} spec={spec} />}
      noteLines={isMfu && props.narrow ? 2 : 1}
      metric={instrument?.metric ?? null}
      promql={instrument?.metric ? `${instrument.metric}{run_id="${page.board.runId}"}` : null}
      error={data || error === undefined ? undefined : error}
    />
  );
}

function Badges({ page, spec }: { page: TrainingBoard; spec: PanelSpec }) {
  const data = page.data.value.get(spec.key);
  if (!data) return null;
  return (
    <span class="badges">
      {data.moved && (
        <span class="badge" title="These points came without a step: they stand at the step of their time">
          ⇄ time
        </span>
      )}
      {data.axis === 'time' && view.pageAxis.value === 'step' && (
        <span class="badge" title="These points have no steps: they are drawn over wall time">
          over time
        </span>
      )}
      {data.came < data.total && (
        <span class="badge warn">
          {formatCount(data.came)} of {formatCount(data.total)} read
        </span>
      )}
    </span>
  );
}

/** What is to be known about a panel, below its plot. */
function Note({ page, spec }: { page: TrainingBoard; spec: PanelSpec }) {
  const training = page.training.value;
  if (!training) return null;
  if (spec.id === 'mfu') return <Sentence text={training.mfu.text} />;
  const found = training.non_finite[spec.key];
  const ranks = training.export.ranks.length;
  const over = ranks > 1 ? ` over ${formatCount(ranks)} ranks` : '';
  const bad = found ? notFiniteText(found) + over : '';
  if (spec.id !== 'loss') return bad ? <span class="crit">{bad}</span> : null;
  const skipped = training.skipped.total ?? 0;
  return (
    <>
      <span title="A small triangle on the lower edge is a skip. The counter begins at zero.">
        {formatCount(skipped)} skipped
      </span>
      {bad && <span class="crit"> · {bad}</span>}
    </>
  );
}

/** `4 min old` when the run lives but the series has stopped coming. */
function staleness(page: TrainingBoard, key: string): string | null {
  const state = page.board.detail.value?.state;
  if (state !== 'running' && state !== 'stale') return null;
  const rows = page.rowsOf(key);
  const last = Math.max(0, ...rows.map((r) => r.last_time_ms ?? 0));
  const first = rows[0];
  if (!first || last === 0) return null;
  const every =
    first.points > 1 ? ((first.last_time_ms ?? 0) - (first.first_time_ms ?? 0)) / (first.points - 1) : 0;
  const age = now.value - last;
  if (age <= Math.max(OLD_MS, STALE_INTERVALS * every)) return null;
  return `${formatSpan(Math.floor(age / 60_000) * 60)} old`;
}
