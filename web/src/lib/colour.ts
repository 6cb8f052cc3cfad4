/** Which of the ten series colours a thing has. */

/** How many colours there are before they repeat with another dash. */
export const SLOTS = 10;

/** Hands out slots: whoever comes first gets the next free one and keeps it. */
export class Palette {
  private readonly slots = new Map<string, number>();

  /** The slot of `key`, from 0; 10 and above repeat the colours with dash `2 2`. */
  slot(key: string): number {
    // The first colour belongs to what has nothing to tell it apart.
    if (key === '') return 0;
    const known = this.slots.get(key);
    if (known !== undefined) return known;
    const slot = this.slots.size + 1;
    this.slots.set(key, slot);
    return slot;
  }
}

/** Custom property that holds the colour of a slot. */
export function slotProperty(slot: number): string {
  return `--series-${(slot % SLOTS) + 1}`;
}

/** Dash of a slot: solid for the first five, `7 3` for the next five, `2 2` from 11 on. */
export function slotDash(slot: number): number[] {
  if (slot >= SLOTS) return [2, 2];
  return slot >= 5 ? [7, 3] : [];
}

/** Keys of labels that have more than one value among these label sets; being without one is a value if `absence` counts. */
export function varyingLabels(sets: Record<string, string>[], absence: boolean): string[] {
  const varies = (key: string) => {
    const having = sets.filter((s) => key in s);
    return new Set(having.map((s) => s[key])).size + Number(absence && having.length < sets.length) > 1;
  };
  return [...new Set(sets.flatMap(Object.keys))].filter(varies).sort();
}

/** Labels that say enough alone where each series has another value of them. */
const ENOUGH = ['rank', 'dl_rank'];

/** Of keys that tell label sets apart, those that a reader needs: a rank says more than its host and its process. */
export function neededLabels(sets: Record<string, string>[], keys: string[]): string[] {
  const alone = ENOUGH.find(
    (key) => keys.includes(key) && new Set(sets.map((s) => s[key])).size === sets.length,
  );
  return alone ? [alone] : keys;
}

/**
 * Keys of labels that tell series apart: with several values anywhere, or, among the series of one metric,
 * with a value for some and none for others.
 */
export function tellingLabels(series: { display: string; labels: Record<string, string> }[]): string[] {
  const telling = new Set(
    varyingLabels(
      series.map((s) => s.labels),
      false,
    ),
  );
  const metrics = new Map<string, Record<string, string>[]>();
  for (const { display, labels } of series) {
    const sets = metrics.get(display);
    if (sets) sets.push(labels);
    else metrics.set(display, [labels]);
  }
  for (const sets of metrics.values()) {
    if (sets.length > 1) for (const key of varyingLabels(sets, true)) telling.add(key);
  }
  return [...telling].sort();
}
