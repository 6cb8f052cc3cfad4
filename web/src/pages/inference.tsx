/** Inference: do users get their tokens in time? */
import { effect, type Signal, useSignal } from '@preact/signals';
import { useEffect, useLayoutEffect, useMemo, useRef } from 'preact/hooks';
import { Failure } from '../components/failure';
import { CritIcon, WarnIcon } from '../components/icons';
import { Link } from '../components/link';
import { Toggle } from '../components/segments';
import { RangeControl, shift, widen } from '../explore/range_control';
import { counted } from '../fleet/names';
import { toggleLive } from '../fleet/range';
import type { Model } from '../inference/answers';
import { type ChartKeys, ModelChart } from '../inference/chart';
import { CHARTS } from '../inference/charts';
import { EngineLane } from '../inference/lane';
import { Inference } from '../inference/model';
import { Replicas } from '../inference/replicas';
import { ModelTable, openModel } from '../inference/table';
import { Down, EmptyInference } from '../inference/targets';
import { VerdictStrip } from '../inference/verdict';
import { Vocabulary } from '../inference/vocabulary';
import { modelName, objectivesText } from '../inference/words';
import { setParams, zoomDepth } from '../lib/address';
import { switchZone, zone } from '../lib/clock';
import { bind } from '../lib/keys';
import { inferencePath } from '../lib/route';
import { shown } from '../lib/text';
import { formatAge, formatMinute, formatSpan } from '../lib/time';
import '../styles/inference.css';

/** Targets are scraped each 15 s or so: asking more often tells nothing new. */
const POLL_MS = 10_000;
/** Intervals after which data is late, and after which it is missed. */
const LATE = [3, 10];
const USUAL_INTERVAL_MS = 15_000;

/** The page. */
export function InferencePage() {
  const page = useMemo(() => new Inference(), []);
  const pointed = useSignal<ChartKeys | null>(null);
  useFeed(page);
  useKeys(page, pointed);
  const engines = page.engines.value;
  const down = page.down.value;
  const nothing = engines !== null && engines.models.length === 0;
  return (
    <main class="inference">
      <div class="page-bar">
        <h1>Inference</h1>
        {engines && !nothing && (
          <>
            <span class="facts">
              {counted(engines.models.length, 'model')} · {counted(engines.targets.length, 'engine target')}
            </span>
            {down.engines.length > 0 && (
              <a
                class={`pill ${down.engines.length === engines.targets.length ? 'crit' : 'warn'}`}
                href="#down"
              >
                {down.engines.length === engines.targets.length ? <CritIcon /> : <WarnIcon />}{' '}
                {counted(down.engines.length, 'target')} down
              </a>
            )}
          </>
        )}
        {!nothing && <Bar page={page} />}
      </div>
      {page.enginesError.value !== null && (
        <Failure error={page.enginesError.value} retry={() => void page.load()} />
      )}
      {nothing ? <EmptyInference /> : engines && <Models page={page} pointed={pointed} />}
      <Down page={page} />
    </main>
  );
}

function Bar({ page }: { page: Inference }) {
  const live = page.range.live.value;
  const age = page.age.value;
  const every = (page.interval.value ?? USUAL_INTERVAL_MS) / 1000;
  const tone = age === null || age < LATE[0] * every ? '' : age < LATE[1] * every ? ' warn' : ' crit';
  return (
    <span class="right">
      {zoomDepth() > 0 && (
        <button
          type="button"
          class="control"
          title="Before the first zoom (0)"
          onClick={() => page.resetZoom()}
        >
          Reset zoom
        </button>
      )}
      <RangeControl explore={page.range} />
      {'last' in page.range.span.value && (
        <span class={`live${live ? tone : ' paused'}`}>
          <Toggle on={live} set={toggleLive} title="Follows the clock (Space)">
            {live && <span class="dot" />} {live ? 'live' : 'paused'}
          </Toggle>
          {age !== null && `data age ${formatAge(age)}`}
        </span>
      )}
    </span>
  );
}

function Models({ page, pointed }: { page: Inference; pointed: Signal<ChartKeys | null> }) {
  const { from, to } = page.engines.value!;
  const model = page.chosen.value;
  const warnings = page.pictures.value?.model === model?.model ? (page.pictures.value?.warnings ?? []) : [];
  return (
    <>
      <ModelTable page={page} />
      <div class="window quiet">
        <p>
          The table and the sentence tell of{' '}
          {formatSpan(Math.round((to - from) / 1000)).replace(/ 00 s$/, '')} to {formatMinute(to, zone.value)}
          {zone.value === 'utc' ? ' UTC' : ''}; quantiles are as fine as the engine’s buckets.
        </p>
        <Observed model={model} />
        {model && <Wanted model={model} />}
        {warnings.length > 0 && (
          <span class="badge warning" title={warnings.join('\n')}>
            {counted(warnings.length, 'warning')}
          </span>
        )}
        <Toggle on={page.split.value} set={toggleSplit} title="One small chart for each replica (s)">
          per replica
        </Toggle>
      </div>
      {model ? (
        <Chosen page={page} pointed={pointed} />
      ) : (
        <section class="empty">
          <h2>No such model</h2>
          <p>
            No engine served {modelName(page.named.value ?? '')} in this range or the day before.{' '}
            <Link href={inferencePath()}>All models</Link>
          </p>
        </section>
      )}
    </>
  );
}

