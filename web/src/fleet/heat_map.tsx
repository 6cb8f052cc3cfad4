/** Host by GPU: each cell is the history of one card, as colours. */
import { effect, type Signal as State, useComputed, useSignal } from '@preact/signals';
import type { RefObject } from 'preact';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import type { Ink } from '../charts/ink';
import { ink } from '../charts/model';
import { Link } from '../components/link';
import { Name } from '../components/name';
import { diverging, parseHex, pixel, sequential } from '../lib/ramp';
import { shown } from '../lib/text';
import type { Gpu } from './answers';
import { type Block, blocksOf, isSilent, type Layout, type Row, rowAt, rowsBetween } from './layout';
import { BINS, type Fleet } from './model';
import { counted, gpuKey, ownerKind } from './names';
import { columnSpan, filled, paintStrips, type StripInk } from './paint';
import { cellText } from './words';

/** Rows that are kept as elements beyond both ends of what is seen, CSS pixels. */
const OVERSCAN = 80;
/** Names of hosts stand at least so far apart, CSS pixels. */
const NAMED_EVERY = 15;
/** A block of owners that is at least so tall has a second line, CSS pixels. */
const TWO_LINES = 36;

/** What is seen of the map: its width, the height of the window onto it, and how far it is scrolled. */
export interface Window {
  width: number;
  height: number;
  top: number;
}

/** A column's place in CSS pixels. */
function cssSpan(column: number, columns: number, width: number): [number, number] {
  const ratio = window.devicePixelRatio || 1;
  return columnSpan(column, columns, Math.round(width * ratio), ratio).map((v) => v / ratio) as [
    number,
    number,
  ];
}

/** Where a card lies; `null` when it is not on the map. */
function boxOf(layout: Layout, key: string, width: number) {
  const place = layout.places.get(key);
  const row = place && layout.rows[place.row];
  if (!row) return null;
  const ratio = window.devicePixelRatio || 1;
  const [left, wide] = row.folded
    ? cssSpan(0, 1, width)
    : cssSpan(place.column, layout.columns.length, width);
  return { left, width: wide, top: row.y, height: filled(row.height, ratio) / ratio };
}

