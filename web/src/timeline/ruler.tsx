/** Milliseconds over the lanes. */
import { useSignal } from '@preact/signals';
import { useLayoutEffect, useRef } from 'preact/hooks';
import { TICK_PX } from './draw';
import type { Timeline } from './model';
import { ticksOf } from './ticks';
import { lengthText, rulerText } from './words';

/** No character of a time is wider, at the ruler's size. */
const CHARACTER_PX = 7.5;

/** The ruler; its line at the pointer says the time. */
export function Ruler({ model }: { model: Timeline }) {
  const root = useRef<HTMLDivElement>(null);
  const width = useSignal(0);
  useLayoutEffect(() => {
    const resize = new ResizeObserver(() => {
      width.value = root.current!.clientWidth;
    });
    resize.observe(root.current!);
    return () => resize.disconnect();
  }, []);
  const { from, to } = model.window.value;
  const { step, ticks } = ticksOf({ from, to }, width.value / TICK_PX);
  const left = (at: number) => `${((at - from) / (to - from)) * 100}%`;
  const pointed = model.pointed.value;
  // At the right end a tick may have no room for its text.
  const textOf = (tick: number) => {
    const text = rulerText(tick, step);
    const room = width.value * (1 - (tick - from) / (to - from));
    return text.length * CHARACTER_PX + 4 <= room ? text : '';
  };
  return (
    <div class="ruler" ref={root} aria-hidden="true">
      {width.value > 0 &&
        ticks.map((tick) => (
          <span key={tick} style={{ left: left(tick) }}>
            {textOf(tick)}
          </span>
        ))}
      {pointed !== null && pointed >= from && pointed <= to && (
        <b class={pointed > (from + to) / 2 ? 'left' : ''} style={{ left: left(pointed) }}>
          {lengthText(pointed)}
        </b>
      )}
    </div>
  );
}
