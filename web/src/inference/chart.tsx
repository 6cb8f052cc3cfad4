/** A chart of a model: head with readouts, plot, menu and its states. */
import { useComputed, useSignal } from '@preact/signals';
import { useMemo, useRef } from 'preact/hooks';
import type uPlot from 'uplot';
import { stepCursor, zoomAt } from '../charts/gestures';
import { entriesOf } from '../charts/legend';
import { factorOf, ink } from '../charts/model';
import type { Shape } from '../charts/shape';
import { summary } from '../charts/summary';
import { LegendList, Readout } from '../components/chart_legend';
import { MoreIcon } from '../components/icons';
import { keptQuery } from '../components/link';
import { Menu } from '../components/menu';
import { Trust } from '../components/trust';
import { useOverlayPlot } from '../components/use_overlay_plot';
import { open } from '../lib/address';
import { zone } from '../lib/clock';
import { copy } from '../lib/download';
import { token } from '../lib/theme';
import type { Model } from './answers';
import { bucketOf, type ChartSpec, promqlOf, type Reset } from './charts';
import type { Inference } from './model';
import { brief } from './words';

const HEAD_ENTRIES = 3;
const LEGEND_HEIGHT = 40;
/** Share of the plot that bars reach at most. */
const BARS = 0.4;
/** Reset marks that stand closer than this share one text, CSS pixels. */
const RESET_WIDTH = 84;
const LEVELS = ['A', 'B', 'C', 'D'] as const;

/** What keys do to the chart that is pointed at. */
export interface ChartKeys {
  step: (by: number) => void;
  zoom: (factor: number) => void;
  log: () => void;
}

/** The card. */
export function ModelChart(props: {
  page: Inference;
  model: Model;
  chart: ChartSpec;
  point: (keys: ChartKeys) => void;
}) {
  const { page, model, chart, point } = props;
  const root = useRef<HTMLElement>(null);
  const body = useRef<HTMLDivElement>(null);
  const hover = useSignal<string | null>(null);
  const hidden = useSignal<ReadonlySet<string>>(new Set());
  const own = useComputed(() => {
    const all = page.pictures.value;
    return all && all.model === page.chosen.value?.model ? (all.charts.get(chart.id) ?? null) : null;
  });
  const read = page.pictures.value?.model === model.model;
  const picture = own.value;
  const shape = picture?.shape ?? null;
  const entries = useMemo(() => (shape ? entriesOf(shape) : []), [shape]);
  const bars = useMemo(() => (picture?.bars ? entriesOf(picture.bars) : []), [picture]);
  const below = entries.length > HEAD_ENTRIES;
  // The head has the unit: where three values stand in it, they need the room.
  const beside = entries.length + bars.length >= HEAD_ENTRIES;
  const log = page.isLog(chart.id, chart.log);
  const unit = chart.unit === '1/s' ? '' : chart.unit;
  const objective = objectiveOf(model, chart);
  useOverlayPlot(page, own, root, body, {
    hidden,
    hover,
    unit,
    zero: true,
    axis: 'time',
    envelope: chart.band !== null,
    log,
    reach: objective?.value,
    behind: (u) => drawBars(u, own.peek()?.bars ?? null),
    above: (u) => {
      drawResets(u, own.peek()?.resets ?? []);
      drawObjective(u, objective, own.peek()?.shape ?? null);
    },
  });
  const keys: ChartKeys = {
    step: (by) => stepCursor(page, 'time', own.peek()?.shape ?? null, by),
    zoom: (factor) => zoomAt(page, 'time', factor),
    log: () => page.toggleLog(chart.id),
  };
  const what = page.describe(chart.metric);
  return (
    <section
      ref={root}
      class="card"
      aria-label={chart.title}
      data-chart={chart.id}
      tabIndex={0}
      onPointerMove={(e) => (e.movementX || e.movementY) && point(keys)}
      onFocusCapture={() => point(keys)}
    >
      <header>
        <h3>{chart.title}</h3>
        {chart.unit && <span class="unit">{chart.unit}</span>}
        <span class="head-note">
          <span class="unit">{chart.note}</span>
        </span>
        {what && (
          <Trust help={what.help} caveat={what.caveat} level={LEVELS.find((level) => level === what.trust)} />
        )}
        <span class="badges">
          {log && <span class="badge">log</span>}
          {chart.badge && <span class="badge">{chart.badge}</span>}
        </span>
        <span class={entries.length + bars.length === 1 ? 'readouts alone' : 'readouts'}>
          {!below &&
            [...entries, ...bars].map((entry) => (
              <Readout
                key={entry.id}
                board={page}
                axis="time"
                shape={bars.includes(entry) ? picture!.bars! : shape!}
                entry={entry}
                unit={beside ? '' : unit}
                alone={false}
                hover={(on) => (hover.value = on && entries.length > 1 ? entry.id : null)}
                about={(value) => bucketText(page, chart, value)}
              />
            ))}
        </span>
        <Menu
          label={`Actions of ${chart.title}`}
          items={() => actions(page, model, chart, keys, log)}
          class="icon-menu"
        >
          <MoreIcon />
        </Menu>
      </header>
      <div
        class="plot"
        ref={body}
        role="img"
        aria-label={summary(chart.title, chart.unit, shape, 'time', page.rangeOf('time'), zone.value)}
        style={below ? { bottom: `${LEGEND_HEIGHT}px` } : undefined}
      >
        {read && entries.length === 0 && <Nothing model={model} chart={chart} />}
      </div>
      {shape && below && (
        <LegendList
          board={page}
          axis="time"
          shape={shape}
          entries={entries}
          unit={unit}
          hover={(id) => (hover.value = id)}
          hidden={hidden.value}
          setHidden={(next) => (hidden.value = next)}
        />
      )}
    </section>
  );
}