/** The map with hosts on its left and owners on its right. */
export function HeatMap({ fleet, said }: { fleet: Fleet; said: State<string> }) {
  const field = useRef<HTMLDivElement>(null);
  const map = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const seen = useSignal<Window>({ width: 0, height: 0, top: 0 });
  useWindow(field, map, seen);
  useEffect(
    () =>
      effect(() => {
        // What is drawn may change while the map is being taken away.
        const sheet = canvas.current;
        const view = seen.value;
        if (sheet) paint(fleet, view, sheet);
      }),
    [fleet],
  );
  const layout = fleet.layout.value;
  const { width } = seen.value;
  const [first, last] = rowsBetween(
    layout.rows,
    seen.value.top - OVERSCAN,
    seen.value.top + seen.value.height + OVERSCAN,
  );

  const at = (event: PointerEvent | MouseEvent) => {
    const box = map.current!.getBoundingClientRect();
    const row = layout.rows[rowAt(layout.rows, event.clientY - box.top)];
    if (!row) return null;
    const x = event.clientX - box.left;
    const count = row.folded ? 1 : layout.columns.length;
    const column = Math.min(count - 1, Math.floor((x / width) * count));
    const [left, wide] = cssSpan(column, count, width);
    const bin = Math.max(0, Math.min(BINS - 1, Math.floor(((x - left) / wide) * BINS)));
    return { row, gpu: row.folded ? null : row.cells[column], bin };
  };
  const point = (event: PointerEvent) => {
    const found = at(event);
    fleet.wide.value = found?.row.folded ?? false;
    fleet.bin.value = found?.bin ?? -1;
  };
  const pick = (event: MouseEvent) => {
    const found = at(event);
    if (found?.row.folded) fleet.toggle(found.row.key);
    else if (found?.gpu) {
      fleet.select(found.gpu);
      const answer = fleet.gpus.peek();
      if (answer) said.value = cellText(answer, found.gpu, -1);
    }
  };
  const open = (event: MouseEvent) => {
    const row = at(event)?.row;
    if (row && fleet.open.peek().has(row.key)) fleet.toggle(row.key);
  };
  const cards = fleet.kept.value.length;
  return (
    <div class="field" ref={field}>
      <div class="heads" aria-hidden="true">
        <div class="of-map">
          {layout.columns.map((gpu, column) => {
            const [left, wide] = cssSpan(column, layout.columns.length, width);
            if (wide < 26 || layout.rows.every((row) => row.folded)) return null;
            return (
              <span key={gpu} style={{ left: `${left}px`, width: `${wide}px` }}>
                {wide < 52 ? shown(gpu, 4) : `GPU ${shown(gpu, 6)}`}
              </span>
            );
          })}
        </div>
      </div>
      <div class="stage" style={{ height: `${layout.height}px` }}>
        <Hosts fleet={fleet} rows={layout.rows.slice(first, last)} />
        <div
          class="map"
          ref={map}
          role="application"
          tabIndex={0}
          aria-label={`Map of ${counted(cards, 'GPU')}: arrow keys move, Enter opens the card, o its owner`}
          onPointerMove={point}
          onPointerLeave={() => {
            fleet.bin.value = -1;
          }}
          onClick={pick}
          onDblClick={open}
        >
          <canvas ref={canvas} style={{ height: `${seen.value.height}px` }} />
          <Cursor fleet={fleet} seen={seen} />
          <Ring fleet={fleet} seen={seen} field={field} />
        </div>
        <Owners layout={layout} first={first} last={last} />
      </div>
      <p class="unseen" role="status">
        {said}
      </p>
    </div>
  );
}

/** Follows the size of the map and how far it is scrolled. */
function useWindow(
  field: RefObject<HTMLDivElement | null>,
  map: RefObject<HTMLDivElement | null>,
  seen: State<Window>,
): void {
  useLayoutEffect(() => {
    const box = field.current!;
    const look = () => {
      const head = box.querySelector<HTMLElement>('.heads')!.offsetHeight;
      const next = {
        width: map.current!.clientWidth,
        height: Math.min(box.clientHeight - head, map.current!.clientHeight),
        top: box.scrollTop,
      };
      const now = seen.peek();
      if (next.width !== now.width || next.height !== now.height || next.top !== now.top) seen.value = next;
    };
    const resize = new ResizeObserver(look);
    resize.observe(box);
    resize.observe(map.current!);
    box.addEventListener('scroll', look, { passive: true });
    return () => {
      resize.disconnect();
      box.removeEventListener('scroll', look);
    };
  }, []);
}

function paint(fleet: Fleet, { width: wide, height: tall, top }: Window, canvas: HTMLCanvasElement): void {
  const layout = fleet.layout.value;
  const signal = fleet.drawn.value;
  const colours = ink.value;
  const shades = signal.diverging ? diverging.value : sequential.value;
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [Math.round(wide * ratio), Math.round(tall * ratio)];
  if (width < 1 || height < 1) return;
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  const of = (hex: string) => pixel(parseHex(hex));
  const strips: StripInk = {
    shades,
    absent: of(colours.sunk),
    hatch: of(colours.line2),
    gap: of(colours.panel),
  };
  const [first, last] = rowsBetween(layout.rows, top, top + tall);
  const rows = layout.rows.slice(first, last);
  const ctx = canvas.getContext('2d')!;
  const image = ctx.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  paintStrips(pixels, height, { rows, signal, bins: BINS, width, ratio, top }, strips);
  ctx.putImageData(image, 0, 0);
  const answer = fleet.gpus.value;
  if (!answer) return;
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  for (const row of rows) {
    const h = filled(row.height, ratio) / ratio;
    row.cells.forEach((gpu, column) => {
      if (!gpu) return;
      const [x, w] = row.folded ? cssSpan(0, 1, wide) : cssSpan(column, row.cells.length, wide);
      marks(ctx, colours, gpu, { x, y: row.y - top, w, h, folded: row.folded }, [answer.from, answer.to]);
    });
  }
  ctx.setTransform(1, 0, 0, 1, 0, 0);
}

