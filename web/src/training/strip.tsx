/** Where a step's time goes: the parts of each step's wall time, standing on each other. */
import { useComputed, useSignal } from '@preact/signals';
import { useRef } from 'preact/hooks';
import { stepCursor, zoomAt } from '../charts/gestures';
import { ink } from '../charts/model';
import type { Line, Shape } from '../charts/shape';
import { placeText } from '../charts/summary';
import type { CardActions } from '../components/chart_card';
import { Failure } from '../components/failure';
import { param, setParams } from '../lib/address';
import { zone } from '../lib/clock';
import { formatCount, formatValue } from '../lib/number';
import type { Axis } from '../lib/points';
import type { Breakdown } from './answers';
import type { TrainingBoard } from './board';
import { type Frame, Told } from './card';
import { keptSteps, timeAt } from './fold';
import { paintStack } from './paint';
import { columnAt, type Part, type Stack, stackOf } from './parts';
import { type Picture, usePanelPlot } from './use_panel_plot';
import { goodputText, partText, percent, rounded, sumText, whoseText } from './words';

const HEIGHT = 132;
/** Ranks in a list to choose from. */
const RANKS_MAX = 4096;

/** The stack on the page's axis. */
interface Laid {
  stack: Stack;
  axis: Axis;
  /** Where its columns begin and end. */
  left: Float64Array;
  right: Float64Array;
}

/** Lays the columns on an axis; a column is as wide as what it stands for. */
export function lay(stack: Stack, axis: Axis, place: ((step: number) => number) | null): Laid {
  const { x, width } = stack;
  const ends = (at: number) => {
    const next = at + 1 < x.length ? x[at + 1] - x[at] : width;
    return [x[at] - 0.5, x[at] + Math.min(next, 2.5 * width) - 0.5];
  };
  const to = axis === 'step' || !place ? (step: number) => step : place;
  const laid = Array.from(x, (_, at) => ends(at).map(to));
  return {
    stack,
    axis: place ? axis : 'step',
    left: Float64Array.from(laid, ([from]) => from),
    right: Float64Array.from(laid, ([, end]) => end),
  };
}

function laidOf(page: TrainingBoard, breakdown: Breakdown): Laid {
  const stack = stackOf(breakdown);
  const axis = page.axis.value;
  const map = page.board.stepMap.value;
  if (axis === 'step' || !map) return lay(stack, 'step', (step) => step);
  const kept = keptSteps(map);
  const origin = axis === 'relative' ? (page.board.detail.value?.started_ms ?? 0) : 0;
  const scale = axis === 'relative' ? 1000 : 1;
  return lay(stack, axis, (step) => (timeAt(kept, step) - origin) / scale);
}

/** A chart with a cursor and without lines. */
function shapeOfLaid({ stack, left, right }: Laid): Shape {
  const x = left.map((from, at) => (from + right[at]) / 2);
  const none = new Float64Array(x.length).fill(Number.NaN);
  const lines: Line[] = [
    {
      key: '',
      labels: {},
      attempt: 1,
      ghost: false,
      y: none,
      raw: none,
      min: none,
      max: none,
      count: none.map(() => 1),
      breaks: [],
      spacing: stack.width,
    },
  ];
  return { x, lines, marks: [], holes: [], attempts: [], lost: null, total: 1 };
}

/** The parts as a chart of lines, for the table. */
function tableOf({ stack, left, right }: Laid): Shape {
  const x = left.map((from, at) => (from + right[at]) / 2);
  const lines = stack.parts.map((part): Line => {
    const raw = part.share.map((share) => share * 100);
    const count = raw.map((v) => (Number.isFinite(v) ? 1 : 0));
    const labels = { part: part.key };
    const rest = { attempt: 1, ghost: false, breaks: [], spacing: stack.width };
    return { key: part.text, labels, y: raw, raw, min: raw, max: raw, count, ...rest };
  });
  return { x, lines, marks: [], holes: [], attempts: [], lost: null, total: lines.length };
}

/** The strip, or what would fill it. */
export function Strip(props: Frame) {
  const { page } = props;
  const breakdown = page.breakdown.value;
  const error = page.errors.value.get('breakdown');
  const empty = breakdown !== null && breakdown.x.length === 0 && page.zoomed() === null;
  return (
    <section
      class={`panel strip${empty ? ' absent-card' : ''}`}
      aria-label="Where a step's time goes"
      data-panel="breakdown"
    >
      {error !== undefined && <Failure error={error} retry={() => void page.again()} />}
      {empty ? (
        <>
          <h3>Where a step's time goes</h3>
          <div>
            <p>
              Absent:{' '}
              <Told
                text={breakdown.text ?? 'no span of this run tells where an iteration begins'}
                command={breakdown.switch}
              />
            </p>
          </div>
        </>
      ) : (
        <Stacked {...props} breakdown={breakdown} />
      )}
      {breakdown && <p class="quiet">{goodputText(breakdown)}</p>}
    </section>
  );
}

