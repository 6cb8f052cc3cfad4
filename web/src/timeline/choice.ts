/** Which ranks are shown: numbers and ranges, or a host. */

/** A choice of ranks that was understood. */
export interface Choice {
  /** As the server takes it, such as `0-7,12`; empty for all. */
  ranks: string;
  /** What is wrong with it; empty when nothing is. */
  wrong: string;
}

const PIECE = /^(\d{1,7})(?:-(\d{1,7}))?$/;

/** Reads `0-7,12`, `@host-3` or nothing; `hosts` names the host of each rank. */
export function readRanks(text: string, hosts: ReadonlyMap<number, string>): Choice {
  const plain = text.trim();
  if (plain === '' || plain === 'all') return { ranks: '', wrong: '' };
  if (plain.startsWith('@')) {
    const host = plain.slice(1);
    const ranks = [...hosts].filter(([, of]) => of === host).map(([rank]) => rank);
    if (ranks.length === 0) return { ranks: '', wrong: 'no rank is known of this host' };
    return { ranks: ranged(ranks), wrong: '' };
  }
  const pieces = plain.split(',').map((piece) => piece.trim());
  for (const piece of pieces) {
    const found = PIECE.exec(piece);
    const [from, to] = [Number(found?.[1]), Number(found?.[2] ?? found?.[1])];
    if (!found || to < from) return { ranks: '', wrong: 'ranks are such as 0-7,12 or @host' };
  }
  return { ranks: pieces.join(','), wrong: '' };
}

/** Ranks as ranges. */
function ranged(ranks: number[]): string {
  const sorted = [...new Set(ranks)].sort((a, b) => a - b);
  const ranges: [number, number][] = [];
  for (const rank of sorted) {
    const last = ranges[ranges.length - 1];
    if (last && rank === last[1] + 1) last[1] = rank;
    else ranges.push([rank, rank]);
  }
  return ranges.map(([from, to]) => (from === to ? String(from) : `${from}-${to}`)).join(',');
}