/** Between which bounds of the engine's buckets a quantile lies. */
function bucketText(page: Inference, chart: ChartSpec, value: number): string {
  const scale = chart.unit === 'ms' ? 1000 : 1;
  const bucket = bucketOf(page.bounds.value.get(chart.metric) ?? [], value / scale);
  if (!bucket) return '';
  return `somewhere between ${brief(bucket[0] * scale)} and ${brief(bucket[1] * scale)} ${chart.unit}: as fine as the engine’s buckets`;
}

/** Why a chart has no line: in the server's words where it says so. */
function Nothing({ model, chart }: { model: Model; chart: ChartSpec }) {
  const reason = model.values[chart.figure]?.reason;
  return (
    <p class="none">
      {reason
        ? `— unknown: ${reason}`
        : chart.metric.startsWith('model:')
          ? `— not recorded in this range: the rule ${chart.metric} writes it while the server runs`
          : `— unknown: no ${chart.metric} in this range`}
    </p>
  );
}

function actions(page: Inference, model: Model, chart: ChartSpec, keys: ChartKeys, log: boolean) {
  const queries = promqlOf(chart, model.model, page.pictures.peek()?.window ?? '2m');
  const explore = () => {
    const query = new URLSearchParams(keptQuery());
    for (const one of queries) query.append('q', one);
    const span = new URLSearchParams(window.location.search);
    for (const end of ['from', 'to']) if (span.has(end)) query.set(end, span.get(end)!);
    if (!query.has('from')) query.set('from', '-3h');
    open(`/explore?${query}`);
  };
  return [
    { text: log ? 'Linear axis' : 'Log axis', key: 'l', run: keys.log },
    { text: 'Open in Explore, with its table', run: explore },
    { text: 'Copy PromQL', run: () => void copy(queries.join('\n'), 'the PromQL') },
  ];
}

