/** Lines that the run's processes logged, asked for when the panel is opened. */
import { effect, useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { Failure } from '../components/failure';
import { Link } from '../components/link';
import { Name } from '../components/name';
import { LabelledSegments } from '../components/segments';
import { param, setParams } from '../lib/address';
import { isAbort } from '../lib/api';
import { zone } from '../lib/clock';
import { formatCount } from '../lib/number';
import { runPath } from '../lib/route';
import { visible } from '../lib/text';
import { formatFull, formatSecond } from '../lib/time';
import { writeKey } from '../timeline/answer';
import type { TrainingBoard } from './board';
import { askLines, LEVELS, type Level, type LogAnswer, type LogLine, severityName } from './log_lines';

/** The level that the address names; `null` while the panel is closed. */
const levelOf = (): Level | null => LEVELS.find((level) => level === param('lines')) ?? null;

/** The panel. */
export function LogPanel({ page }: { page: TrainingBoard }) {
  const level = levelOf();
  const open = (wanted: Level | null) => setParams({ lines: wanted });
  return (
    <section class="panel log-lines" aria-label="Log lines">
      <header>
        <h3>
          <button
            type="button"
            aria-expanded={level !== null}
            onClick={() => open(level === null ? LEVELS[0] : null)}
          >
            <span aria-hidden="true">{level === null ? '▸' : '▾'}</span> Log lines
          </button>
        </h3>
        {level !== null && (
          <LabelledSegments
            label="At least"
            choices={LEVELS.map((one) => ({ value: one, content: one }))}
            value={level}
            choose={open}
          />
        )}
      </header>
      {level !== null && <Lines page={page} />}
    </section>
  );
}

function Lines({ page }: { page: TrainingBoard }) {
  const answer = useSignal<LogAnswer | null>(null);
  const error = useSignal<unknown>(null);
  const controller = useRef(new AbortController());
  const read = async (goOn: boolean) => {
    controller.current.abort();
    controller.current = new AbortController();
    const level = levelOf();
    if (level === null) return;
    const { from, to } = page.times() ?? { from: null, to: null };
    const asked = { runId: page.board.runId, level, rank: page.rank.peek(), from, to };
    const before = goOn ? answer.peek() : null;
    try {
      const more = await askLines(asked, before?.next ?? null, controller.current.signal);
      const records = [...(before?.records ?? []), ...more.records];
      answer.value = { ...more, records };
      error.value = null;
    } catch (failure) {
      if (!isAbort(failure)) error.value = failure;
    }
  };
  useEffect(() => {
    const stop = effect(() => {
      void [levelOf(), page.rank.value, page.times()];
      queueMicrotask(() => void read(false));
    });
    return () => {
      stop();
      controller.current.abort();
    };
  }, [page]);
  const found = answer.value;
  return (
    <>
      {error.value !== null && <Failure error={error.value} retry={() => void read(false)} />}
      {found && found.records.length === 0 && <Nothing page={page} />}
      {found && found.records.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Lines">
          <table>
            <thead>
              <tr>
                <th scope="col">Time</th>
                <th scope="col">Level</th>
                <th scope="col">Rank</th>
                <th scope="col">Logger</th>
                <th scope="col">Line</th>
              </tr>
            </thead>
            <tbody>
              {found.records.map((line, at) => (
                <Row key={`${line.time_ns} ${at}`} page={page} line={line} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {found?.next && (
        <button type="button" class="link" onClick={() => void read(true)}>
          More after the first {formatCount(found.records.length)}
        </button>
      )}
      {found?.texts_hidden && (
        <p class="quiet">Texts that people or models wrote are for admins, and left out here.</p>
      )}
    </>
  );
}

function Row({ page, line }: { page: TrainingBoard; line: LogLine }) {
  const name = severityName(line.severity);
  const detail = page.board.detail.value;
  const key =
    line.trace &&
    line.span &&
    writeKey({ trace: line.trace, id: line.span, instance: line.instance, incarnation: null });
  return (
    <tr>
      <td title={formatFull(line.time, zone.value)}>{formatSecond(line.time, zone.value)}</td>
      <td class={line.severity >= 17 ? 'crit' : line.severity >= 13 ? 'warning' : ''}>{name}</td>
      <td>{line.rank ?? '—'}</td>
      <td>
        <Name text={line.scope} limit={24} />
      </td>
      <td class="line">
        {line.event && (
          <>
            <Name text={line.event} />{' '}
          </>
        )}
        {visible(line.body)}{' '}
        {key && detail && (
          <Link
            href={`${runPath(detail, page.board.runId, 'timeline')}?${new URLSearchParams({ span: key })}`}
          >
            span
          </Link>
        )}
      </td>
    </tr>
  );
}

/** Where no line is: what would send some. */
function Nothing({ page }: { page: TrainingBoard }) {
  return (
    <p>
      No line of this level came{page.rank.value === null ? '' : ` from rank ${page.rank.value}`}
      {page.times() === null ? '' : ' in this range'}. The trainer sends its log with{' '}
      <code>MEGATRON_OTEL_LOGS_ENABLED=1</code>, and through gRPC alone.
    </p>
  );
}
