/** Rank by step: each value against its peers, as colours. */
import { effect, type Signal, useComputed, useSignal } from '@preact/signals';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import { ink } from '../charts/model';
import * as view from '../charts/view';
import { onsetsOn } from '../health/words';
import { zone } from '../lib/clock';
import { formatValue } from '../lib/number';
import { diverging } from '../lib/ramp';
import { columnAt, columnEnds } from './grid';
import type { Ranks } from './model';
import { heatInk, paintHeat, worstRatio } from './paint';
import { Tints } from './tint';
import { baseText, columnText, ratioText, rowText } from './words';

/** Height that the rows share, and bounds of one, CSS pixels. */
const HEIGHT = 320;
const ROW_MIN = 2;
const ROW_MAX = 22;
/** A pointer that goes further than this while pressed marks a span, CSS pixels. */
const DRAG_PX = 5;
const PAGE_ROWS = 10;
const PAGE_COLUMNS = 10;

/** A place on the map. */
export interface Cell {
  row: number;
  column: number;
}

/** Height of a row in CSS pixels, a whole number of device pixels. */
export function rowHeight(rows: number): number {
  const ratio = window.devicePixelRatio || 1;
  const wanted = Math.max(ROW_MIN, Math.min(ROW_MAX, Math.floor(HEIGHT / Math.max(1, rows))));
  return Math.max(1, Math.round(wanted * ratio)) / ratio;
}

/** A cell in words. */
export function cellText(model: Ranks, { row, column }: Cell): string {
  const [loaded, ratios, at] = [model.loaded.value, model.ratios.value, model.rows.value[row]];
  if (!loaded || !ratios || !at || column < 0) return '';
  const { columns, values, ranks } = loaded.grid;
  const ratio = worstRatio(ratios.of, columns, at, column, model.worse.value);
  const unit = model.loadedChoice.value?.chart.unit ?? '';
  const where = `${rowText(at, ranks)}, ${columnText(loaded, column, zone.value)}`;
  if (Number.isNaN(ratio)) return `${where}: absent`;
  if (Math.abs(ratio) === Infinity) return `${where}: not a finite number`;
  const member = at.members.find((m) => ratios.of[m * columns + column] === ratio) ?? at.members[0];
  const value = formatValue(values[member * columns + column], unit);
  const worst = at.group ? `worst is rank ${ranks[member]}: ` : '';
  if (ratios.present[column] < 2 && model.base.value === 'peers')
    return `${where}: ${worst}${value}, no peers`;
  return `${where}: ${worst}${value}, ${ratioText(ratio)} ${baseText(model.base.value)}`;
}

/** The map with its cursor; `hover` is where the pointer is. */
export function HeatMap({ model, hover }: { model: Ranks; hover: Signal<Cell | null> }) {
  const root = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const said = useSignal('');
  const dragged = useSignal<[number, number] | null>(null);
  useLayoutEffect(() => {
    const box = root.current!;
    const resize = new ResizeObserver(() => {
      model.width.value = box.clientWidth;
    });
    resize.observe(box);
    return () => resize.disconnect();
  }, [model]);
  useEffect(() => effect(() => paint(model, canvas.current!)), [model]);

  const rows = model.rows.value.length;
  const cellAt = (event: PointerEvent | MouseEvent): Cell => {
    const box = root.current!.getBoundingClientRect();
    const columns = model.loaded.peek()?.grid.columns ?? 1;
    const clamp = (value: number, most: number) => Math.max(0, Math.min(most, value));
    return {
      row: clamp(Math.floor((event.clientY - box.top) / rowHeight(rows)), rows - 1),
      column: clamp(Math.floor(((event.clientX - box.left) / box.width) * columns), columns - 1),
    };
  };
  const pressed = useRef<{ x: number; cell: Cell } | null>(null);
  const move = (event: PointerEvent) => {
    const cell = cellAt(event);
    const from = pressed.current;
    if (from && Math.abs(event.clientX - from.x) > DRAG_PX)
      dragged.value = [Math.min(from.cell.column, cell.column), Math.max(from.cell.column, cell.column)];
    hover.value = cell;
    model.point(cell.column);
  };
  const up = (event: PointerEvent) => {
    const from = pressed.current;
    pressed.current = null;
    const span = dragged.value;
    dragged.value = null;
    if (!from) return;
    if (span) return zoomTo(model, span);
    const cell = cellAt(event);
    model.key.value = cell;
    model.choose(cell.row, cell.column);
  };
  const keys = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = moved(model, model.key.peek(), event.key, event.shiftKey ? PAGE_COLUMNS : 1);
    if (at) {
      model.key.value = at;
      hover.value = at;
      model.point(at.column);
      said.value = cellText(model, at);
    } else if (event.key === 'Enter') {
      const { row, column } = model.key.peek();
      model.choose(row, column);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div
      class="map"
      ref={root}
      role="application"
      tabIndex={0}
      aria-label={`Map of ${model.standings.value.length} ranks: arrow keys move, Enter selects the rank or opens the group`}
      style={{ height: `${rows * rowHeight(rows)}px` }}
      onKeyDown={keys}
      onFocus={() => {
        said.value = cellText(model, model.key.peek());
      }}
      onPointerDown={(event) => {
        if (event.button === 0) pressed.current = { x: event.clientX, cell: cellAt(event) };
      }}
      onPointerMove={move}
      onPointerUp={up}
      onPointerLeave={() => {
        pressed.current = null;
        dragged.value = null;
        hover.value = null;
        model.point(-1);
      }}
      onDblClick={() => view.resetZoom()}
    >
      <canvas ref={canvas} />
      <Tints model={model} tall={rowHeight(rows)} />
      <OnsetLines model={model} />
      <CursorLine model={model} />
      <Rings model={model} />
      {dragged.value && <Band model={model} span={dragged.value} />}
      <p class="unseen" aria-live="polite">
        {said}
      </p>
    </div>
  );
}

