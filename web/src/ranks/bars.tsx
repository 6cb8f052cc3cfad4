/** One bar a rank at the cursor: its own value, and what it waited above. */
import { type Signal, useSignal } from '@preact/signals';
import { valueTicks } from '../charts/ticks';
import { zone } from '../lib/clock';
import { formatTicks, formatValue } from '../lib/number';
import { shown } from '../lib/text';
import { sideColours } from './dots';
import type { Cell } from './heat_map';
import type { Loaded, Ranks } from './model';
import { excess } from './ratio';
import { blocksOf, namedBlocks } from './row_labels';
import type { Row } from './rows';
import { type Sheet, useCanvas } from './use_canvas';
import { columnText, ratioText, rowText } from './words';

const LEFT = 52;
const RIGHT = 12;
const TOP = 10;
const BOTTOM = 22;
const HOST_PX = 76;

/** What one bar shows. */
interface Bar {
  own: number;
  wait: number;
  ratio: number;
}

/** The value of a row at a column: of its worst rank. */
function barsAt(model: Ranks, loaded: Loaded, column: number): Bar[] {
  const of = model.ratios.value?.of;
  const { columns, values } = loaded.grid;
  const waits = loaded.wait;
  const waitRow = new Map(waits?.ranks.map((rank, row) => [rank, row]));
  return model.rows.value.map(({ members }) => {
    let worst = members[0];
    for (const m of members)
      if (
        of &&
        excess(of[m * columns + column], model.worse.value) >
          excess(of[worst * columns + column], model.worse.value)
      )
        worst = m;
    const at = waitRow.get(loaded.grid.ranks[worst]);
    return {
      own: values[worst * columns + column],
      wait: waits && at !== undefined ? waits.values[at * columns + column] : Number.NaN,
      ratio: of ? of[worst * columns + column] : Number.NaN,
    };
  });
}

/** The card. */
export function Bars({ model, hover }: { model: Ranks; hover: Signal<Cell | null> }) {
  const loaded = model.loaded.value;
  const column = model.shown.value;
  const choice = model.loadedChoice.value;
  const under = useSignal(-1);
  const canvas = useCanvas((sheet) =>
    draw(model, sheet, under.value >= 0 ? under.value : (hover.value?.row ?? -1)),
  );
  const rowAt = (event: PointerEvent | MouseEvent) => {
    const box = canvas.current!.getBoundingClientRect();
    const share = (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT);
    return share < 0 || share >= 1 ? -1 : Math.floor(share * model.rows.peek().length);
  };
  const what = choice ? choice.text : '';
  const where = loaded && column >= 0 ? columnText(loaded, column, zone.value) : '';
  const unit = choice?.chart.unit ?? '';
  const row = model.rows.value[under.value];
  return (
    <section class="panel bars" aria-label="Ranks at the cursor">
      <header>
        <h2>
          {loaded?.wait ? 'Who waits for whom' : 'Rank by rank'}{' '}
          <span class="quiet">
            {what}
            {unit && `, ${unit}`}
            {loaded?.wait && ', what was waited above it'} · {where}
          </span>
        </h2>
        <span class="quiet right">
          {row && loaded && column >= 0
            ? barText(model, loaded, row, column, unit)
            : loaded?.wait
              ? 'the slow rank is the one that waits least'
              : ''}
        </span>
      </header>
      <canvas
        ref={canvas}
        role="img"
        aria-label={loaded && column >= 0 ? barsText(model, column, unit, where) : 'no values yet'}
        onPointerMove={(event) => {
          under.value = rowAt(event);
        }}
        onPointerLeave={() => {
          under.value = -1;
        }}
        onClick={(event) => {
          const at = rowAt(event);
          if (at >= 0) model.choose(at, column);
        }}
      />
    </section>
  );
}

function barText(model: Ranks, loaded: Loaded, row: Row, column: number, unit: string): string {
  const bar = barsAt(model, loaded, column)[model.rows.peek().indexOf(row)];
  const wait = Number.isNaN(bar.wait) ? '' : `, waited ${formatValue(bar.wait, unit)}`;
  const value = Number.isNaN(bar.own) ? 'absent' : `${formatValue(bar.own, unit)}, ${ratioText(bar.ratio)}`;
  return `${rowText(row, loaded.grid.ranks)}: ${value}${wait}`;
}

