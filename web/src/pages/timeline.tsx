/** A run's timeline: what did each rank do inside this step? */
import { effect, type Signal, useSignal } from '@preact/signals';
import { useEffect, useLayoutEffect, useMemo } from 'preact/hooks';
import { Failure } from '../components/failure';
import type { TabProps } from '../components/later';
import { Sentence } from '../components/sentence';
import { param, setParams, zoomDepth } from '../lib/address';
import { copy } from '../lib/download';
import { bind } from '../lib/keys';
import { formatCount } from '../lib/number';
import { paced } from '../lib/pace';
import { PHASES } from '../lib/phases';
import { Detail } from '../timeline/detail';
import { Lanes } from '../timeline/lanes';
import { Minimap } from '../timeline/minimap';
import { Timeline } from '../timeline/model';
import { Ruler } from '../timeline/ruler';
import { SpanTable } from '../timeline/table';
import { TimelineToolbar } from '../timeline/toolbar';
import { laneText, shiftText } from '../timeline/words';
import { isLive } from './run_feed';
import '../styles/timeline.css';

/** While a run goes on, its newest step is read again, ms. */
const REFRESH_MS = 5000;
/** Of the window, what a key moves or leaves. */
const PAN_SHARE = 0.15;
const ZOOM_FACTOR = 0.7;
/** Clocks that are named. */
const SHIFTS_MAX = 4;

/** The tab. */
export function TimelineTab({ board }: TabProps) {
  const model = useMemo(() => new Timeline(board), [board]);
  const table = useSignal(false);
  useFeed(model);
  useKeys(model, table);
  const spans = model.loaded.value;
  const error = model.error.value !== null && (
    <Failure error={model.error.value} retry={() => void model.load(true)} />
  );
  if (spans && spans.answer.total === 0 && spans.answer.steps === null && param('ranks') === '')
    return (
      <>
        {error}
        <NoSpans model={model} />
      </>
    );
  return (
    <div class="timeline">
      <TimelineToolbar model={model} />
      {error}
      <div class="both">
        <section class="panel plane" aria-label="Spans over time">
          <Minimap model={model} />
          <Ruler model={model} />
          <Lanes model={model} />
          <Foot model={model} open={() => (table.value = true)} />
        </section>
        <Detail model={model} />
      </div>
      {table.value && <SpanTable model={model} close={() => (table.value = false)} />}
    </div>
  );
}

function useFeed(model: Timeline): void {
  useEffect(() => {
    const refresh = paced(() => model.load(true), REFRESH_MS);
    const stopAsking = effect(() => {
      void model.question.value;
      queueMicrotask(() => void model.load(false));
    });
    const stopChoosing = effect(() => {
      void model.chosen.value;
      queueMicrotask(() => void model.loadSpan());
    });
    const stopOpening = effect(() => {
      const step = model.stepToOpen.value;
      if (step !== null) queueMicrotask(() => setParams({ step: String(step) }));
    });
    // News of the run change its facts: a newer step may be there.
    let seen = model.board.detail.peek()?.last_time_ms;
    const stopFollowing = effect(() => {
      const now = model.board.detail.value?.last_time_ms;
      if (now !== seen && isLive() && model.follows.peek()) refresh.ask();
      seen = now;
    });
    return () => {
      stopAsking();
      stopChoosing();
      stopOpening();
      stopFollowing();
      refresh.end();
      model.end();
    };
  }, [model]);
}

function useKeys(model: Timeline, table: Signal<boolean>): void {
  useLayoutEffect(() => {
    const group = 'Timeline';
    const go = (forward: boolean) => () => {
      const next = model.nextOfKind(forward);
      if (next < 0) return false;
      model.choose(next);
      model.reveal(next);
      return true;
    };
    const back = () => {
      model.settle();
      return zoomDepth() > 0 ? window.history.back() : model.show(model.home.peek());
    };
    const leave = () => {
      model.cursor.value = -1;
      return param('span') ? setParams({ span: null }) : false;
    };
    const search = () => document.querySelector<HTMLInputElement>('.timeline .find')?.focus();
    return bind(
      { keys: 'w', does: 'Zoom in', group, run: () => model.zoom(ZOOM_FACTOR) },
      { keys: 's', does: 'Zoom out', group, run: () => model.zoom(1 / ZOOM_FACTOR) },
      { keys: 'a', does: 'Earlier', group, run: () => model.pan(-PAN_SHARE) },
      { keys: 'd', does: 'Later', group, run: () => model.pan(PAN_SHARE) },
      { keys: '0', does: 'Show all of it', group, run: () => model.show(model.home.peek()) },
      { keys: 'Backspace', does: 'Previous zoom', group, run: back },
      { keys: 'n', does: 'Next span of this kind, or that was found', group, run: go(true) },
      { keys: 'N', does: 'The one before', group, run: go(false) },
      { keys: ',', does: 'Step before', group, run: () => model.turn(-1) },
      { keys: '.', does: 'Step after', group, run: () => model.turn(1) },
      { keys: '/', does: 'Find spans by name', group, run: search },
      { keys: 'v', does: 'View as table', group, run: () => (table.value = true) },
      { keys: 'Escape', does: 'No span chosen', group, run: leave },
    );
  }, [model]);
}

