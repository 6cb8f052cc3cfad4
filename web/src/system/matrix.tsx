/** Cards as a matrix of hosts and numbers, coloured by how far each one is from the others. */
import { effect, useComputed, useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { hatch, type Ink } from '../charts/ink';
import { ink } from '../charts/model';
import { Name } from '../components/name';
import { setParams } from '../lib/address';
import { formatCount } from '../lib/number';
import { shown } from '../lib/text';
import type { SystemBoard } from './board';
import { type Card, cardKey, cardName, gridOf } from './cards';
import { laneValue } from './lane';
import * as look from './look';
import { shadeAt, shadeText } from './paint';
import { badness, deviation, middle, valueAt } from './series';
import { colours, type LaneSpec } from './specs';
import { counted } from './words';

const CELL = 24;
const SMALLEST = 4;
/** Height that the matrix fills at most before it scrolls, CSS pixels. */
const TALL = 400;
/** Below this cell height, hosts are not written beside their rows. */
const LABELLED = 12;

interface Layout {
  hosts: string[];
  gpus: string[];
  at: Map<string, Card>;
  w: number;
  h: number;
  gap: number;
}

function layoutOf(cards: Card[], room: number): Layout {
  const grid = gridOf(cards);
  const h = Math.max(SMALLEST, Math.min(CELL, Math.floor(TALL / Math.max(1, grid.hosts.length))));
  const w = Math.max(SMALLEST, Math.min(CELL, Math.floor(room / Math.max(1, grid.gpus.length))));
  return { ...grid, w, h, gap: Math.min(w, h) > 8 ? 3 : 1 };
}

/** Draws the cells; what cannot be compared is hatched, what is chosen has a ring. */
function drawCells(
  sheet: HTMLCanvasElement,
  { hosts, gpus, at, w, h, gap }: Layout,
  cells: { key: string; shade: number | null }[],
  chosen: string[],
  colour: Ink,
): void {
  const ratio = window.devicePixelRatio || 1;
  sheet.width = Math.round(gpus.length * w * ratio);
  sheet.height = Math.round(hosts.length * h * ratio);
  const ctx = sheet.getContext('2d')!;
  ctx.scale(ratio, ratio);
  const columns = new Map(gpus.map((gpu, place) => [gpu, place * w]));
  const rows = new Map(hosts.map((host, place) => [host, place * h]));
  const boxOf = (card: Card) => ({
    x: columns.get(card.gpu)!,
    y: rows.get(card.host)!,
    w: w - gap,
    h: h - gap,
  });
  for (const { key, shade } of cells) {
    const box = boxOf(at.get(key)!);
    ctx.fillStyle = shade === null ? colour.sunk : shadeText(shade);
    ctx.fillRect(box.x, box.y, box.w, box.h);
    if (shade === null) hatch(ctx, box, colour.line2, 1);
  }
  ctx.strokeStyle = colour.text;
  ctx.lineWidth = Math.min(w, h) > 8 ? 2 : 1;
  for (const key of chosen) {
    const card = at.get(key);
    if (!card) continue;
    const box = boxOf(card);
    ctx.strokeRect(box.x + 0.5, box.y + 0.5, box.w - 1, box.h - 1);
  }
}

/** How cards compare: at a place on the axis, or newest. */
function useReading(system: SystemBoard) {
  return useComputed(() => {
    const lane = system.colour.value;
    const data = lane && system.data.value.get(lane.id);
    if (!lane || !data) return null;
    return (x: number | null) => {
      const values = new Map(data.members.map((m) => [m.key, valueAt(data.x, m, x)]));
      const { spread } = data;
      const median = spread
        ? valueAt(spread.x, { y: spread.median, spacing: spread.spacing }, x)
        : middle([...values.values()]);
      return { lane, median, values };
    };
  });
}

/** The card with the matrix. */
export function Matrix({ system }: { system: SystemBoard }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const said = useSignal('');
  const reading = useReading(system);
  const cards = system.cards.value;
  const labelled = gridOf(cards).hosts.length > 1;
  const layout = layoutOf(cards, labelled ? 176 : 234);
  const { hosts, gpus, at, w, h } = layout;
  const able = colours(system.lanes.value);
  const words = labelled && h >= LABELLED;

  useEffect(() => {
    let before = '';
    return effect(() => {
      const now = reading.value?.(system.board.cursor[look.laneAxis.value].value);
      const chosen = system.selected.value;
      const colour = ink.value;
      const bad = (key: string) =>
        now ? badness(now.values.get(key) ?? Number.NaN, now.median, now.lane.compared!) : Number.NaN;
      const cells = [...at.keys()].map((key) => ({ key, shade: shadeAt(bad(key)) }));
      // The cursor moves much more often than a cell takes another shade.
      const picture = [colour.text, ...chosen, ...cells.map((c) => c.shade)].join();
      if (!canvas.current || picture === before) return;
      before = picture;
      drawCells(canvas.current, layout, cells, chosen, colour);
    });
  }, [cards, w, h, reading]);

  const say = (card: Card) => {
    const now = reading.peek()?.(system.board.cursor[look.laneAxis.peek()].peek());
    const unit = now ? (system.chart(now.lane)?.unit ?? '') : '';
    const value = now?.values.get(card.key) ?? Number.NaN;
    said.value = now ? `${cardName(card)}: ${spoken({ ...now, value }, unit)}` : cardName(card);
  };
  const pick = (event: MouseEvent) => {
    const box = canvas.current!.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / w);
    const row = Math.floor((event.clientY - box.top) / h);
    const card = at.get(cardKey(hosts[row] ?? '', gpus[column] ?? ''));
    if (!card) return;
    system.select(card.key, event.shiftKey);
    say(card);
  };
  const keys = (event: KeyboardEvent) => {
    const by = ({ ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] } as const)[
      event.key as 'ArrowLeft'
    ];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    const now = at.get(system.selected.peek().at(-1) ?? '');
    const next = now && neighbour(layout, now, by);
    if (!next) return;
    system.select(next.key, event.shiftKey);
    say(next);
  };
  const data = system.colour.value && system.data.value.get(system.colour.value.id);
  const compared = system.colour.value?.compared;
  const ends = compared ? [...compared.ends] : [];
  return (
    <section class="panel matrix" aria-label="GPU by host">
      <header>
        <h2>{hosts.length > 1 ? 'GPU × host' : 'GPUs'}</h2>
        {able.length > 0 && (
          <select
            aria-label="Colour of the cells"
            value={system.colour.value?.id}
            onChange={(e) =>
              setParams({ colour: e.currentTarget.value === able[0].id ? null : e.currentTarget.value })
            }
          >
            {able.map((lane) => (
              <option key={lane.id} value={lane.id}>
                {lane.title} vs peers
              </option>
            ))}
          </select>
        )}
      </header>
      <div class="scroll" style={{ '--w': `${w}px`, '--h': `${h}px` }}>
        {w >= LABELLED && (
          <div class="gpus" aria-hidden="true" style={{ marginLeft: words ? undefined : 0 }}>
            {gpus.map((gpu) => (
              <span key={gpu}>{shown(gpu, 3)}</span>
            ))}
          </div>
        )}
        <div class="body">
          {words && (
            <div class="hosts" aria-hidden="true">
              {hosts.map((host) => (
                <Name key={host} text={host} limit={9} />
              ))}
            </div>
          )}
          <div
            role="application"
            aria-label={`${counted(cards.length, 'GPU')} of ${counted(hosts.length, 'host')}; arrow keys choose one, with Shift they add`}
            tabIndex={0}
            onKeyDown={keys}
            onClick={pick}
          >
            <canvas ref={canvas} style={{ width: `${gpus.length * w}px`, height: `${hosts.length * h}px` }} />
          </div>
        </div>
      </div>
      {ends.length > 0 && (
        <p class="ramp">
          <i aria-hidden="true" />
          <span>{ends[0]}</span>
          <span>0</span>
          <span>{ends[1]}</span>
        </p>
      )}
      {data?.spread && data.members.length < data.total && (
        <p class="quiet">
          {formatCount(data.members.length)} of {counted(data.total, 'GPU')} are read one by one; the others
          are in the spread.
        </p>
      )}
      <p class="unseen" role="status">
        {said.value}
      </p>
    </section>
  );
}

/** How a card compares. */
interface Found {
  lane: LaneSpec;
  median: number;
  value: number;
}

function spoken({ lane, median, value }: Found, unit: string): string {
  if (Number.isNaN(value)) return 'absent';
  const own = `${lane.title} ${laneValue(lane, value, unit)}`;
  const far = deviation(value, median, lane.compared!);
  const peers = `peers ${laneValue(lane, median, unit)}`;
  return lane.compared!.by === 'ratio' && Number.isFinite(far)
    ? `${own}, ${(far + 1).toFixed(2)} of ${peers}`
    : `${own}, ${peers}`;
}

function neighbour(layout: Layout, card: Card, [right, down]: readonly [number, number]): Card | undefined {
  const { hosts, gpus, at } = layout;
  let [column, row] = [gpus.indexOf(card.gpu) + right, hosts.indexOf(card.host) + down];
  // Hosts may have other numbers of cards: places without one are passed over.
  for (; hosts[row] !== undefined && gpus[column] !== undefined; column += right, row += down) {
    const found = at.get(cardKey(hosts[row], gpus[column]));
    if (found) return found;
  }
  return undefined;
}