interface Box {
  x: number;
  y: number;
  w: number;
  h: number;
  /** One strip stands for several cards. */
  folded: boolean;
}

/** What stands on a cell: Xids where they happened, a notch where it is shared, a frame where it is missing. */
function marks(
  ctx: CanvasRenderingContext2D,
  { crit, text, panel }: Ink,
  gpu: Gpu,
  { x, y, w, h, folded }: Box,
  [from, to]: [number, number],
): void {
  if (!folded && gpu.state === 'missing') {
    ctx.strokeStyle = crit;
    ctx.lineWidth = 1;
    ctx.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
  }
  if (!folded && (gpu.owner?.shared ?? 0) > 1 && w > 12) {
    const side = Math.min(7, h);
    ctx.fillStyle = text;
    ctx.beginPath();
    ctx.moveTo(x + w - side, y);
    ctx.lineTo(x + w, y);
    ctx.lineTo(x + w, y + side);
    ctx.fill();
  }
  const half = h > 12 ? 5.5 : 3;
  for (const { time, userspace } of gpu.xids) {
    if (userspace || time < from || time > to) continue;
    const middle = x + ((time - from) / Math.max(1, to - from)) * w;
    ctx.beginPath();
    ctx.moveTo(middle, y + h / 2 - half);
    ctx.lineTo(middle + half, y + h / 2);
    ctx.lineTo(middle, y + h / 2 + half);
    ctx.lineTo(middle - half, y + h / 2);
    ctx.closePath();
    ctx.fillStyle = crit;
    ctx.fill();
    ctx.lineWidth = 1;
    ctx.strokeStyle = panel;
    ctx.stroke();
  }
}

/** Rows whose host is named: all that have room, where rows are low first those that call for a look. */
export function namedRows(rows: Row[], selected: string | undefined): Row[] {
  const named: Row[] = [];
  const take = (some: Row[]) => {
    let at = 0;
    for (const row of some) {
      while (at < named.length && named[at].y < row.y) at++;
      const before = named[at - 1];
      const free = (other: Row | undefined) => !other || Math.abs(other.y - row.y) >= NAMED_EVERY;
      if (free(before) && free(named[at])) named.splice(at, 0, row);
    }
  };
  take(rows.filter((row) => row.host === selected));
  take(rows.filter((row) => isSilent(row) || row.cells.some((g) => g?.incident)));
  take(rows);
  return named;
}

/** Names of hosts beside their rows. */
function Hosts({ fleet, rows }: { fleet: Fleet; rows: Row[] }) {
  const selected = fleet.selected.value?.host;
  return (
    <div class="hosts">
      {namedRows(rows, selected).map((row) => {
        const silent = isSilent(row);
        const sick = row.cells.some((g) => g?.incident);
        const state = silent ? ' silent' : sick ? ' sick' : '';
        return (
          <span
            key={row.key}
            class={(row.host === selected ? 'here' : '') + state}
            style={{ top: `${row.y + Math.min(row.height, 17) / 2}px` }}
            title={
              silent ? 'silent: its cells are absent, not idle' : sick ? 'has an open incident' : undefined
            }
          >
            <Name text={row.host} limit={10} />
          </span>
        );
      })}
    </div>
  );
}

/** Who has the cards of the rows. */
function Owners({ layout, first, last }: { layout: Layout; first: number; last: number }) {
  const blocks = useComputedBlocks(layout.rows);
  return (
    <div class="owners">
      {blocks
        .filter((block) => block.first < last && block.first + block.count > first)
        .map((block) => (
          <OwnerBlock key={`${block.first} ${block.key}`} block={block} rows={layout.rows} />
        ))}
    </div>
  );
}

