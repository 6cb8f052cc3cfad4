/** Cards as a matrix of hosts and numbers, coloured by how far each one is from the others. */
import { effect, useComputed, useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { hatch } from '../charts/ink';
import { ink } from '../charts/model';
import { Name } from '../components/name';
import { setParams } from '../lib/address';
import { formatCount } from '../lib/number';
import { shown } from '../lib/text';
import type { SystemBoard } from './board';
import { type Card, cardKey, cardName, gridOf } from './cards';
import { laneValue } from './lane';
import * as look from './look';
import { shadeText } from './paint';
import { badness, deviation, spreadOf, valueAt } from './series';
import { colours } from './specs';

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

/** How a card compares at the cursor, or newest. */
function useReading(system: SystemBoard) {
  const spread = useComputed(() => {
    const lane = system.colour.value;
    const data = lane && system.data.value.get(lane.id);
    return data ? (data.spread ?? spreadOf(data.x, data.members)) : null;
  });
  return useComputed(() => {
    const lane = system.colour.value;
    const data = lane && system.data.value.get(lane.id);
    const all = spread.value;
    if (!lane || !data || !all) return null;
    const members = new Map(data.members.map((m) => [m.key, m]));
    return (key: string, x: number | null) => {
      const member = members.get(key);
      const median = valueAt(all.x, { y: all.median, spacing: all.spacing }, x);
      return { lane, median, value: member ? valueAt(data.x, member, x) : Number.NaN };
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
  const { hosts, gpus, at, w, h, gap } = layout;
  const able = colours(system.lanes.value);
  const words = labelled && h >= LABELLED;

  useEffect(
    () =>
      effect(() => {
        const read = reading.value;
        const x = system.board.cursor[look.laneAxis.value].value;
        const chosen = system.selected.value;
        const colour = ink.value;
        const sheet = canvas.current;
        if (!sheet) return;
        const ratio = window.devicePixelRatio || 1;
        sheet.width = Math.round(gpus.length * w * ratio);
        sheet.height = Math.round(hosts.length * h * ratio);
        const ctx = sheet.getContext('2d')!;
        ctx.scale(ratio, ratio);
        hosts.forEach((host, row) => {
          gpus.forEach((gpu, column) => {
            const key = cardKey(host, gpu);
            if (!at.has(key)) return;
            const box = { x: column * w, y: row * h, w: w - gap, h: h - gap };
            const found = read?.(key, x);
            const bad = found ? badness(found.value, found.median, found.lane.compared!) : Number.NaN;
            ctx.fillStyle = Number.isFinite(bad) ? shadeText(bad) : colour.sunk;
            ctx.fillRect(box.x, box.y, box.w, box.h);
            if (!Number.isFinite(bad)) hatch(ctx, box, colour.line2, 1);
          });
        });
        ctx.strokeStyle = colour.text;
        ctx.lineWidth = Math.min(w, h) > 8 ? 2 : 1;
        for (const key of chosen) {
          const card = at.get(key);
          if (!card) continue;
          const [column, row] = [gpus.indexOf(card.gpu), hosts.indexOf(card.host)];
          ctx.strokeRect(column * w + 0.5, row * h + 0.5, w - gap - 1, h - gap - 1);
        }
      }),
    [cards, w, h, reading],
  );

  const say = (card: Card) => {
    const found = reading.peek()?.(card.key, system.board.cursor[look.laneAxis.peek()].peek());
    const unit = found ? (system.chart(found.lane)?.unit ?? '') : '';
    said.value = found ? `${cardName(card)}: ${spoken(found, unit)}` : cardName(card);
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
            aria-label={`${formatCount(cards.length)} GPUs of ${formatCount(hosts.length)} hosts; arrow keys choose one, with Shift they add`}
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
      <p class="unseen" role="status">
        {said.value}
      </p>
    </section>
  );
}

type Found = { lane: import('./specs').LaneSpec; median: number; value: number };

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
