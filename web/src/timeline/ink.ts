/** Colours of the timeline, read once per theme. */
import { computed } from '@preact/signals';
import { ink } from '../charts/model';
import { PHASES } from '../lib/phases';
import { parseHex, pixel } from '../lib/ramp';
import { themePainted, token } from '../lib/theme';
import type { SpanInk } from './paint';

/** Pixels, and what is written on them. */
export interface Palette {
  pixels: SpanInk;
  /** The colour of words on each phase. */
  words: string[];
  css: string[];
}

/** Black or white, whichever is read better on a colour. */
function wordsOn(hex: string): string {
  const [red, green, blue] = parseHex(hex).map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  // Both have a contrast of 4.58 or more where the luminance is 0.179.
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? 'black' : 'white';
}

/** The colours of the theme now. */
export const palette = computed<Palette>(() => {
  void themePainted.value;
  const css = PHASES.map((phase) => token(phase.token));
  const of = (hex: string) => pixel(parseHex(hex));
  const { panel, crit, grid, line2 } = ink.value;
  return {
    pixels: {
      phases: Uint32Array.from(css, of),
      dim: of(line2),
      panel: of(panel),
      error: of(crit),
      grid: of(grid),
    },
    words: css.map(wordsOn),
    css,
  };
});