function paint(model: Ranks, canvas: HTMLCanvasElement): void {
  const [loaded, ratios, rows] = [model.loaded.value, model.ratios.value, model.rows.value];
  const { panel, sunk, line2, crit } = ink.value;
  const shades = diverging.value;
  const scale = model.scale.value;
  const worse = model.worse.value;
  const ratio = window.devicePixelRatio || 1;
  const width = Math.round(model.width.value * ratio);
  const tall = Math.round(rowHeight(rows.length) * ratio);
  if (!loaded || !ratios || width === 0 || rows.length === 0) return;
  const height = rows.length * tall;
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  const ctx = canvas.getContext('2d')!;
  const image = ctx.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const heat = { of: ratios.of, columns: loaded.grid.columns, rows, worse, scale };
  paintHeat(pixels, width, tall, heat, heatInk(shades, sunk, line2, panel, crit));
  ctx.putImageData(image, 0, 0);
}

function zoomTo(model: Ranks, [first, last]: [number, number]): void {
  const loaded = model.loaded.peek();
  if (!loaded) return;
  const [from, to] = [columnEnds(loaded.grid, first)[0], columnEnds(loaded.grid, last)[1]];
  model.board.zoom(loaded.axis, { from, to });
}

function moved(model: Ranks, { row, column }: Cell, key: string, by: number): Cell | null {
  const rows = model.rows.peek().length;
  const columns = model.loaded.peek()?.grid.columns ?? 0;
  if (rows === 0 || columns === 0) return null;
  const to: Record<string, Cell> = {
    ArrowUp: { row: row - by, column },
    ArrowDown: { row: row + by, column },
    ArrowLeft: { row, column: column - by },
    ArrowRight: { row, column: column + by },
    PageUp: { row: row - PAGE_ROWS, column },
    PageDown: { row: row + PAGE_ROWS, column },
    Home: { row, column: 0 },
    End: { row, column: columns - 1 },
  };
  const next = to[key];
  return (
    next && {
      row: Math.max(0, Math.min(rows - 1, next.row)),
      column: Math.max(0, Math.min(columns - 1, next.column)),
    }
  );
}

/** The line at the cursor, over whatever it stands in. */
export function CursorLine({ model }: { model: Ranks }) {
  const left = useComputed(() => {
    const column = model.column.value;
    const columns = model.loaded.value?.grid.columns ?? 1;
    return column < 0 ? null : ((column + 0.5) / columns) * 100;
  });
  return left.value === null ? null : <div class="cursor-line" style={{ left: `${left.value}%` }} />;
}

/** Where what is wrong began. */
export function OnsetLines({ model }: { model: Ranks }) {
  const loaded = model.loaded.value;
  if (!loaded) return null;
  const { from, to } = loaded.grid;
  return (
    <>
      {onsetsOn(model.board, loaded.axis)
        .filter(({ x }) => x >= from && x <= to)
        .map(({ id, level, x }) => (
          <div
            key={id}
            class={`onset-line ${level}`}
            style={{ left: `${(columnAt(loaded.grid, x) / loaded.grid.columns) * 100}%` }}
          />
        ))}
    </>
  );
}

/** The row of the selected rank, and the cell of the keys. */
function Rings({ model }: { model: Ranks }) {
  const rows = model.rows.value;
  const tall = rowHeight(rows.length);
  const { row, column } = model.key.value;
  const columns = model.loaded.value?.grid.columns ?? 1;
  const at = model.selectedRow.value;
  return (
    <>
      {at >= 0 && <div class="ring" style={{ top: `${at * tall}px`, height: `${tall}px` }} />}
      <div
        class="cell"
        style={{
          top: `${Math.min(row, rows.length - 1) * tall}px`,
          height: `${tall}px`,
          left: `${(column / columns) * 100}%`,
          width: `${100 / columns}%`,
        }}
      />
    </>
  );
}

function Band({ model, span: [first, last] }: { model: Ranks; span: [number, number] }) {
  const columns = model.loaded.value?.grid.columns ?? 1;
  return (
    <div
      class="band"
      style={{ left: `${(first / columns) * 100}%`, width: `${((last - first + 1) / columns) * 100}%` }}
    />
  );
}