function barsText(model: Ranks, column: number, unit: string, where: string): string {
  const { low, median, high, present } = model.ratios.value!;
  return `${where}: ${present[column]} ranks, least ${formatValue(low[column], unit)}, median ${formatValue(median[column], unit)}, greatest ${formatValue(high[column], unit)}`;
}

function draw(model: Ranks, sheet: Sheet, under: number): void {
  const loaded = model.loaded.value;
  const column = model.shown.value;
  if (!loaded || column < 0) return;
  const { ctx, width, height, ink } = sheet;
  const bars = barsAt(model, loaded, column);
  const finite = bars.flatMap((b) => [b.own, b.own + (b.wait || 0), 0]).filter(Number.isFinite);
  const [low, high] = [Math.min(...finite), Math.max(...finite)];
  const top = high > low ? high + (high - low) * 0.04 : low + 1;
  const y = (value: number) => TOP + (1 - (value - low) / (top - low)) * (height - TOP - BOTTOM);
  const plot = width - LEFT - RIGHT;
  const unit = model.loadedChoice.value?.chart.unit ?? '';
  ctx.font = ink.font;
  ctx.textBaseline = 'middle';
  ctx.textAlign = 'right';
  const ticks = valueTicks(low, top, Math.max(2, Math.floor(height / 48)), unit);
  const labels = formatTicks(ticks, unit);
  ticks.forEach((tick, at) => {
    ctx.fillStyle = ink.grid;
    ctx.fillRect(LEFT, Math.round(y(tick)), plot, 1);
    ctx.fillStyle = ink.text3;
    ctx.fillText(labels[at], LEFT - 8, y(tick));
  });
  const each = plot / Math.max(1, bars.length);
  const gap = each >= 4 ? Math.max(1, Math.round(each * 0.16)) : 0;
  const [usual, waited] = [ink.peer, ink.line2];
  const sides = sideColours(model);
  const limit = model.ratios.value?.limit[column] ?? Infinity;
  const selected = model.selectedRow.value;
  bars.forEach((bar, at) => {
    const left = LEFT + at * each;
    const wide = Math.max(0.5, each - gap);
    if (!Number.isFinite(bar.own)) return;
    const far = excess(bar.ratio, model.worse.value) >= limit;
    if (!Number.isNaN(bar.wait)) {
      ctx.fillStyle = waited;
      ctx.fillRect(left, y(bar.own + bar.wait), wide, y(bar.own) - y(bar.own + bar.wait));
    }
    ctx.fillStyle = far ? sides(bar.ratio) : usual;
    ctx.fillRect(left, Math.min(y(bar.own), y(0)), wide, Math.max(1, Math.abs(y(0) - y(bar.own))));
    if (at === selected || at === under) {
      ctx.strokeStyle = ink.text;
      ctx.lineWidth = 1;
      ctx.strokeRect(left - 0.5, TOP - 2, wide + 1, height - TOP - BOTTOM + 4);
    }
  });
  hostNames(model, sheet, each);
}

function hostNames(model: Ranks, { ctx, height, ink }: Sheet, each: number): void {
  const rows = model.rows.value;
  const ranks = model.loaded.value?.grid.ranks ?? [];
  const selected = model.selectedRow.value;
  ctx.textAlign = 'center';
  ctx.textBaseline = 'alphabetic';
  const blocks = blocksOf(rows);
  for (const block of namedBlocks(blocks, each, HOST_PX, selected)) {
    const here = selected >= block.first && selected < block.first + block.count;
    ctx.font = here ? ink.fontStrong : ink.font;
    ctx.fillStyle = here ? ink.text : ink.text3;
    const text = block.host === '' ? `rank ${ranks[rows[block.first].members[0]]}` : shown(block.host, 12);
    ctx.fillText(text, LEFT + (block.first + block.count / 2) * each, height - 6, HOST_PX);
  }
  ctx.fillStyle = ink.line2;
  if (blocks.length <= rows.length / 2)
    for (const block of blocks.slice(1))
      ctx.fillRect(LEFT + block.first * each - 1, height - BOTTOM + 2, 1, 6);
}
