/** The lanes: one for each process, drawn on one canvas as far as they are seen. */
import { effect, type Signal, useSignal } from '@preact/signals';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import { ink } from '../charts/model';
import { Name } from '../components/name';
import { formatCount } from '../lib/number';
import { shown, visible } from '../lib/text';
import { Drawing } from './draw';
import { type Hit, hitAt } from './hit';
import { palette } from './ink';
import { heightOf, laneAt, PITCH, stripsOf } from './layout';
import type { Timeline } from './model';
import { laneName, laneText, lengthText, phaseText } from './words';

/** A pointer that goes further than this while pressed marks a span, CSS pixels. */
const DRAG_PX = 5;
/** Of the window, what an arrow moves. */
const SHARE = 0.1;

/** Size of what is seen, and how far it is scrolled; CSS pixels. */
interface View {
  width: number;
  height: number;
  top: number;
}

/** The lanes with their names. */
export function Lanes({ model }: { model: Timeline }) {
  const scroller = useRef<HTMLDivElement>(null);
  const field = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const view = useSignal<View>({ width: 0, height: 0, top: 0 });
  const hover = useSignal<{ hit: Hit; x: number; y: number } | null>(null);
  const brush = useSignal<[number, number] | null>(null);
  const said = useSignal('');
  useMeasured(scroller, field, view);
  usePicture(model, canvas, view);
  useWheel(model, field);
  useSought(model, scroller, view);
  const point = usePointer(model, field, view, hover, brush);
  const total = heightOf(model.placed.value);
  return (
    <div class="lanes" ref={scroller} onScroll={(e) => scrolledTo(view, e.currentTarget.scrollTop)}>
      <div class="tall" style={{ height: `${Math.max(total, view.value.height)}px` }}>
        <div class="stick" style={{ height: `${view.value.height}px` }}>
          <Gutter model={model} view={view} />
          <div
            class="field"
            ref={field}
            role="application"
            tabIndex={0}
            aria-label={fieldText(model)}
            onKeyDown={(event) => keys(model, event, said)}
            onFocus={() => {
              said.value = model.cursor.peek() >= 0 ? spanText(model, model.cursor.peek()) : '';
            }}
            {...point}
          >
            <canvas ref={canvas} />
            <Pointed model={model} />
            {brush.value && (
              <div
                class="band"
                style={{ left: `${brush.value[0]}px`, width: `${brush.value[1] - brush.value[0]}px` }}
              />
            )}
            {hover.value && !brush.value && <Tip model={model} at={hover.value} view={view} />}
            <p class="unseen" aria-live="polite">
              {said}
            </p>
          </div>
        </div>
      </div>
    </div>
  );
}

function scrolledTo(view: Signal<View>, top: number): void {
  if (view.peek().top !== top) view.value = { ...view.peek(), top };
}

function fieldText(model: Timeline): string {
  const spans = model.loaded.value;
  if (!spans) return 'Spans';
  const { answer } = spans;
  const step = answer.step === null ? '' : ` of step ${formatCount(answer.step)}`;
  return `${formatCount(answer.spans.lane.length)} spans${step} of ${formatCount(answer.lanes.length)} processes: arrow keys move from span to span, Enter tells all of it, v shows them as a table`;
}

/** A span in words. */
export function spanText(model: Timeline, at: number): string {
  const spans = model.loaded.peek();
  if (!spans || at < 0) return '';
  const { answer, lanes, start, end, phase } = spans;
  const name = shown(answer.names[answer.spans.name[at]]);
  const error = answer.spans.status[at] === 2 ? ', error' : '';
  return `${laneText(lanes[answer.spans.lane[at]])}: ${name}, ${phaseText(phase[at])}, ${lengthText(end[at] - start[at])} from ${lengthText(start[at])}${error}`;
}

function useMeasured(
  scroller: { current: HTMLDivElement | null },
  field: { current: HTMLDivElement | null },
  view: Signal<View>,
): void {
  useLayoutEffect(() => {
    const measure = () => {
      const [width, height] = [field.current!.clientWidth, scroller.current!.clientHeight];
      const now = view.peek();
      if (width !== now.width || height !== now.height) view.value = { ...now, width, height };
    };
    const resize = new ResizeObserver(measure);
    resize.observe(scroller.current!);
    resize.observe(field.current!);
    measure();
    return () => resize.disconnect();
  }, []);
}

