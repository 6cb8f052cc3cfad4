/** Rows of the map: ranks in an order, or, where there are too many, groups of them. */
import type { Worse } from './choices';
import { excess, type Standing } from './ratio';

/** How rows are ordered. */
export type Order = 'rank' | 'value' | 'host';

/** Ranks that have a row each at most; more of them are grouped by host. */
export const ROWS_MAX = 256;

/** One row. */
export interface Row {
  /** Host of its ranks, empty when not known; the first one's where there are several. */
  host: string;
  /** Hosts in it. */
  hosts: number;
  /** Rows of the grid that it stands for. */
  members: number[];
  /** Whether it is a group that can be opened or closed. */
  group: boolean;
  /** The group that it was opened from, or that it is: what the address calls it. */
  key: string;
}

const natural = new Intl.Collator('en', { numeric: true });

/** Rows of ranks; of groups where they are too many, those in `open` followed by their ranks. */
export function rowsOf(
  standings: Standing[],
  hostOf: (rank: number) => string,
  order: Order,
  worse: Worse,
  open: ReadonlySet<string>,
): Row[] {
  const one = ({ row, rank }: Standing, key = ''): Row => ({
    host: hostOf(rank),
    hosts: 1,
    members: [row],
    group: false,
    key,
  });
  if (standings.length <= ROWS_MAX) return sorted(standings, hostOf, order, worse).map((s) => one(s));
  const groups = groupsOf(standings, hostOf);
  if (order === 'value') {
    const worst = new Map(groups.map((g) => [g, Math.max(...g.map((s) => excess(s.ratio, worse)))]));
    groups.sort((a, b) => worst.get(b)! - worst.get(a)! || a[0].rank - b[0].rank);
  } else if (order === 'host') groups.sort((a, b) => byHost(a[0], b[0], hostOf));
  return groups.flatMap((group) => {
    const key = String(group[0].rank);
    const row: Row = {
      host: hostOf(group[0].rank),
      hosts: new Set(group.map((s) => hostOf(s.rank))).size,
      members: group.map((s) => s.row),
      group: true,
      key,
    };
    return open.has(key) ? [row, ...sorted(group, hostOf, order, worse).map((s) => one(s, key))] : [row];
  });
}

function sorted(all: Standing[], hostOf: (rank: number) => string, order: Order, worse: Worse): Standing[] {
  if (order === 'rank') return all;
  const by =
    order === 'host'
      ? (a: Standing, b: Standing) => byHost(a, b, hostOf)
      : (a: Standing, b: Standing) => excess(b.ratio, worse) - excess(a.ratio, worse) || a.rank - b.rank;
  return [...all].sort(by);
}

function byHost(a: Standing, b: Standing, hostOf: (rank: number) => string): number {
  return natural.compare(hostOf(a.rank), hostOf(b.rank)) || a.rank - b.rank;
}

/** Ranks of one host together; of several hosts, where there are more than rows; by number, where hosts are not known. */
function groupsOf(standings: Standing[], hostOf: (rank: number) => string): Standing[][] {
  const hosts = new Map<string, Standing[]>();
  for (const standing of standings) {
    const host = hostOf(standing.rank);
    const on = hosts.get(host);
    if (on) on.push(standing);
    else hosts.set(host, [standing]);
  }
  const most = Math.ceil(standings.length / ROWS_MAX);
  const units = [...hosts].flatMap(([host, on]) =>
    host === '' || on.length > ROWS_MAX ? cut(on, most) : [on],
  );
  const together = Math.ceil(units.length / ROWS_MAX);
  return cut(units, together).map((some) => some.flat().sort((a, b) => a.rank - b.rank));
}

function cut<T>(all: T[], size: number): T[][] {
  return Array.from({ length: Math.ceil(all.length / size) }, (_, at) =>
    all.slice(at * size, (at + 1) * size),
  );
}
