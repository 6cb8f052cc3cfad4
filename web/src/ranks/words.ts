/** What the page says of ranks. */
import { placeText } from '../charts/summary';
import { formatCount, formatValue } from '../lib/number';
import { shown } from '../lib/text';
import type { Zone } from '../lib/time';
import type { Worse } from './choices';
import { columnEnds } from './grid';
import type { Loaded } from './model';
import { excess, type Standing } from './ratio';
import type { Row } from './rows';

const TIMES = '\u2009×';

/** A ratio as `1.25 ×`. */
export function ratioText(ratio: number): string {
  if (Number.isNaN(ratio)) return 'absent';
  if (Math.abs(ratio) === Infinity) return 'no number';
  if (Math.abs(ratio) >= 100) return formatValue(Math.round(ratio)) + TIMES;
  return ratio.toFixed(2).replace('-', '\u2212') + TIMES;
}

/** A column in words: `step 4,386`, `steps 4,384 to 4,389` or a time. */
export function columnText({ grid, exact, axis }: Loaded, column: number, zone: Zone): string {
  if (exact && !Number.isNaN(grid.seen[column])) return placeText(axis, grid.seen[column], zone);
  const [first, last] = columnEnds(grid, column);
  if (axis !== 'step') return placeText(axis, last, zone);
  return first >= last ? placeText(axis, last, zone) : `steps ${formatCount(first)} to ${formatCount(last)}`;
}

/** Where a spell began: the first x of its column. */
export function sinceText({ grid, axis }: Loaded, column: number, zone: Zone): string {
  return placeText(axis, columnEnds(grid, column)[0], zone);
}

/** A rank with its host. */
export function rankText(rank: number, host: string): string {
  return host ? `rank ${rank} on ${shown(host, 32)}` : `rank ${rank}`;
}

/** A row in words: a rank, or a group and how many are in it. */
export function rowText(row: Row, ranks: number[]): string {
  const first = ranks[row.members[0]];
  if (!row.group) return rankText(first, row.host);
  const last = ranks[row.members[row.members.length - 1]];
  const host = row.host && row.hosts === 1 ? `${shown(row.host, 32)}, ` : '';
  const more = row.hosts > 1 ? `, ${formatCount(row.hosts)} hosts` : '';
  return `${host}${formatCount(row.members.length)} ranks ${first} to ${last}${more}`;
}

/** What the map is of. */
export function baseText(base: 'peers' | 'own'): string {
  return base === 'peers' ? 'the median of the others' : 'the median of its own history';
}

/** Who is farthest from the others, as a sentence in two parts: the claim, and since when. */
export function verdict(
  named: Standing[],
  loaded: Loaded,
  worse: Worse,
  hostOf: (rank: number) => string,
  against: string,
  zone: Zone,
): [claim: string, rest: string] {
  const first = named[0];
  if (!first) return ['No rank has a value here.', ''];
  const who = rankText(first.rank, hostOf(first.rank));
  const far = excess(first.ratio, worse);
  if (far < 0)
    return ['No rank is on the worse side.', ` Nearest to it: ${who}, ${ratioText(first.ratio)} ${against}.`];
  if (!first.out) return ['No rank stands out.', ` Widest: ${who}, ${ratioText(first.ratio)} ${against}.`];
  const since =
    first.since < 0 ? ', over all that is shown' : `, since ${sinceText(loaded, first.since, zone)}`;
  const others = named.filter((s) => s !== first && s.out).length;
  const many = others === named.length - 1 && others > 1 ? 'At least ' : '';
  const more = others > 0 ? ` ${many}${others} more ${others === 1 ? 'stands' : 'stand'} out.` : '';
  return [`Widest: ${who}.`, ` ${ratioText(first.ratio)} ${against}${since}.${more}`];
}
