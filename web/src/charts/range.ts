/** Spans of the x axis. */

/** From and to, in the axis' own unit: steps, ms since the epoch, or seconds since the run's start. */
export interface Range {
  from: number;
  to: number;
}

/** The span that holds both; either may be missing. */
export function union(a: Range | null, b: Range | null): Range | null {
  if (!a || !b) return a ?? b;
  return { from: Math.min(a.from, b.from), to: Math.max(a.to, b.to) };
}

/** Zooms by `factor` (below 1 goes in) and keeps `at` where it is. */
export function zoomAround(range: Range, at: number, factor: number): Range {
  return { from: at - (at - range.from) * factor, to: at + (range.to - at) * factor };
}

/** Moves by a share of the width. */
export function shift(range: Range, share: number): Range {
  const by = (range.to - range.from) * share;
  return { from: range.from + by, to: range.to + by };
}

/** Keeps a zoom inside `full`; `null` when it shows all of it. */
export function confine(range: Range, full: Range): Range | null {
  const width = Math.max(range.to - range.from, 1e-9);
  if (width >= (full.to - full.from) * 0.999) return null;
  const from = Math.min(Math.max(range.from, full.from), full.to - width);
  return { from, to: from + width };
}

/** A span that has a width, so that one point stands in the middle. */
export function drawable(range: Range): Range {
  if (range.to > range.from) return range;
  const half = Math.max(0.5, Math.abs(range.from) * 1e-9);
  return { from: range.from - half, to: range.to + half };
}