/** Draws once a frame, however often what it shows changes in between. */
function usePicture(
  model: Timeline,
  canvas: { current: HTMLCanvasElement | null },
  view: Signal<View>,
): void {
  useEffect(() => {
    const drawing = new Drawing(canvas.current!);
    let frame = 0;
    const draw = () => {
      frame = 0;
      const [spans, placed] = [model.loaded.peek(), model.placed.peek()];
      const { width, height, top } = view.peek();
      if (!spans) return;
      const { text, font } = ink.peek();
      const outlined: [number, string][] = [];
      if (model.chosenAt.peek() >= 0) outlined.push([model.chosenAt.peek(), text]);
      const cursor = model.cursor.peek();
      if (cursor >= 0 && cursor !== model.chosenAt.peek()) outlined.push([cursor, ink.peek().text3]);
      drawing.draw({
        spans,
        strips: stripsOf(spans.lanes, placed, top, top + height),
        placed,
        scrolled: top,
        window: model.window.peek(),
        lit: model.lit.peek(),
        palette: palette.peek(),
        outlined,
        font,
        width,
        height,
        ratio: window.devicePixelRatio || 1,
      });
    };
    const stop = effect(() => {
      // What the picture depends on.
      void [model.placed.value, model.window.value, model.lit.value, model.cursor.value, view.value];
      void [model.chosenAt.value, palette.value, ink.value];
      frame ||= requestAnimationFrame(draw);
    });
    return () => {
      stop();
      cancelAnimationFrame(frame);
    };
  }, [model]);
}

/** `Ctrl` and wheel zoom, `Shift` and wheel or a sideways wheel pan; a bare wheel scrolls. */
function useWheel(model: Timeline, field: { current: HTMLDivElement | null }): void {
  useEffect(() => {
    const element = field.current!;
    const wheel = (event: WheelEvent) => {
      const aside = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
      if (event.ctrlKey || event.metaKey) {
        const factor = Math.exp(Math.sign(event.deltaY) * Math.min(0.5, Math.abs(event.deltaY) / 300));
        model.zoom(factor);
      } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))
        model.pan(aside / Math.max(1, element.clientWidth));
      else return;
      event.preventDefault();
    };
    element.addEventListener('wheel', wheel, { passive: false });
    return () => element.removeEventListener('wheel', wheel);
  }, [model]);
}

/** Scrolls to the lane that is sought. */
function useSought(model: Timeline, scroller: { current: HTMLDivElement | null }, view: Signal<View>): void {
  useEffect(
    () =>
      effect(() => {
        const sought = model.sought.value;
        const found = sought && model.placed.peek().find((p) => p.lane === sought.lane);
        if (!found) return;
        const { top, height } = view.peek();
        if (found.top < top) scroller.current!.scrollTop = found.top;
        else if (found.top + found.height > top + height)
          scroller.current!.scrollTop = Math.min(found.top, found.top + found.height - height);
      }),
    [model],
  );
}

