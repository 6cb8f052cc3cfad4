/** How far apart the ranks are: their median, least and greatest, and who is farthest from it. */
import { type Shape, shapeOf } from '../charts/shape';
import { rankLabel } from '../ranks/crew';
import { foldedColumn, foldOf, middle, type Piece, seriesOf, together } from './fold';
import { GROUP } from './read';

/** Ranks that have a line of their own. */
const NAMED = 2;
/** Latest cells that a rank is judged by. */
const LATEST = 20;
/** Nearer to the median than this, nobody stands out. */
const ALIKE = 0.02;

/** A rank that stands out. */
export interface Far {
  rank: number;
  /** Its value over the median of all, the middle one of the latest cells. */
  ratio: number;
}

/** What is drawn, and who stands out. */
export interface Spread {
  shape: Shape;
  ranks: number;
  far: Far[];
}

/** The spread of the series of one metric. */
export function spreadOf(pieces: Piece[]): Spread {
  const series = seriesOf(pieces.filter((p) => rankLabel(p.column.labels) !== null));
  const byRank = new Map<number, Piece[]>();
  for (const own of series) {
    const rank = rankLabel(own[0].column.labels)!;
    byRank.set(rank, [...(byRank.get(rank) ?? []), ...own]);
  }
  const ranks = [...byRank.keys()].sort((a, b) => a - b);
  if (ranks.length === 0) return { shape: shapeOf(new Float64Array(), [], []), ranks: 0, far: [] };
  const fold = foldOf(ranks.map((rank) => byRank.get(rank)!));
  const first = Math.max(0, fold.x.length - LATEST);
  const far = fold.rows
    .map((row, at): Far => {
      const ratios = Array.from(row.subarray(first), (v, cell) => v / fold.median[first + cell]);
      return { rank: ranks[at], ratio: middle(ratios.filter(Number.isFinite)) };
    })
    .filter(({ ratio }) => Math.abs(ratio - 1) > ALIKE)
    .sort((a, b) => Math.abs(b.ratio - 1) - Math.abs(a.ratio - 1) || a.rank - b.rank)
    .slice(0, NAMED);
  const like = byRank.get(ranks[0])![0].column;
  const named = far.map(({ rank }): Piece => {
    const values = fold.rows[ranks.indexOf(rank)];
    const count = values.map((v) => (Number.isFinite(v) ? 1 : 0));
    const labels = { [GROUP]: `rank ${rank}` };
    return {
      x: fold.x,
      column: {
        ...like,
        labels,
        attempt: 1,
        last: values,
        min: values,
        max: values,
        count,
        smooth: null,
        nonFinite: [],
        interval: fold.interval,
      },
    };
  });
  const whole = foldedColumn(fold, { ...like, nonFinite: [] }, { [GROUP]: `median of ${ranks.length}` });
  const { x, columns } = together([whole, ...named]);
  return { shape: shapeOf(x, columns, [GROUP]), ranks: ranks.length, far };
}
