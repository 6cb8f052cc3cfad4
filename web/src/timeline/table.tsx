/** What is seen as a table: the text alternative. */
import { Dialog } from '../components/dialog';
import { Name } from '../components/name';
import { formatCount } from '../lib/number';
import type { Timeline } from './model';
import { laneText, lengthText, phaseText } from './words';

const ROWS_MAX = 2000;

/** Places of the spans that are seen and looked for, lane by lane. */
export function seenSpans(model: Timeline): number[] {
  const spans = model.loaded.value;
  if (!spans) return [];
  const { from, to } = model.window.value;
  const lit = model.lit.value;
  return model.order.value.flatMap((lane) =>
    spans.lanes[lane].rows
      .flatMap((row) => [...row.span])
      .filter((at) => spans.end[at] >= from && spans.start[at] <= to && (!lit || lit[at] === 1))
      .sort((a, b) => spans.start[a] - spans.start[b] || spans.row[a] - spans.row[b]),
  );
}

/** The table. */
export function SpanTable({ model, close }: { model: Timeline; close: () => void }) {
  const spans = model.loaded.value;
  if (!spans) return null;
  const { answer, lanes, start, end, phase, row } = spans;
  const seen = seenSpans(model);
  return (
    <Dialog title="Spans as a table" class="point-table spans-table" close={close}>
      <p class="quiet">
        {seen.length > ROWS_MAX
          ? `The first ${formatCount(ROWS_MAX)} of ${formatCount(seen.length)} spans that are shown; a zoom leaves fewer.`
          : `${formatCount(seen.length)} spans are shown.`}
      </p>
      <div class="scroll" tabIndex={0} role="region" aria-label="Spans">
        <table>
          <thead>
            <tr>
              <th scope="col">Process</th>
              <th scope="col">Span</th>
              <th scope="col">Phase</th>
              <th scope="col">Start</th>
              <th scope="col">Length</th>
              <th scope="col">Nested</th>
              <th scope="col">Status</th>
            </tr>
          </thead>
          <tbody>
            {seen.slice(0, ROWS_MAX).map((at) => (
              <tr key={at}>
                <th scope="row">{laneText(lanes[answer.spans.lane[at]])}</th>
                <td>
                  <button
                    type="button"
                    class="link"
                    onClick={() => {
                      close();
                      model.choose(at);
                      model.reveal(at);
                    }}
                  >
                    <Name text={answer.names[answer.spans.name[at]]} />
                  </button>
                </td>
                <td>{phaseText(phase[at])}</td>
                <td>{lengthText(start[at])}</td>
                <td>{lengthText(end[at] - start[at])}</td>
                <td>{row[at]}</td>
                <td>{answer.spans.status[at] === 2 ? 'error' : '—'}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Dialog>
  );
}
