/** Where the cards of a fleet lie: rows of hosts, or of a job's hosts, and columns of GPU numbers. */
import type { Gpu, Node } from './answers';
import { gpuKey, ownerKey, ownerName } from './names';

/** By what rows are grouped. */
export type Group = 'host' | 'job';

/** Heights of rows in CSS pixels: usual, and above so many of them. */
const TALL = 20;
const COMPACT = 8;
const COMPACT_FROM = 65;
/** From so many rows on each is one strip until it is opened. */
const FOLDED_FROM = 257;
/** Between groups. */
const GROUP_GAP = 6;

/** One row. */
export interface Row {
  key: string;
  host: string;
  /** The owner that the row belongs to, where rows are grouped by job. */
  group: string;
  y: number;
  height: number;
  /** One strip stands for all cards. */
  folded: boolean;
  /** A card or nothing for each column. */
  cells: (Gpu | null)[];
  node: Node | null;
}

/** The whole map. */
export interface Layout {
  rows: Row[];
  columns: string[];
  height: number;
  /** Where each card is. */
  places: Map<string, { row: number; column: number }>;
}

const natural = new Intl.Collator('en', { numeric: true });

/** What places depend on. */
export interface LayoutChoice {
  group: Group;
  /** Keys of rows that are opened. */
  open: ReadonlySet<string>;
}

/** Lays out cards, and the places of nodes whose cards are missing altogether. */
export function layoutOf(gpus: Gpu[], nodes: Node[], { group, open }: LayoutChoice): Layout {
  const columns = [...new Set(gpus.map((g) => g.gpu))].sort(natural.compare);
  const columnOf = new Map(columns.map((gpu, at) => [gpu, at]));
  const nodeOf = new Map(nodes.map((n) => [n.host, n]));
  const found = new Map<string, Row>();
  const rowOf = (host: string, owner: string) => {
    const key = group === 'job' ? `${owner}\n${host}` : host;
    let row = found.get(key);
    if (!row) {
      const cells = new Array<Gpu | null>(columns.length).fill(null);
      const node = nodeOf.get(host) ?? null;
      row = { key, host, group: owner, y: 0, height: 0, folded: false, cells, node };
      found.set(key, row);
    }
    return row;
  };
  for (const gpu of gpus) {
    const row = rowOf(gpu.host, group === 'job' ? ownerKey(gpu.owner) : '');
    const column = columnOf.get(gpu.gpu)!;
    // Two cards of one number: the one that was seen last is there.
    const other = row.cells[column];
    if (!other || (gpu.last_seen ?? 0) >= (other.last_seen ?? 0)) row.cells[column] = gpu;
  }
  // A node that has lost all of its cards keeps its row.
  const listed = new Set(gpus.map((g) => g.host));
  for (const node of nodes) if (!listed.has(node.host) && (node.gpus.pci ?? 0) > 0) rowOf(node.host, '');
  return placed(ordered([...found.values()], group), columns, open);
}

/** By host; grouped, the largest job first and what nobody owns last. */
function ordered(rows: Row[], group: Group): Row[] {
  const sizes = new Map<string, number>();
  const size = (row: Row) => row.cells.filter(Boolean).length;
  for (const row of rows) sizes.set(row.group, (sizes.get(row.group) ?? 0) + size(row));
  const rank = (row: Row) => (row.group === '' ? -1 : sizes.get(row.group)!);
  return rows.sort(
    (a, b) =>
      (group === 'job' ? rank(b) - rank(a) || natural.compare(a.group, b.group) : 0) ||
      natural.compare(a.host, b.host),
  );
}

function placed(rows: Row[], columns: string[], open: ReadonlySet<string>): Layout {
  const places = new Map<string, { row: number; column: number }>();
  let y = 0;
  rows.forEach((row, at) => {
    if (at > 0 && row.group !== rows[at - 1].group) y += GROUP_GAP;
    const compact = rows.length >= COMPACT_FROM && !open.has(row.key);
    row.folded = compact && rows.length >= FOLDED_FROM;
    row.height = compact ? COMPACT : TALL;
    row.y = y;
    y += row.height;
    row.cells.forEach((gpu, column) => {
      if (gpu) places.set(gpuKey(gpu), { row: at, column });
    });
  });
  return { rows, columns, height: y, places };
}

/** The row at a height; -1 outside and between groups. */
export function rowAt(rows: Row[], y: number): number {
  let [low, high] = [0, rows.length - 1];
  while (low <= high) {
    const middle = (low + high) >> 1;
    const row = rows[middle];
    if (y < row.y) high = middle - 1;
    else if (y >= row.y + row.height) low = middle + 1;
    else return middle;
  }
  return -1;
}

/** First and one past the last row that is seen between two heights. */
export function rowsBetween(rows: Row[], top: number, bottom: number): [number, number] {
  let first = rows.length;
  let [low, high] = [0, rows.length - 1];
  while (low <= high) {
    const middle = (low + high) >> 1;
    if (rows[middle].y + rows[middle].height > top) {
      first = middle;
      high = middle - 1;
    } else low = middle + 1;
  }
  let last = first;
  while (last < rows.length && rows[last].y < bottom) last++;
  return [first, last];
}

/** Rows beside each other that one owner has. */
export interface Block {
  key: string;
  /** What it is called; empty when nobody has these cards. */
  text: string;
  /** First row and how many. */
  first: number;
  count: number;
  cards: number;
  /** A card of it, by which its owner is found. */
  gpu: Gpu | null;
  /** The worst that is wrong with its cards. */
  state: 'ok' | 'missing' | 'silent';
}

/** Blocks of neighbours; a row whose cards have several owners is one of its own. */
export function blocksOf(rows: Row[]): Block[] {
  const blocks: Block[] = [];
  rows.forEach((row, at) => {
    const cards = row.cells.filter((g) => g !== null);
    const owners = new Map(cards.map((g) => [ownerKey(g.owner), g]));
    const named = [...owners.keys()].filter((key) => key !== '');
    const one = named.length === 1 && owners.size === 1 ? owners.get(named[0])! : null;
    const first = named.length > 0 ? owners.get(named[0])! : null;
    const state = stateOf(row);
    const key = `${row.group}|${named.sort().join(',')}|${owners.size}|${state}`;
    const before = blocks.at(-1);
    const same = before && before.key === key && rows[before.first].group === row.group;
    if (same && (one || named.length === 0)) {
      before.count += 1;
      before.cards += cards.length;
      return;
    }
    const text = named.length > 1 ? `${named.length} owners` : first ? ownerName(first.owner) : '';
    blocks.push({ key, text, first: at, count: 1, cards: cards.length, gpu: first, state });
  });
  return blocks;
}

/** Whether nothing is heard of a row's host, or of any of its cards. */
export function isSilent(row: Row): boolean {
  const cards = row.cells.filter((g) => g !== null);
  return row.node?.state === 'silent' || (cards.length > 0 && cards.every((g) => g.state === 'silent'));
}

function stateOf(row: Row): Block['state'] {
  if (isSilent(row)) return 'silent';
  const missing = row.cells.some((g) => g?.state === 'missing') || (row.node?.missing.length ?? 0) > 0;
  return missing ? 'missing' : 'ok';
}