function usePointer(
  model: Timeline,
  field: { current: HTMLDivElement | null },
  view: Signal<View>,
  hover: Signal<{ hit: Hit; x: number; y: number } | null>,
  brush: Signal<[number, number] | null>,
) {
  const pressed = useRef<{ x: number; last: number; pans: boolean } | null>(null);
  const place = (event: MouseEvent): [number, number] => {
    const box = field.current!.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const timeAt = (x: number) => {
    const { from, to } = model.window.peek();
    return from + (x / Math.max(1, view.peek().width)) * (to - from);
  };
  const hit = (x: number, y: number) => {
    const spans = model.loaded.peek();
    const { width, top } = view.peek();
    return spans && hitAt(spans, model.placed.peek(), model.window.peek(), [x, y + top], width);
  };
  const leave = () => {
    pressed.current = null;
    brush.value = null;
    hover.value = null;
    model.pointed.value = null;
  };
  return {
    onPointerDown: (event: PointerEvent) => {
      if (event.button !== 0) return;
      const [x] = place(event);
      pressed.current = { x, last: x, pans: event.shiftKey };
      // The way may lead out of the field.
      field.current!.setPointerCapture(event.pointerId);
    },
    onPointerMove: (event: PointerEvent) => {
      const [x, y] = place(event);
      const from = pressed.current;
      model.pointed.value = timeAt(x);
      if (from?.pans) {
        model.pan((from.last - x) / Math.max(1, view.peek().width));
        from.last = x;
      } else if (from && (brush.peek() || Math.abs(x - from.x) > DRAG_PX))
        brush.value = [Math.max(0, Math.min(from.x, x)), Math.min(view.peek().width, Math.max(from.x, x))];
      const found = from ? null : hit(x, y);
      hover.value = found && { hit: found, x, y };
    },
    onPointerUp: (event: PointerEvent) => {
      const [from, marked] = [pressed.current, brush.peek()];
      pressed.current = null;
      brush.value = null;
      if (!from || from.pans) return;
      if (marked) return model.show({ from: timeAt(marked[0]), to: timeAt(marked[1]) });
      const found = hit(...place(event));
      if (!found) return;
      // Several in one place come apart first.
      if (found.count > 1) zoomInto(model, found);
      else model.choose(found.span);
    },
    onPointerCancel: leave,
    onPointerLeave: leave,
    onDblClick: () => model.show(model.home.peek()),
  };
}

function zoomInto(model: Timeline, { from, to }: Hit): void {
  const margin = Math.max((to - from) * 0.1, 1);
  model.show({ from: from - margin, to: to + margin });
}

/** Arrows move from span to span, `Enter` chooses. */
function keys(model: Timeline, event: KeyboardEvent, said: Signal<string>): void {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const go: Record<string, () => number> = {
    ArrowRight: () => model.beside(1),
    ArrowLeft: () => model.beside(-1),
    ArrowDown: () => model.across(1),
    ArrowUp: () => model.across(-1),
  };
  if (event.shiftKey && (event.key === 'ArrowLeft' || event.key === 'ArrowRight'))
    model.pan(event.key === 'ArrowLeft' ? -SHARE : SHARE);
  else if (go[event.key]) {
    const next = go[event.key]();
    if (next >= 0) {
      model.cursor.value = next;
      model.reveal(next);
      said.value = spanText(model, next);
    }
  } else if (event.key === 'Enter' && model.cursor.peek() >= 0) model.choose(model.cursor.peek());
  else return;
  event.preventDefault();
  event.stopPropagation();
}

/** The line at the pointer. */
function Pointed({ model }: { model: Timeline }) {
  const at = model.pointed.value;
  const { from, to } = model.window.value;
  if (at === null || at < from || at > to) return null;
  return <div class="cursor-line" style={{ left: `${((at - from) / (to - from)) * 100}%` }} />;
}

/** What the pointer is on. */
function Tip({
  model,
  at: { hit, x, y },
  view,
}: {
  model: Timeline;
  at: { hit: Hit; x: number; y: number };
  view: Signal<View>;
}) {
  const spans = model.loaded.value;
  if (!spans) return null;
  const { answer, lanes, start, end, phase } = spans;
  const right = x > view.value.width / 2;
  const below = y < view.value.height / 2;
  const style = {
    [right ? 'right' : 'left']: `${(right ? view.value.width - x : x) + 12}px`,
    [below ? 'top' : 'bottom']: `${(below ? y : view.value.height - y) + 12}px`,
  };
  return (
    <div class="tip" style={style} aria-hidden="true">
      {hit.count > 1 ? (
        <>
          <b>{formatCount(hit.count)} spans</b> in {lengthText(hit.to - hit.from)}
          {hit.errors > 0 && <span class="crit"> {formatCount(hit.errors)} with an error</span>}
          {hit.names.slice(0, 3).map(([name, count]) => (
            <span key={name}>
              {formatCount(count)} × <Name text={answer.names[name]} limit={40} />
            </span>
          ))}
          <span class="quiet">a click shows them apart</span>
        </>
      ) : (
        <>
          <b>
            <Name text={answer.names[answer.spans.name[hit.span]]} />
          </b>
          <span>
            {lengthText(end[hit.span] - start[hit.span])} from {lengthText(start[hit.span])} ·{' '}
            {phaseText(phase[hit.span])}
          </span>
          {answer.spans.status[hit.span] === 2 && <span class="crit">ended with an error</span>}
        </>
      )}
      <span class="quiet">{laneText(lanes[hit.lane])}</span>
    </div>
  );
}

/** Names of the lanes that are seen; a click opens or closes one. */
function Gutter({ model, view }: { model: Timeline; view: Signal<View> }) {
  const spans = model.loaded.value;
  const { top, height } = view.value;
  const placed = model.placed.value;
  const first = laneAt(placed, top);
  const seen = placed.slice(first, Math.max(first, laneAt(placed, top + height)) + 1);
  const slow = model.slow.value;
  const chosen = spans && model.chosenAt.value >= 0 ? spans.answer.spans.lane[model.chosenAt.value] : -1;
  return (
    <div class="gutter" aria-hidden="true">
      {spans &&
        seen.map(({ lane, top: at, open }) => {
          const { host, instance, rows } = spans.lanes[lane];
          const marks = `${lane === chosen ? 'here' : ''} ${lane === slow?.lane ? 'slow' : ''}`;
          return (
            <span
              key={lane}
              class={marks}
              style={{ top: `${at - top}px`, height: `${PITCH}px` }}
              title={visible(`${laneText(spans.lanes[lane])}, ${instance}`)}
              onClick={() => rows.length > 1 && model.fold(lane)}
            >
              <i>{rows.length > 1 ? (open ? '▾' : '▸') : ''}</i>
              {laneName(spans.lanes[lane], 12)}{' '}
              {host && (
                <span class="quiet">
                  <Name text={host} limit={9} />
                </span>
              )}
            </span>
          );
        })}
    </div>
  );
}