/** Bars from the bottom, on a scale of their own whose end is written. */
function drawBars(u: uPlot, bars: Shape | null): void {
  const line = bars?.lines[0];
  if (!bars || !line) return;
  const most = Math.max(0, ...line.raw.filter(Number.isFinite));
  if (!(most > 0)) return;
  const { ctx, bbox } = u;
  const ratio = window.devicePixelRatio || 1;
  const step = bars.x.length > 1 ? bars.x[1] - bars.x[0] : 1;
  const width = Math.max(ratio, (u.valToPos(step, 'x', true) - u.valToPos(0, 'x', true)) * 0.7);
  ctx.save();
  ctx.fillStyle = ink.peek().series(6);
  bars.x.forEach((time, at) => {
    const value = line.raw[at];
    if (!(value > 0)) return;
    const high = (value / most) * BARS * bbox.height;
    ctx.fillRect(u.valToPos(time, 'x', true) - width / 2, bbox.top + bbox.height - high, width, high);
  });
  ctx.font = ink.peek().font.replace('11px', `${11 * ratio}px`);
  ctx.textAlign = 'right';
  ctx.fillText(
    `${brief(most)}/s`,
    bbox.left + bbox.width - 2 * ratio,
    bbox.top + bbox.height * (1 - BARS) - 3 * ratio,
  );
  ctx.restore();
}

/** An objective in the unit of a chart, and in words; `null` where none is set. */
export function objectiveOf(model: Model, chart: ChartSpec): { value: number; text: string } | null {
  const value = chart.objective && model.objectives?.[chart.objective];
  if (value === null || value === undefined) return null;
  if (chart.objective === 'goodput') return { value, text: `target ${value.toFixed(2)}` };
  const scaled = chart.unit === 'ms' ? value * 1000 : value;
  return { value: scaled, text: `objective ${brief(scaled)} ${chart.unit}` };
}

/** A dashed line at an objective, with its words. */
function drawObjective(
  u: uPlot,
  objective: { value: number; text: string } | null,
  shape: Shape | null,
): void {
  if (!objective) return;
  const { ctx, bbox } = u;
  const ratio = window.devicePixelRatio || 1;
  const y = u.valToPos(objective.value / factorOf(shape?.lines ?? []), 'y', true);
  if (y < bbox.top || y > bbox.top + bbox.height) return;
  ctx.save();
  ctx.strokeStyle = ink.peek().text2;
  ctx.lineWidth = ratio;
  ctx.setLineDash([6 * ratio, 4 * ratio]);
  ctx.beginPath();
  ctx.moveTo(bbox.left, y);
  ctx.lineTo(bbox.left + bbox.width, y);
  ctx.stroke();
  ctx.setLineDash([]);
  ctx.font = ink.peek().font.replace('11px', `${11 * ratio}px`);
  ctx.lineJoin = 'round';
  ctx.lineWidth = 3 * ratio;
  ctx.strokeStyle = ink.peek().panel;
  ctx.fillStyle = ink.peek().text2;
  const above = y - 16 * ratio > bbox.top;
  ctx.textAlign = 'left';
  ctx.textBaseline = above ? 'bottom' : 'top';
  const at: [number, number] = [bbox.left + 8 * ratio, y + (above ? -3 : 4) * ratio];
  ctx.strokeText(objective.text, ...at);
  ctx.fillText(objective.text, ...at);
  ctx.restore();
}

/** A dotted line and a triangle where a counter began anew. */
function drawResets(u: uPlot, resets: Reset[]): void {
  const { ctx, bbox } = u;
  const ratio = window.devicePixelRatio || 1;
  const colour = token('--warn');
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.strokeStyle = colour;
  ctx.fillStyle = colour;
  ctx.lineWidth = ratio;
  ctx.font = ink.peek().fontStrong.replace('11px', `${11 * ratio}px`);
  let written = Number.NEGATIVE_INFINITY;
  for (const { time } of resets) {
    const x = u.valToPos(time, 'x', true);
    const bottom = bbox.top + bbox.height;
    ctx.setLineDash([2 * ratio, 2 * ratio]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bottom);
    ctx.stroke();
    ctx.beginPath();
    ctx.moveTo(x - 4 * ratio, bottom);
    ctx.lineTo(x, bottom - 6 * ratio);
    ctx.lineTo(x + 4 * ratio, bottom);
    ctx.fill();
    if (x - written < RESET_WIDTH * ratio) continue;
    written = x;
    const left = x + RESET_WIDTH * ratio > bbox.left + bbox.width;
    ctx.textAlign = left ? 'right' : 'left';
    ctx.fillText('counter reset', x + (left ? -7 : 7) * ratio, bottom - 8 * ratio);
  }
  ctx.restore();
}
