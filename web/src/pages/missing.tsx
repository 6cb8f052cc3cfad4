/** A run's missing series: why is this chart not there? */
import { isSystem } from '../charts/sections';
import { Failure } from '../components/failure';
import { OkIcon, WarnIcon } from '../components/icons';
import type { TabProps } from '../components/later';
import { copy } from '../lib/download';
import { alarmCount, type MissingAnswer } from '../lib/missing';
import { formatCount } from '../lib/number';
import { MissingTable } from '../missing/missing_table';
import '../styles/missing.css';

const DOCTOR = 'truegauge doctor';

/** The tab. */
export function MissingTab({ board }: TabProps) {
  const answer = board.missing.value;
  const error = board.missingError.value;
  if (answer)
    return (
      <div class="missing-tab">
        <Answer answer={answer} series={(board.metrics.value ?? []).filter((m) => isSystem(m.name)).length} />
      </div>
    );
  if (error) return <Failure error={error} retry={() => void board.readMissing()} />;
  return (
    <p class="nothing" role="status">
      {error === null
        ? 'This server does not tell why a series is missing.'
        : 'Asking why series are missing'}
    </p>
  );
}

function Answer({ answer, series }: { answer: MissingAnswer; series: number }) {
  const alarms = answer.missing.filter((row) => row.alarm);
  const calm = answer.missing.filter((row) => !row.alarm);
  const faults = alarmCount(answer);
  return (
    <>
      <p class="verdict" role="status">
        {faults > 0 ? <WarnIcon /> : <OkIcon />}
        {faults > 0 ? (
          <span>
            <b>{faults === 1 ? '1 series is missing' : `${formatCount(faults)} series are missing`}</b> of{' '}
            {formatCount(answer.expected)} that autocapture promises; {formatCount(answer.present)} are there
          </span>
        ) : (
          <Nothing answer={answer} series={series} />
        )}
        <span class="right quiet">
          the same before a run starts: <code>{DOCTOR}</code>
          <button type="button" class="link" onClick={() => copy(DOCTOR, 'the command')}>
            Copy
          </button>
        </span>
      </p>
      {alarms.length > 0 && (
        <section class="panel">
          <h2>Missing</h2>
          <MissingTable label="Missing" rows={alarms} />
        </section>
      )}
      {answer.cut && (
        <p class="quiet note">There is more than is listed here: what concerns most places comes first.</p>
      )}
      {calm.length > 0 && (
        <section class="panel calm">
          <h2>
            No fault <span class="quiet">not there, and nothing is broken</span>
          </h2>
          <MissingTable label="No fault" rows={calm} />
        </section>
      )}
    </>
  );
}

/** What may be said when nothing is a fault: only what is known to be so. */
function Nothing({ answer, series }: { answer: MissingAnswer; series: number }) {
  if (answer.capture.length === 0 && series === 0)
    return <span>Nothing is missed: autocapture has not spoken, and the run has none of its series.</span>;
  if (answer.present < answer.expected)
    return (
      <span>
        <b>Nothing fails.</b> {formatCount(answer.present)} of {formatCount(answer.expected)} series that
        autocapture promises are there; why the others are not is told below.
      </span>
    );
  if (answer.missing.length > 0)
    return (
      <span>
        <b>Nothing fails.</b> {formatCount(series)} series; what single places do not have is told below.
      </span>
    );
  return (
    <span>
      <b>Nothing is missing.</b> {formatCount(series)} series, all sources answer.
    </span>
  );
}