let lastBlocks: [Row[], Block[]] = [[], []];

/** Blocks of these rows, found once for one layout. */
function useComputedBlocks(rows: Row[]): Block[] {
  if (lastBlocks[0] !== rows) lastBlocks = [rows, blocksOf(rows)];
  return lastBlocks[1];
}

function OwnerBlock({ block, rows }: { block: Block; rows: Row[] }) {
  const [top, end] = [rows[block.first], rows[block.first + block.count - 1]];
  const height = end.y + end.height - top.y - (top.height > 12 ? 3 : 1);
  const owner = block.gpu?.owner ?? null;
  const kind = owner ? ownerKind(owner) : 'idle';
  const more = { ok: '', missing: ' · card missing', silent: ' · silent' }[block.state];
  const words = `${block.text || 'idle'}${more}`;
  const title = `${shown(words, 120)}, ${counted(block.cards, 'GPU')}`;
  const body =
    height < 12 ? null : (
      <>
        <b>
          <Name text={block.text || 'idle'} limit={20} />
          {more}
        </b>
        {height >= TWO_LINES && (
          <span>
            {counted(block.cards, 'GPU')}
            {owner ? `, ${kind}` : ''}
          </span>
        )}
      </>
    );
  const style = { top: `${top.y}px`, height: `${height}px` };
  const name = `owner-block ${kind} ${block.state}`;
  if (owner?.run_id && height >= 12)
    return (
      <div class={name} style={style} title={title}>
        <Link href={`/r/${encodeURIComponent(owner.run_id)}`}>{body}</Link>
      </div>
    );
  return (
    <div class={name} style={style} title={title}>
      {body}
    </div>
  );
}

/** The time under the pointer, in every column. */
function Cursor({ fleet, seen }: { fleet: Fleet; seen: State<Window> }) {
  const bin = fleet.bin.value;
  const { columns } = fleet.layout.value;
  if (bin < 0) return null;
  const count = fleet.wide.value ? 1 : columns.length;
  return (
    <>
      {Array.from({ length: count }, (_, column) => {
        const [left, wide] = cssSpan(column, count, seen.value.width);
        return (
          <i key={column} class="cursor-line" style={{ left: `${left + ((bin + 0.5) / BINS) * wide}px` }} />
        );
      })}
    </>
  );
}

/** Around the selected card, which comes into view when keys move there. */
function Ring(props: { fleet: Fleet; seen: State<Window>; field: RefObject<HTMLDivElement | null> }) {
  const { fleet, seen, field } = props;
  const box = useComputed(() => {
    const gpu = fleet.selected.value;
    return gpu && boxOf(fleet.layout.value, gpuKey(gpu), seen.value.width);
  }).value;
  useEffect(() => {
    const scroller = field.current;
    if (!box || !scroller) return;
    const room = seen.peek().height;
    if (box.top < scroller.scrollTop) scroller.scrollTop = box.top;
    else if (box.top + box.height > scroller.scrollTop + room)
      scroller.scrollTop = box.top + box.height - room;
  }, [fleet.cell.value]);
  if (!box) return null;
  const { left, width, top, height } = box;
  return (
    <i
      class="ring"
      style={{ left: `${left}px`, width: `${width}px`, top: `${top}px`, height: `${height}px` }}
    />
  );
}

/** The card beside another one; places without a card are passed over. */
export function neighbour(layout: Layout, gpu: Gpu | null, right: number, down: number): Gpu | null {
  const first = layout.rows.flatMap((row) => row.cells.filter((g) => g !== null))[0] ?? null;
  const place = gpu && layout.places.get(gpuKey(gpu));
  if (!place) return first;
  let [row, column] = [place.row + down, place.column + right];
  for (; layout.rows[row] && column >= 0 && column < layout.columns.length; row += down, column += right) {
    const found = layout.rows[row].cells[column];
    if (found) return found;
  }
  return null;
}
