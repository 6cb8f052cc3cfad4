/** How long a step takes: quantiles of the trainer's histogram, or each step's own time. */
import { useComputed } from '@preact/signals';
import * as view from '../charts/view';
import { Sentence } from '../components/sentence';
import { Absent, type Frame, Panel } from './card';
import { absence, instrumentOf, STEP_SECONDS, STEP_TIME } from './panels';
import { quantileQuery } from './step_time';
import type { Picture } from './use_panel_plot';

const TITLE = 'Step time';
const UNIT = 's';

/** The panel. */
export function StepTimePanel(props: Frame) {
  const { page, height } = props;
  const picture = useComputed<Picture | null>(() => {
    const data = page.stepTime.value;
    return (
      data && {
        axis: data.axis,
        shape: data.shape,
        unit: UNIT,
        zero: true,
        log: view.isLog('step_time'),
        stale: null,
      }
    );
  });
  const training = page.training.value;
  const metric = instrumentOf(training, STEP_TIME)?.metric ?? null;
  const some = page.rowsOf(STEP_SECONDS).length > 0 || (instrumentOf(training, STEP_TIME)?.present ?? false);
  if (training && !some) {
    const { text, command } = absence(training, STEP_TIME);
    return <Absent id="step_time" title={TITLE} unit={UNIT} height={height} text={text} command={command} />;
  }
  const quantiles = page.stepTime.value?.shape.lines.some((l) => 'q' in l.labels) ?? false;
  const error = page.errors.value.get('step time');
  return (
    <Panel
      {...props}
      id="step_time"
      title={TITLE}
      unit={UNIT}
      help=""
      caveat={quantiles ? (instrumentOf(training, STEP_TIME)?.caveat ?? '') : ''}
      picture={picture}
      note={quantiles && <Note text={training?.step_time.text ?? null} />}
      noteLines={quantiles && training?.step_time.text ? 2 : 1}
      metric={quantiles ? null : metric && page.rowsOf(STEP_TIME).length > 0 ? metric : STEP_SECONDS}
      promql={quantiles && metric ? quantileQuery(metric, page.board.runId, 60) : null}
      error={page.stepTime.value || error === undefined ? undefined : error}
    />
  );
}

/** How far quantiles of the histogram go. */
function Note({ text }: { text: string | null }) {
  return (
    <>
      {text && (
        <span class="warning">
          <Sentence text={text} />{' '}
        </span>
      )}
      <span title="The histogram gets the mean of a log interval, not each step">
        one observation per log interval
      </span>
    </>
  );
}
