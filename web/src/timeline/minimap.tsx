/** All that was read at a glance: what the lanes do over the time, and which part is shown. */
import { useRef } from 'preact/hooks';
import { PHASES } from '../lib/phases';
import { useCanvas } from '../ranks/use_canvas';
import { palette } from './ink';
import type { Timeline } from './model';
import type { Spans } from './rows';

/** Columns that time is divided into. */
const COLUMNS = 600;
const NONE = 255;

/** In each column, how many lanes are in each phase. */
export function shares(spans: Spans, { from, to }: { from: number; to: number }): Uint32Array {
  const counts = new Uint32Array(COLUMNS * PHASES.length);
  const inner = new Uint8Array(COLUMNS);
  const scale = COLUMNS / (to - from);
  const column = (at: number) => Math.max(0, Math.min(COLUMNS - 1, Math.floor((at - from) * scale)));
  for (const { rows } of spans.lanes) {
    inner.fill(NONE);
    // Rows that nest deeper lie over those around them.
    for (const { start, end, span } of rows)
      for (let at = 0; at < span.length; at++)
        inner.fill(spans.phase[span[at]], column(start[at]), column(end[at]) + 1);
    for (let at = 0; at < COLUMNS; at++) if (inner[at] !== NONE) counts[at * PHASES.length + inner[at]]++;
  }
  return counts;
}

/** The strip; a drag moves the part that is shown, or marks another. */
export function Minimap({ model }: { model: Timeline }) {
  const root = useRef<HTMLDivElement>(null);
  const pressed = useRef<{ x: number; within: boolean; last: number } | null>(null);
  const canvas = useCanvas(({ ctx, width, height }) => {
    const spans = model.loaded.value;
    if (!spans) return;
    const counts = shares(spans, model.full.value);
    const colours = palette.value.css;
    const [wide, tall] = [width / COLUMNS, height / Math.max(1, spans.lanes.length)];
    for (let at = 0; at < COLUMNS; at++) {
      let y = height;
      for (let phase = 0; phase < PHASES.length; phase++) {
        const size = counts[at * PHASES.length + phase] * tall;
        if (size === 0) continue;
        y -= size;
        ctx.fillStyle = colours[phase];
        ctx.fillRect(at * wide, y, wide + 0.5, size);
      }
    }
  });
  const { from, to } = model.full.value;
  const now = model.window.value;
  const share = (at: number) => (at - from) / (to - from);
  const placeOf = (event: PointerEvent) => {
    const box = root.current!.getBoundingClientRect();
    return (event.clientX - box.left) / Math.max(1, box.width);
  };
  return (
    <div
      class="minimap"
      ref={root}
      aria-hidden="true"
      onPointerDown={(event) => {
        const x = placeOf(event);
        const within = !model.isHome.peek() && x >= share(now.from) && x <= share(now.to);
        pressed.current = { x, within, last: x };
        root.current!.setPointerCapture(event.pointerId);
      }}
      onPointerMove={(event) => {
        const begun = pressed.current;
        if (!begun) return;
        const x = placeOf(event);
        const at = (part: number) => from + part * (to - from);
        if (begun.within) {
          const by = (x - begun.last) * (to - from);
          begun.last = x;
          const { from: a, to: b } = model.window.peek();
          model.show({ from: a + by, to: b + by });
        } else if (Math.abs(x - begun.x) > 0.005)
          model.show({ from: at(Math.min(x, begun.x)), to: at(Math.max(x, begun.x)) });
      }}
      onPointerUp={() => {
        pressed.current = null;
      }}
      onPointerCancel={() => {
        pressed.current = null;
      }}
      onDblClick={() => model.show(model.home.peek())}
    >
      <canvas ref={canvas} />
      {!model.isHome.value && (
        <div
          class="part"
          style={{
            left: `${Math.max(0, share(now.from)) * 100}%`,
            width: `${Math.max(0.2, (share(now.to) - share(now.from)) * 100)}%`,
          }}
        />
      )}
    </div>
  );
}
