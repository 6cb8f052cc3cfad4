/** Names beside the rows of the map and under the bars: hosts, and ranks where there is room. */
import { Name } from '../components/name';
import type { Ranks } from './model';
import type { Row } from './rows';

/** Rows of one host that follow each other. */
export interface Block {
  host: string;
  hosts: number;
  first: number;
  count: number;
}

/** Rows as blocks of one host each. */
export function blocksOf(rows: Row[]): Block[] {
  const blocks: Block[] = [];
  rows.forEach((row, at) => {
    const last = blocks[blocks.length - 1];
    if (last && last.host === row.host && last.hosts === row.hosts) last.count++;
    else blocks.push({ host: row.host, hosts: row.hosts, first: at, count: 1 });
  });
  return blocks;
}

/** Room that a name needs, CSS pixels. */
const NAME_PX = 14;

/** Blocks that can be named without names over each other; the one to keep first. */
export function namedBlocks(blocks: Block[], size: number, room: number, keep: number): Block[] {
  const middle = (b: Block) => (b.first + b.count / 2) * size;
  const kept = blocks.filter((b) => keep >= b.first && keep < b.first + b.count);
  for (const block of blocks) {
    if (kept.every((k) => k === block || Math.abs(middle(k) - middle(block)) >= room)) {
      if (!kept.includes(block)) kept.push(block);
    }
  }
  return kept;
}

/** Ranks by name where rows are tall enough, else hosts. */
export function RowLabels({ model, tall }: { model: Ranks; tall: number }) {
  const rows = model.rows.value;
  const ranks = model.loaded.value?.grid.ranks ?? [];
  const selected = model.selectedRow.value;
  if (tall >= NAME_PX)
    return (
      <div class="row-labels" aria-hidden="true">
        {rows.map((row, at) => (
          <span
            key={`${row.key} ${row.members[0]}`}
            class={at === selected ? 'here' : ''}
            style={{ top: `${(at + 0.5) * tall}px` }}
          >
            rank {ranks[row.members[0]]}
            {row.host && (
              <>
                {' '}
                <span class="quiet">
                  <Name text={row.host} limit={12} />
                </span>
              </>
            )}
          </span>
        ))}
      </div>
    );
  const blocks = blocksOf(rows);
  // Without hosts, or with another one in each row, ranks tell more.
  const byRank = blocks.length > 1 && blocks.length === rows.length && !rows.some((r) => r.group);
  const named = namedBlocks(blocks, tall, NAME_PX, selected);
  return (
    <div class="row-labels" aria-hidden="true">
      {named.map((block) => (
        <span
          key={block.first}
          class={selected >= block.first && selected < block.first + block.count ? 'here' : ''}
          style={{ top: `${(block.first + block.count / 2) * tall}px` }}
        >
          {byRank || block.host === '' ? (
            rows[block.first] && rankRange(ranks, rows.slice(block.first, block.first + block.count))
          ) : (
            <>
              <Name text={block.host} limit={14} />
              {block.hosts > 1 && ` +${block.hosts - 1}`}
            </>
          )}
        </span>
      ))}
    </div>
  );
}

function rankRange(ranks: number[], rows: Row[]): string {
  const all = rows.flatMap((r) => r.members).map((m) => ranks[m]);
  const [first, last] = [Math.min(...all), Math.max(...all)];
  return first === last ? `rank ${first}` : `${first}–${last}`;
}
