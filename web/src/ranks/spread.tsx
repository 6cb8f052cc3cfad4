/** The spread of all ranks over the axis: least, median, greatest, and who is named. */
import { alpha } from '../charts/overlay';
import { valueTicks } from '../charts/ticks';
import { formatTicks, formatValue } from '../lib/number';
import { token } from '../lib/theme';
import { CursorLine } from './heat_map';
import type { Ranks } from './model';
import { type Sheet, useCanvas } from './use_canvas';

const PAD = 8;
/** Ranks that have a line of their own. */
const LINES = 3;

/** Ranks drawn as lines: the selected one, then those that stand out. */
export function lineRanks(model: Ranks): number[] {
  const named = model.named.value.filter((s) => s.out).map((s) => s.rank);
  const selected = model.rank.value;
  const all = selected === null ? named : [selected, ...named.filter((r) => r !== selected)];
  return all.slice(0, LINES);
}

const lineColour = (at: number) => token(['--div-5', '--series-3', '--series-4'][at]);

interface Extent {
  low: number;
  high: number;
}

function extentOf(model: Ranks): Extent | null {
  const ratios = model.ratios.value;
  if (!ratios) return null;
  const low = Math.min(...ratios.low.filter(Number.isFinite));
  const high = Math.max(...ratios.high.filter(Number.isFinite));
  if (!(low <= high)) return null;
  const pad = high > low ? (high - low) * 0.06 : Math.max(Math.abs(high) * 0.05, 1e-12);
  return { low: low - pad, high: high + pad };
}

/** Ticks of the value axis, in the gutter. */
export function SpreadTicks({ model, height }: { model: Ranks; height: number }) {
  const extent = extentOf(model);
  const unit = model.loadedChoice.value?.chart.unit ?? '';
  if (!extent) return <div class="gutter" />;
  const ticks = valueTicks(extent.low, extent.high, 4, unit);
  const labels = formatTicks(ticks, unit);
  return (
    <div class="gutter ticks" aria-hidden="true">
      {ticks.map((tick, at) => (
        <span key={tick} style={{ top: `${yOf(tick, extent, height)}px` }}>
          {labels[at]}
        </span>
      ))}
    </div>
  );
}

const yOf = (value: number, { low, high }: Extent, height: number) =>
  PAD + (1 - (value - low) / (high - low)) * (height - 2 * PAD);

/** The plot; it shares columns and cursor with the map. */
export function Spread({ model, height }: { model: Ranks; height: number }) {
  const canvas = useCanvas((sheet) => draw(model, sheet));
  const columnAt = (event: PointerEvent) => {
    const box = canvas.current!.getBoundingClientRect();
    const columns = model.loaded.peek()?.grid.columns ?? 1;
    return Math.max(0, Math.min(columns - 1, Math.floor(((event.clientX - box.left) / box.width) * columns)));
  };
  return (
    <div
      class="spread"
      style={{ height: `${height}px` }}
      onPointerMove={(event) => model.point(columnAt(event))}
      onPointerLeave={() => model.point(-1)}
    >
      <canvas ref={canvas} role="img" aria-label={spreadText(model)} />
      <CursorLine model={model} />
    </div>
  );
}

function spreadText(model: Ranks): string {
  const ratios = model.ratios.value;
  const unit = model.loadedChoice.value?.chart.unit ?? '';
  const last = ratios?.present.findLastIndex((n) => n > 0) ?? -1;
  if (!ratios || last < 0) return 'no values yet';
  return `Spread of ${model.standings.value.length} ranks; at the end least ${formatValue(ratios.low[last], unit)}, median ${formatValue(ratios.median[last], unit)}, greatest ${formatValue(ratios.high[last], unit)}`;
}

function draw(model: Ranks, { ctx, width, height, ink }: Sheet): void {
  const [loaded, ratios, extent] = [model.loaded.value, model.ratios.value, extentOf(model)];
  if (!loaded || !ratios || !extent) return;
  const { columns, values, ranks } = loaded.grid;
  const x = (column: number) => ((column + 0.5) / columns) * width;
  const y = (value: number) => yOf(value, extent, height);
  const unit = model.loadedChoice.value?.chart.unit ?? '';
  ctx.fillStyle = ink.grid;
  for (const tick of valueTicks(extent.low, extent.high, 4, unit))
    ctx.fillRect(0, Math.round(y(tick)), width, 1);
  const half = Math.max(0.5, width / columns / 2);
  ctx.fillStyle = alpha(ink.peer, 0.3);
  for (let at = 0; at < columns; at++) {
    if (ratios.present[at] === 0) continue;
    const [top, bottom] = [y(ratios.high[at]), y(ratios.low[at])];
    ctx.fillRect(x(at) - half, top, 2 * half, Math.max(1, bottom - top));
  }
  const line = (of: (column: number) => number, colour: string, wide: number) => {
    ctx.strokeStyle = colour;
    ctx.lineWidth = wide;
    ctx.beginPath();
    let down = false;
    for (let at = 0; at < columns; at++) {
      const value = of(at);
      if (!Number.isFinite(value)) {
        down = false;
        continue;
      }
      if (down) ctx.lineTo(x(at), y(value));
      else ctx.moveTo(x(at) - half, y(value));
      down = true;
      ctx.lineTo(x(at) + half, y(value));
    }
    ctx.stroke();
  };
  line((at) => ratios.median[at], ink.text2, 1.4);
  lineRanks(model).forEach((rank, at) => {
    const row = ranks.indexOf(rank);
    if (row >= 0) line((column) => values[row * columns + column], lineColour(at), 1.4);
  });
}

/** What the spread is at the cursor. */
export function SpreadReadout({ model }: { model: Ranks }) {
  const [loaded, ratios, column] = [model.loaded.value, model.ratios.value, model.shown.value];
  const unit = model.loadedChoice.value?.chart.unit ?? '';
  if (!loaded || !ratios || column < 0) return <div class="at-cursor" />;
  const { columns, values, ranks } = loaded.grid;
  const value = (rank: number) => values[ranks.indexOf(rank) * columns + column];
  return (
    <dl class="at-cursor">
      {lineRanks(model).map((rank, at) => (
        <div key={rank}>
          <dt>
            <i style={{ background: `var(${['--div-5', '--series-3', '--series-4'][at]})` }} /> rank {rank}
          </dt>
          <dd>{Number.isNaN(value(rank)) ? 'absent' : formatValue(value(rank), unit)}</dd>
        </div>
      ))}
      {(['high', 'median', 'low'] as const).map((which) => (
        <div key={which}>
          <dt>{{ high: 'greatest', median: `median of ${ratios.present[column]}`, low: 'least' }[which]}</dt>
          <dd>{Number.isNaN(ratios[which][column]) ? 'absent' : formatValue(ratios[which][column], unit)}</dd>
        </div>
      ))}
    </dl>
  );
}
