/** A canvas that draws again when its size, the theme or what it read changes. */
import { effect, useSignal } from '@preact/signals';
import type { RefObject } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { ink } from '../charts/model';
import { themePainted } from '../lib/theme';

/** What is drawn on: `ctx` counts CSS pixels. */
export interface Sheet {
  ctx: CanvasRenderingContext2D;
  width: number;
  height: number;
  /** Device pixels in a CSS pixel. */
  ratio: number;
  ink: typeof ink.value;
}

/** Gives the reference for the canvas; `draw` is called inside an effect, so that it follows what it reads. */
export function useCanvas(draw: (sheet: Sheet) => void): RefObject<HTMLCanvasElement | null> {
  const canvas = useRef<HTMLCanvasElement>(null);
  const size = useSignal<[number, number]>([0, 0]);
  const latest = useRef(draw);
  latest.current = draw;
  useEffect(() => {
    const element = canvas.current!;
    const resize = new ResizeObserver(() => {
      const next: [number, number] = [element.clientWidth, element.clientHeight];
      if (next.join() !== size.peek().join()) size.value = next;
    });
    resize.observe(element);
    const stop = effect(() => {
      void themePainted.value;
      const [width, height] = size.value;
      if (width === 0 || height === 0) return;
      const ratio = window.devicePixelRatio || 1;
      const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
      if (element.width !== across) element.width = across;
      if (element.height !== down) element.height = down;
      const ctx = element.getContext('2d')!;
      ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
      ctx.clearRect(0, 0, width, height);
      latest.current({ ctx, width, height, ratio, ink: ink.value });
    });
    return () => {
      stop();
      resize.disconnect();
    };
  }, []);
  return canvas;
}
