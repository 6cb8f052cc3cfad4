/** Rows that a verdict on more than one rank is about, from its onset on. */
import type { Verdict } from '../health/answers';
import { inView, onsetOf } from '../health/words';
import { columnAt } from './grid';
import type { Ranks } from './model';
import type { Row } from './rows';

/** Rows that stand together. */
interface Span {
  first: number;
  count: number;
}

/** The rows of a verdict's ranks; all of them where it names none, none where it names one: its colour tells. */
export function tinted(verdict: Pick<Verdict, 'ranks'>, rows: Row[], ranks: number[]): Span[] {
  const of = new Set(verdict.ranks);
  if (of.size === 1) return [];
  const spans: Span[] = [];
  rows.forEach(({ members }, at) => {
    if (of.size > 0 && !members.some((m) => of.has(ranks[m]))) return;
    const last = spans.at(-1);
    if (last && last.first + last.count === at) last.count++;
    else spans.push({ first: at, count: 1 });
  });
  return spans;
}

/** The tints of the verdict that the tab is about. */
export function Tints({ model, tall }: { model: Ranks; tall: number }) {
  const loaded = model.loaded.value;
  const verdict = inView(model.board.health.value?.verdicts ?? []);
  const onset = verdict && loaded && onsetOf(model.board, loaded.axis, verdict);
  if (!verdict || !loaded || !onset) return null;
  const { grid } = loaded;
  if (onset.x > grid.to) return null;
  const share = (x: number) => Math.max(0, columnAt(grid, Math.max(grid.from, x))) / grid.columns;
  const left = share(onset.x);
  const right = onset.end === null || onset.end > grid.to ? 1 : share(onset.end);
  return (
    <>
      {tinted(verdict, model.rows.value, grid.ranks).map(({ first, count }) => (
        <div
          key={first}
          class={`tint ${verdict.level}`}
          style={{
            top: `${first * tall}px`,
            height: `${count * tall}px`,
            left: `${left * 100}%`,
            width: `${(right - left) * 100}%`,
          }}
        />
      ))}
    </>
  );
}
