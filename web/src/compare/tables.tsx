/** How runs differ, and what came of them. */

import { StateMark } from '../components/icons';
import { Name } from '../components/name';
import { setParams } from '../lib/address';
import { formatCount, formatValue } from '../lib/number';
import { formatSpan } from '../lib/time';
import type { CompareBoard } from './board';
import { distance, extremesOf, lastOf, type Outcome as MetricOutcome } from './outcome';

/** Names of the runs; a click makes one the base that the others are measured against. */
function Head({ board, first }: { board: CompareBoard; first: string }) {
  return (
    <thead>
      <tr>
        <th scope="col">{first}</th>
        {board.runs.value.map((run) => (
          <th scope="col" key={run.run_id}>
            <button
              type="button"
              class="link"
              aria-pressed={board.base.value === run.run_id}
              title="Measure the others against this run"
              onClick={() => setParams({ base: board.base.value === run.run_id ? null : run.run_id })}
            >
              <Name text={board.runName(run.run_id)} limit={24} />
            </button>
            {board.base.value === run.run_id && <span class="badge">base</span>}
          </th>
        ))}
      </tr>
    </thead>
  );
}

/** Attributes that differ; a click on a key groups by it. */
export function Differences({ board }: { board: CompareBoard }) {
  const differences = board.differences.value;
  const base = board.runs.value.findIndex((run) => run.run_id === board.base.value);
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
                    <td
                      key={board.runs.value[at].run_id}
                      class={base >= 0 && at !== base && value === values[base] ? 'same' : undefined}
                    >
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
        Outcome{' '}
        <span class="quiet">last value, and the best or the outermost of all points with its step</span>
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
            {(board.outcomes.value ?? []).map((outcome) => (
              <tr key={outcome.name}>
                <th scope="row">
                  <Name text={outcome.display} />
                </th>
                {runs.map((run, at) => (
                  <td key={run.run_id}>
                    <Reading board={board} outcome={outcome} at={at} />
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

function Reading({ board, outcome, at }: { board: CompareBoard; outcome: MetricOutcome; at: number }) {
  const reading = outcome.runs[at];
  if (!reading) return <span class="quiet">—</span>;
  const last = lastOf(reading);
  const base = board.runs.value.findIndex((run) => run.run_id === board.base.value);
  const against = base >= 0 && base !== at ? outcome.runs[base] : null;
  const away = against ? distance(last, lastOf(against), outcome.unit) : '';
  return (
    <>
      <b class={Number.isFinite(last) ? undefined : 'crit'}>{formatValue(last, outcome.unit)}</b>
      {away && <span class="away"> {away}</span>} <span class="quiet">{extremesOf(outcome, reading)}</span>
    </>
  );
}