function Stacked(props: Frame & { breakdown: Breakdown | null }) {
  const { page, breakdown } = props;
  const root = useRef<HTMLDivElement>(null);
  const body = useRef<HTMLDivElement>(null);
  const nothing = useSignal<ReadonlySet<string>>(new Set());
  const unhovered = useSignal<string | null>(null);
  const laid = useComputed(() => (page.breakdown.value ? laidOf(page, page.breakdown.value) : null));
  const only = useComputed(() => {
    const wanted = param('part');
    return laid.value?.stack.parts.some((p) => p.key === wanted) ? wanted : null;
  });
  const picture = useComputed<Picture | null>(() => {
    const now = laid.value;
    if (!now || now.stack.x.length === 0) return null;
    const colours = ink.value;
    const single = only.value;
    return {
      axis: now.axis,
      shape: shapeOfLaid(now),
      unit: '%',
      zero: true,
      log: false,
      y: [0, 100],
      stale: null,
      behind: (u) => paintStack(u, now.stack, now, colours, single),
    };
  });
  usePanelPlot(page, picture, root, body, {
    hidden: nothing,
    hover: unhovered,
    wide: (width) => {
      page.wide.value = width;
    },
  });
  const axis = picture.value?.axis ?? 'step';
  const actions: CardActions = {
    full: () => {},
    log: () => {},
    save: () => {},
    explain: () => {},
    table: () =>
      laid.value &&
      props.openTable({ title: "Where a step's time goes", unit: '%', axis, shape: tableOf(laid.value) }),
    zoom: (factor) => zoomAt(page, axis, factor),
    step: (by) => stepCursor(page, axis, picture.peek()?.shape ?? null, by),
  };
  const point = () => props.point(actions);
  const now = laid.value;
  const cursor = page.cursor[axis].value;
  const column = now && cursor !== null ? columnIn(now, cursor) : -1;
  return (
    <>
      <header>
        <h3>
          Where a step's time goes{' '}
          <span class="quiet">% of its wall time · {breakdown ? whoseText(breakdown) : ''}</span>
        </h3>
        <span class="at">{now && column >= 0 && atText(now, column)}</span>
        <RankChoice page={page} />
      </header>
      <div
        class="stack"
        ref={root}
        tabIndex={0}
        role="group"
        aria-label="Parts of each step's wall time"
        style={{ height: `${HEIGHT}px` }}
        onPointerMove={(e) => (e.movementX || e.movementY) && point()}
        onFocusCapture={point}
      >
        <div class="plot" ref={body} role="img" aria-label={now ? inWords(now) : 'not read yet'}>
          {now && now.stack.x.length === 0 && <p class="none">no iteration in this range</p>}
        </div>
      </div>
      {now && <Parts stack={now.stack} column={column} only={only.value} />}
      {breakdown && breakdown.x.length > 0 && <p class="quiet">{sumText(breakdown)}</p>}
      {breakdown && breakdown.x.length > 0 && <Unfilled breakdown={breakdown} />}
    </>
  );
}

/** The column under an x of the axis. */
function columnIn({ left, right }: Laid, x: number): number {
  const at = columnAt(left, x, Infinity);
  return at >= 0 && x < right[at] ? at : -1;
}

function atText({ stack }: Laid, column: number): string {
  const step = `step ${formatCount(stack.x[column])}`;
  return `${step}: ${rounded(stack.wall[column], 's')}`;
}

function inWords({ stack, axis, left, right }: Laid): string {
  if (stack.x.length === 0) return 'no iteration in this range';
  const ends = `${placeText(axis, left[0] + 0.5, zone.value)} to ${placeText(axis, right[right.length - 1] - 0.5, zone.value)}`;
  const parts = stack.parts.filter((p) => p.whole > 0 || p.token === null);
  return `${ends}: ${parts.map((p) => `${p.text} ${percent(p.whole)}`).join(', ')}`;
}

function Parts(props: { stack: Stack; column: number; only: string | null }) {
  const { stack, column, only } = props;
  return (
    <div class="parts" role="group" aria-label="Parts">
      {stack.parts.map((part) => (
        <button
          type="button"
          key={part.key}
          aria-pressed={only === part.key}
          title={`${formatValue(part.seconds, 's')} of ${formatValue(stack.wallSeconds, 's')} that are shown`}
          onClick={() => setParams({ part: only === part.key ? null : part.key })}
        >
          <Swatch part={part} />
          {part.text} <b>{partText(part, column)}</b>
        </button>
      ))}
    </div>
  );
}

function Swatch({ part }: { part: Part }) {
  return part.token === null ? (
    <i class="hatched" aria-hidden="true" />
  ) : (
    <i style={{ background: `var(${part.token})` }} aria-hidden="true" />
  );
}

function RankChoice({ page }: { page: TrainingBoard }) {
  const ranks = page.breakdown.value?.ranks ?? [];
  if (ranks.length < 2) return null;
  const rank = page.rank.value;
  return (
    <select
      class="control"
      aria-label="Whose steps"
      value={rank === null ? '' : String(rank)}
      onChange={(e) => setParams({ rank: e.currentTarget.value || null })}
    >
      <option value="">mean of {formatCount(ranks.length)} ranks</option>
      {ranks.slice(0, RANKS_MAX).map((one) => (
        <option key={one} value={String(one)}>
          rank {one}
        </option>
      ))}
    </select>
  );
}

/** Phases that no span fills, and what would. */
function Unfilled({ breakdown }: { breakdown: Breakdown }) {
  if (breakdown.switches.length === 0) return null;
  return (
    <ul class="unfilled">
      {breakdown.switches.map(({ phase, switch: command, text }) => (
        <li key={phase}>
          <b>{phase.replace(/_/g, ' ')}</b> <Told text={text} command={command} />
        </li>
      ))}
    </ul>
  );
}
