/** Colours of a heat map: from better than the peers over alike to worse. */
import { computed } from '@preact/signals';
import { themePainted, token } from './theme';

/** How many shades a ramp has. */
export const SHADES = 256;

type Rgb = [red: number, green: number, blue: number];

/** Reads `#rrggbb`. */
export function parseHex(hex: string): Rgb {
  const number = Number.parseInt(hex.replace('#', ''), 16);
  return [(number >> 16) & 255, (number >> 8) & 255, number & 255];
}

/** A colour as one pixel of an `ImageData`, on a little-endian machine. */
export function pixel([red, green, blue]: Rgb): number {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/** Shades between stops as pixels; the stops lie equally far apart unless `places` from 0 to 1 are given. */
export function shades(stops: string[], places = stops.map((_, at) => at / (stops.length - 1))): Uint32Array {
  const colours = stops.map(parseHex);
  return Uint32Array.from({ length: SHADES }, (_, at) => {
    const place = at / (SHADES - 1);
    const right = Math.max(
      1,
      places.findIndex((p) => p >= place),
    );
    const left = right - 1;
    const share = (place - places[left]) / (places[right] - places[left]);
    const mixed = colours[left].map((value, part) =>
      Math.round(value + (colours[right][part] - value) * share),
    );
    return pixel(mixed as Rgb);
  });
}

/** The diverging ramp of the theme now. */
export const diverging = computed(() => {
  void themePainted.value;
  return shades([1, 2, 3, 4, 5].map((at) => token(`--div-${at}`)));
});

/** Where the stops of the sequential ramp lie. */
export const SEQUENTIAL_PLACES = [0, 0.3, 0.6, 0.85, 1];

/** The sequential ramp of the theme now, from little to much. */
export const sequential = computed(() => {
  void themePainted.value;
  return shades(
    [1, 2, 3, 4, 5].map((at) => token(`--seq-${at}`)),
    SEQUENTIAL_PLACES,
  );
});

/** What colours a ratio to the peers: how far it may go until the ramp ends, and which side is worse. */
export interface Scale {
  low: number;
  high: number;
  /** Whether the low side is the worse one. */
  lowIsWorse: boolean;
}

/** The shade of a ratio; 1 lies in the middle. */
export function shadeOf(ratio: number, { low, high, lowIsWorse }: Scale): number {
  const side = ratio >= 1 ? (ratio - 1) / (high - 1) : (ratio - 1) / (1 - low);
  const worse = Math.max(-1, Math.min(1, lowIsWorse ? -side : side));
  return Math.round(((worse + 1) / 2) * (SHADES - 1));
}

/** Distances at which a ramp may end. */
const ENDS = [0.1, 0.2, 0.3, 0.5, 1, 3];

/** Ends of the ramp that hold nearly all of these ratios, and no less than a tenth on either side. */
export function scaleOf(ratios: Float32Array, lowIsWorse: boolean): Scale {
  const far: number[] = [];
  const stride = Math.max(1, Math.floor(ratios.length / 20_000));
  for (let at = 0; at < ratios.length; at += stride) {
    const ratio = ratios[at];
    if (Number.isFinite(ratio)) far.push(Math.abs(ratio - 1));
  }
  far.sort((a, b) => a - b);
  const usual = far[Math.floor(far.length * 0.95)] ?? 0;
  const end = ENDS.find((e) => e >= usual) ?? ENDS[ENDS.length - 1];
  return { low: end < 1 ? 1 - end : 1 / (1 + end), high: 1 + end, lowIsWorse };
}