/** How much of these minutes was observed of the chosen model. */
function Observed({ model }: { model: Model | null }) {
  const shares = Object.values(model?.values ?? {}).flatMap((f) => f.coverage ?? []);
  if (shares.length === 0) return null;
  const least = Math.min(...shares);
  return (
    <span
      class={`badge${least < 0.9 ? ' warning' : ''}`}
      title="Share of these minutes that lies between two scrapes; a rate is of that part only"
    >
      coverage {least.toFixed(2)}
    </span>
  );
}

/** What users are to get, or how that is set. */
function Wanted({ model }: { model: Model }) {
  const text = objectivesText(model.objectives);
  return (
    <p title="From the settings of this server: [site] objectives">
      {text ? (
        `Objectives: ${text}`
      ) : (
        <>
          No objectives: <code>objectives</code> in <code>[site]</code> sets them
        </>
      )}
      {model.price?.revision && ` · prices of revision ${shown(model.price.revision, 24)}`}
    </p>
  );
}

function Chosen({ page, pointed }: { page: Inference; pointed: Signal<ChartKeys | null> }) {
  const model = page.chosen.value!;
  return (
    <>
      <VerdictStrip key={model.model} model={model} />
      <EngineLane page={page} />
      {page.picturesError.value !== null && (
        <Failure error={page.picturesError.value} retry={() => void page.load()} />
      )}
      {page.split.value && <Replicas page={page} model={model} />}
      <div class="grid">
        {CHARTS.map((chart) => (
          <ModelChart
            key={chart.id}
            page={page}
            model={model}
            chart={chart}
            point={(keys) => (pointed.value = keys)}
          />
        ))}
        <Vocabulary page={page} model={model} />
      </div>
    </>
  );
}

const toggleSplit = () =>
  setParams({ split: new URLSearchParams(window.location.search).has('split') ? null : 'replicas' });

function useFeed(page: Inference): void {
  useEffect(() => {
    const stopNaming = effect(() => {
      const name = page.named.value;
      document.title = `${name === null ? '' : `${modelName(name)} · `}Inference · truegauge`;
    });
    const stopAsking = effect(() => {
      void page.question.value;
      queueMicrotask(() => void page.load());
    });
    const timer = setInterval(() => {
      if (!document.hidden && page.range.live.peek()) void page.load();
    }, POLL_MS);
    return () => {
      stopNaming();
      stopAsking();
      clearInterval(timer);
      page.end();
    };
  }, [page]);
}

function useKeys(page: Inference, pointed: Signal<ChartKeys | null>): void {
  const kept = useRef(pointed);
  useLayoutEffect(() => {
    const group = 'Inference';
    const move = (by: number) => () => {
      const all = page.models.peek();
      const at = all.findIndex((m) => m.model === page.chosen.peek()?.model);
      const next = all[Math.min(all.length - 1, Math.max(0, at + by))];
      if (!next) return false;
      openModel(next.model);
      return true;
    };
    const chart = (act: (keys: ChartKeys) => void) => () => {
      const keys = kept.current.peek();
      return keys ? act(keys) : false;
    };
    const back = () => (zoomDepth() > 0 ? window.history.back() : false);
    return bind(
      { keys: 'j', does: 'The model below', group, run: move(1) },
      { keys: 'k', does: 'The model above', group, run: move(-1) },
      { keys: 's', does: 'One small chart for each replica', group, run: toggleSplit },
      {
        keys: '/',
        does: 'Search the vocabulary',
        group,
        run: () => document.querySelector<HTMLElement>('.vocabulary input[type=search]')?.focus(),
      },
      { keys: 'l', does: 'Log or linear axis of the chart', group, run: chart((c) => c.log()) },
      { keys: 'ArrowLeft', does: 'The cursor one step back', group, run: chart((c) => c.step(-1)) },
      { keys: 'ArrowRight', does: 'The cursor one step on', group, run: chart((c) => c.step(1)) },
      { keys: 'c', does: 'Hold the cursor', group, run: () => (page.pinned.value = !page.pinned.peek()) },
      { keys: '+', does: 'Zoom in around the cursor', group, run: chart((c) => c.zoom(0.5)) },
      { keys: '-', does: 'Zoom out', group, run: chart((c) => c.zoom(2)) },
      { keys: '.', does: 'Half a range later', group, run: () => shift(page.range, 0.5) },
      { keys: ',', does: 'Half a range earlier', group, run: () => shift(page.range, -0.5) },
      { keys: '>', does: 'Half the range', group, run: () => widen(page.range, 0.5) },
      { keys: '<', does: 'Twice the range', group, run: () => widen(page.range, 2) },
      { keys: '0', does: 'Reset the zoom', group, run: () => page.resetZoom() },
      { keys: 'Backspace', does: 'The zoom before', group, run: back },
      { keys: 'Space', does: 'Live or paused', group, run: toggleLive },
      { keys: 'z', does: 'UTC or local time', group, run: switchZone },
    );
  }, [page]);
}
