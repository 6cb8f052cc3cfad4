/** Where a chart of autocapture would be, had the run its series: why it has not, and what fills it. */
import type { Board } from '../charts/board';
import { copy } from '../lib/download';
import type { MissingMetric, MissingRow } from '../lib/missing';
import { runPath } from '../lib/route';
import { Link } from './link';
import { Name } from './name';

/** Cards of this kind on one page. */
const CARDS_MAX = 6;

/** Series that are missing by a fault and that the run has nowhere, each with its reason. */
export function absentOf(rows: MissingRow[], present: ReadonlySet<string>) {
  const found = new Map<string, { metric: MissingMetric; row: MissingRow }>();
  for (const row of rows.filter((r) => r.alarm))
    for (const metric of row.metrics)
      if (!present.has(metric.display) && !found.has(metric.display))
        found.set(metric.display, { metric, row });
  return [...found.values()];
}

/** The cards. */
export function AbsentCards({ board, height }: { board: Board; height: number }) {
  const present = new Set(board.charts.value.map((c) => c.name));
  const absent = absentOf(board.missing.value?.missing ?? [], present);
  const detail = board.detail.value;
  if (!detail) return null;
  const why = runPath(detail, board.runId, 'missing');
  return (
    <>
      {absent.slice(0, CARDS_MAX).map(({ metric, row }) => (
        <section
          key={metric.display}
          class="card absent-card"
          aria-label={`${metric.display}: absent`}
          style={{ '--body': `${height}px` }}
        >
          <header>
            <h3>
              <Name text={metric.display} />
            </h3>
            <span class="unit">{metric.unit}</span>
          </header>
          <div>
            <p>
              Absent: <Name text={row.text} limit={160} />
            </p>
            {row.command && (
              <p>
                <code>
                  <Name text={row.command} limit={60} />
                </code>{' '}
                <button type="button" class="link" onClick={() => copy(row.command ?? '', 'the command')}>
                  Copy
                </button>
              </p>
            )}
            <p>
              <Link href={why}>Why is it missing?</Link>
            </p>
          </div>
        </section>
      ))}
    </>
  );
}
