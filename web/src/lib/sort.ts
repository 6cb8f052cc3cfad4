/** Sort orders in the address: keys by comma, `-` for descending. */

/** One key of an order. */
export interface SortKey {
  key: string;
  descending: boolean;
}

/** Newest first. */
export const DEFAULT_SORT = '-started';

/** Reads an order. */
export function parseSort(text: string): SortKey[] {
  return (text || DEFAULT_SORT)
    .split(',')
    .filter(Boolean)
    .map((piece) => ({ key: piece.replace(/^-/, ''), descending: piece.startsWith('-') }));
}

/** Writes an order; the default one is left out. */
export function writeSort(keys: SortKey[]): string {
  const text = keys.map((k) => (k.descending ? '-' : '') + k.key).join(',');
  return text === DEFAULT_SORT ? '' : text;
}

/** The order after a click on a column: alone, or as a second key with `Shift`. */
export function clickSort(now: SortKey[], key: string, second: boolean, descendingFirst: boolean): SortKey[] {
  const known = now.find((k) => k.key === key);
  const next: SortKey = { key, descending: known ? !known.descending : descendingFirst };
  if (!second) return [next];
  return known ? now.map((k) => (k.key === key ? next : k)) : [...now.slice(0, 1), next];
}