/** Below the lanes: what the colours are, whose clock was moved, what is not shown. */
function Foot({ model, open }: { model: Timeline; open: () => void }) {
  const spans = model.loaded.value;
  if (!spans) return <footer />;
  const { answer } = spans;
  const present = new Set(spans.phase);
  const slow = model.slow.value;
  return (
    <footer>
      <p class="legend">
        {PHASES.map(
          (phase, at) =>
            present.has(at) && (
              <span key={phase.key}>
                <i style={{ background: `var(${phase.token})` }} /> {phase.text}
              </span>
            ),
        )}
        <span>
          <i class="hatched" /> several, less than a pixel each
        </span>
        {answer.spans.status.includes(2) && (
          <span>
            <i class="error" /> error
          </span>
        )}
        <button type="button" class="link" onClick={open}>
          As a table
        </button>
      </p>
      {slow && (
        <p>
          <b>{laneText(spans.lanes[slow.lane])}</b> works {slow.ratio.toFixed(2)} × as long as the median of
          the others.
        </p>
      )}
      <Shifts model={model} />
      {answer.left_out > 0 && (
        <p class="warning">
          The longest {formatCount(answer.spans.lane.length)} of {formatCount(answer.total)} spans are shown;
          fewer ranks{answer.step === null && ' or one step'} show all.
        </p>
      )}
      {answer.texts_hidden && (
        <p class="quiet">
          Texts of prompts and completions are kept of this run; only a token of an admin may read them.
        </p>
      )}
      {answer.text && answer.total > 0 && (
        <p class="quiet">
          <Sentence text={answer.text} /> {answer.switch && <code>{answer.switch}</code>}
        </p>
      )}
      {answer.total === 0 && (
        <p class="nothing">
          {answer.text ? <Sentence text={answer.text} /> : 'No span is here.'}{' '}
          <button
            type="button"
            class="link"
            onClick={() => setParams({ step: null, ranks: null, whole: null })}
          >
            Show the newest step
          </button>
        </p>
      )}
    </footer>
  );
}

/** Whose clocks were moved so that the lanes fit. */
function Shifts({ model }: { model: Timeline }) {
  const shifts = new Map<string, number>();
  for (const { host, instance, clock_shift_ms } of model.loaded.value?.lanes ?? [])
    if (clock_shift_ms !== null && Math.abs(clock_shift_ms) >= 0.05)
      shifts.set(host || instance, clock_shift_ms);
  if (shifts.size === 0) return null;
  const named = [...shifts].slice(0, SHIFTS_MAX).map(([host, ms]) => shiftText(host, ms));
  const more = shifts.size > SHIFTS_MAX ? ` and ${formatCount(shifts.size - SHIFTS_MAX)} more hosts` : '';
  return (
    <p class="quiet">
      Clocks: {named.join(', ')}
      {more}; estimated from what all ranks finish together.
    </p>
  );
}

/** Where no spans came: which switch of the trainer sends them. */
function NoSpans({ model }: { model: Timeline }) {
  const answer = model.loaded.value?.answer;
  const line = answer?.switch;
  return (
    <section class="empty">
      <h2>Spans are off</h2>
      <p>
        {answer?.text ? (
          <Sentence text={answer.text} />
        ) : (
          'This tab shows what each rank did inside a step, from the spans that its trainer exports. None came.'
        )}
      </p>
      {line && (
        <figure class="snippet">
          <figcaption>
            On every rank that should be seen
            <button type="button" onClick={() => copy(line, 'the switch')}>
              Copy
            </button>
          </figcaption>
          <pre>
            <code>{line}</code>
          </pre>
        </figure>
      )}
    </section>
  );
}
