/** How runs differ, and what came of them. */

import { StateMark } from '../components/icons';
import { Name } from '../components/name';
import { setParams } from '../lib/address';
import { formatCount, formatValue } from '../lib/number';
import { formatSpan } from '../lib/time';
import type { CompareBoard, Compared } from './board';
import { tracksOf } from './groups';

const OUTCOMES = 6;

function Head({ board, first }: { board: CompareBoard; first: string }) {
  return (
    <thead>
      <tr>
        <th scope="col">{first}</th>
        {board.runs.value.map((run) => (
          <th scope="col" key={run.run_id}>
            <Name text={board.runName(run.run_id)} limit={24} />
          </th>
        ))}
      </tr>
    </thead>
  );
}

/** Attributes that differ; a click on a key groups by it. */
export function Differences({ board }: { board: CompareBoard }) {
  const differences = board.differences.value;
  return (
    <section class="panel" aria-label="Differences">
      <h2>
        Differences <span class="quiet">attributes that are not the same in all runs</span>
      </h2>
      {differences.length === 0 ? (
        <p class="quiet">All attributes are the same.</p>
      ) : (
        <div class="scroll" role="region" aria-label="Table of differences" tabIndex={0}>
          <table>
            <Head board={board} first="attribute" />
            <tbody>
              {differences.map(({ key, values }) => (
                <tr key={key}>
                  <th scope="row">
                    <button
                      type="button"
                      class="link"
                      title="Group the charts by this"
                      onClick={() => setParams({ group: `attribute:${key}` })}
                    >
                      <Name text={key} />
                    </button>
                  </th>
                  {values.map((value, at) => (
                    <td key={board.runs.value[at].run_id}>
                      {value === null ? <span class="quiet">—</span> : <Name text={value} limit={40} />}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

/** State, length and last values, run by run. */
export function Outcome({ board }: { board: CompareBoard }) {
  const runs = board.runs.value;
  return (
    <section class="panel" aria-label="Outcome">
      <h2>
        Outcome <span class="quiet">last value, and the lowest and highest of the range</span>
      </h2>
      <div class="scroll" role="region" aria-label="Table of outcomes" tabIndex={0}>
        <table>
          <Head board={board} first="run" />
          <tbody>
            <tr>
              <th scope="row">state</th>
              {runs.map((run) => (
                <td key={run.run_id}>
                  <StateMark state={run.state} />
                </td>
              ))}
            </tr>
            <tr>
              <th scope="row">last step</th>
              {runs.map((run) => (
                <td key={run.run_id}>{run.last_step === null ? '—' : formatCount(run.last_step)}</td>
              ))}
            </tr>
            <tr>
              <th scope="row">elapsed</th>
              {runs.map((run) => (
                <td key={run.run_id}>
                  {run.elapsed_seconds === null ? '—' : formatSpan(run.elapsed_seconds)}
                </td>
              ))}
            </tr>
            <tr>
              <th scope="row">attempts</th>
              {runs.map((run) => (
                <td key={run.run_id}>{formatCount(run.attempts)}</td>
              ))}
            </tr>
            {board.charts.value.slice(0, OUTCOMES).map((chart) => (
              <tr key={chart.name}>
                <th scope="row">
                  <Name text={chart.display} />
                </th>
                {runs.map((run) => (
                  <td key={run.run_id}>
                    <Reading chart={chart} runId={run.run_id} />
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Reading({ chart, runId }: { chart: Compared; runId: string }) {
  const tracks = tracksOf(chart.columns.filter((c) => c.runId === runId));
  if (tracks.length === 0) return <span class="quiet">—</span>;
  const lasts = tracks.flatMap((t) => t.last.findLast(Number.isFinite) ?? []);
  if (lasts.length === 0) return <span class="crit">not finite</span>;
  const last = lasts.reduce((mean, v, at) => mean + (v - mean) / (at + 1), 0);
  const extreme = (part: 'min' | 'max', pick: (a: number, b: number) => number) =>
    tracks.reduce(
      (best, t) => t[part].reduce((b, v) => (Number.isFinite(v) ? pick(b, v) : b), best),
      lasts[0],
    );
  return (
    <>
      <b>{formatValue(last, chart.unit)}</b>{' '}
      <span class="quiet">
        {formatValue(extreme('min', Math.min))} – {formatValue(extreme('max', Math.max))}
      </span>
    </>
  );
}
