/** A run's ranks: which one holds the others up, and by how much? */

import { effect, type Signal, useSignal } from '@preact/signals';
import { useEffect, useLayoutEffect, useMemo } from 'preact/hooks';
import type { Board } from '../charts/board';
import { xTicks } from '../charts/ticks';
import * as view from '../charts/view';
import { Failure } from '../components/failure';
import type { TabProps } from '../components/later';
import { Name } from '../components/name';
import { ResetZoom } from '../components/reset_zoom';
import { LabelledSegments } from '../components/segments';
import { Trust } from '../components/trust';
import { CulpritTable, lowestFirst } from '../health/evidence';
import { inView, standsStill } from '../health/words';
import { param, setParams } from '../lib/address';
import { zone } from '../lib/clock';
import { copy } from '../lib/download';
import { bind } from '../lib/keys';
import { formatCount, formatValue } from '../lib/number';
import { paced } from '../lib/pace';
import { shown } from '../lib/text';
import { formatSpan } from '../lib/time';
import { Bars } from '../ranks/bars';
import { buttonsOf } from '../ranks/choices';
import { ClockAxis, Clocks, clocks } from '../ranks/clock';
import { rankLabel } from '../ranks/crew';
import { Dots } from '../ranks/dots';
import { type Cell, cellText, HeatMap, rowHeight } from '../ranks/heat_map';
import { Ranks } from '../ranks/model';
import { nowColumns } from '../ranks/ratio';
import { RowLabels } from '../ranks/row_labels';
import { Spread, SpreadReadout, SpreadTicks } from '../ranks/spread';
import { standingOf } from '../ranks/still';
import { VerdictCard } from '../ranks/verdict_card';
import { baseText, columnText, ratioText, sinceText, verdict } from '../ranks/words';
import { isLive } from './run_feed';
import '../styles/ranks.css';

const REFRESH_MS = 4000;
const SPREAD_PX = 132;
/** Ranks of a job that stands still that are listed. */
const STANDING_MAX = 512;

/** The tab. */
export function RanksTab({ board }: TabProps) {
  const model = useMemo(() => new Ranks(board), [board]);
  useFeed(model);
  useKeys(model);
  const choices = model.choices.value;
  if (board.metrics.value === null) return null;
  const ranks = new Set(board.metrics.value.flatMap((m) => model.crew.value.rankOf(m.labels) ?? []));
  if (choices.length === 0 || ranks.size < 2) return <Alone board={board} model={model} ranks={[...ranks]} />;
  return (
    <div class="ranks-tab">
      <Toolbar model={model} />
      {model.error.value !== null && (
        <Failure error={model.error.value} retry={() => void model.load(true)} />
      )}
      <Body model={model} />
    </div>
  );
}

function useFeed(model: Ranks): void {
  useEffect(() => {
    const refresh = paced(() => model.load(true), REFRESH_MS);
    const stopAsking = effect(() => {
      void model.question.value;
      queueMicrotask(() => void model.load(false));
    });
    // News of the run change its facts: more points are there to be read.
    let points = model.board.detail.peek()?.points;
    const stopFollowing = effect(() => {
      const now = model.board.detail.value?.points;
      if (now !== points && isLive()) refresh.ask();
      points = now;
    });
    return () => {
      stopAsking();
      stopFollowing();
      refresh.end();
      model.end();
    };
  }, [model]);
}

function useKeys(model: Ranks): void {
  useLayoutEffect(() => {
    const group = 'Ranks';
    const orders = ['rank', 'value', 'host'] as const;
    const nextOrder = () => {
      const next = orders[(orders.indexOf(model.order.peek()) + 1) % orders.length];
      setParams({ order: next === 'rank' ? null : next });
    };
    return bind(
      { keys: 'o', does: 'Next order', group, run: nextOrder },
      {
        keys: 'p',
        does: 'Against peers or own history',
        group,
        run: () => setParams({ base: model.base.peek() === 'own' ? null : 'own' }),
      },
      { keys: '0', does: 'Reset the zoom', group, run: () => view.resetZoom() },
      {
        keys: 'Backspace',
        does: 'Previous zoom',
        group,
        run: () => (window.history.state?.zoom > 0 ? window.history.back() : false),
      },
      {
        keys: 'Escape',
        does: 'No rank selected',
        group,
        run: () => (param('rank') || param('step') ? setParams({ rank: null, step: null }) : false),
      },
    );
  }, [model]);
}

function Toolbar({ model }: { model: Ranks }) {
  const choices = model.choices.value;
  const choice = model.choice.value;
  const first = buttonsOf(choices);
  const further = choices.slice(first.length);
  const choose = (id: string) => setParams({ series: id === choices[0].id ? null : id });
  const loaded = model.loaded.value;
  const world = model.crew.value.world;
  const reporting = loaded?.grid.ranks.length ?? 0;
  return (
    <div class="toolbar">
      <LabelledSegments
        label="Series"
        choices={first.map((c) => ({ value: c.id, content: c.text, title: c.title }))}
        value={choice?.id ?? ''}
        choose={choose}
      />
      {further.length > 0 && (
        <select
          class="control"
          aria-label="Further series"
          value={further.some((c) => c.id === choice?.id) ? choice?.id : ''}
          onChange={(e) => e.currentTarget.value && choose(e.currentTarget.value)}
        >
          <option value="">More</option>
          {further.map((c) => (
            <option key={c.id} value={c.id}>
              {c.text}
            </option>
          ))}
        </select>
      )}
      <LabelledSegments
        label="Compare with"
        choices={[
          {
            value: 'peers',
            content: 'all others',
            title: 'The median of the other ranks, column by column (p)',
          },
          { value: 'own', content: 'own history', title: 'The median of the rank’s own values (p)' },
        ]}
        value={model.base.value}
        choose={(base) => setParams({ base: base === 'peers' ? null : base })}
      />
      <LabelledSegments
        label="Order"
        choices={[
          { value: 'rank', content: 'rank' },
          { value: 'value', content: 'value', title: 'Farthest from the others first' },
          { value: 'host', content: 'host' },
        ]}
        value={model.order.value}
        choose={(order) => setParams({ order: order === 'rank' ? null : order })}
      />
      <span class="right quiet" role="status">
        {loaded &&
          `${formatCount(reporting)}${world >= reporting && world > 0 ? ` of ${formatCount(world)}` : ''} ranks report`}
        {loaded && loaded.read < loaded.total && (
          <span class="badge warn">
            {formatCount(loaded.read)} of {formatCount(loaded.total)} series read
          </span>
        )}
        <ResetZoom zoomed={param('from') !== '' || param('tfrom') !== ''} reset={() => view.resetZoom()} />
      </span>
    </div>
  );
}

function Body({ model }: { model: Ranks }) {
  const hover = useSignal<Cell | null>(null);
  const judged = inView(model.board.health.value?.verdicts ?? []);
  const still = judged !== null && standsStill(judged);
  const standing = still
    ? lowestFirst(standingOf(model.board.metrics.value ?? [], model.crew.value, judged.culprits))
    : [];
  return (
    <>
      <div class={still ? 'upper still' : 'upper'}>
        {still ? (
          <VerdictCard board={model.board} verdict={judged} />
        ) : judged ? (
          <div class="judged">
            <VerdictCard board={model.board} verdict={judged} />
            <details open={param('series') !== '' || model.base.value === 'own'}>
              <summary>Farthest from the others</summary>
              <Outliers model={model} />
            </details>
          </div>
        ) : (
          <Outliers model={model} />
        )}
        {!still && <Bars model={model} hover={hover} />}
      </div>
      {still ? (
        <section class="panel plane evidence" aria-label="How far each rank came">
          <h2>Last step and collective sequence, the lowest first</h2>
          <CulpritTable culprits={standing.slice(0, STANDING_MAX)} of={standing.length} all={false} />
        </section>
      ) : (
        <Plane model={model} hover={hover} />
      )}
    </>
  );
}

/** Who is farthest from the others: a sentence, and the first few by name. */
function Outliers({ model }: { model: Ranks }) {
  const loaded = model.loaded.value;
  const ratios = model.ratios.value;
  const { hostOf } = model.crew.value;
  const unit = model.loadedChoice.value?.chart.unit ?? '';
  if (!loaded || !ratios) return <section class="panel outliers" aria-label="Spread" />;
  const against = baseText(model.base.value);
  const [claim, rest] = verdict(model.named.value, loaded, model.worse.value, hostOf, against, zone.value);
  return (
    <section class="panel outliers" aria-label="Spread">
      <p>
        <b>{claim}</b>
        {rest}
      </p>
      <div class="scroll" tabIndex={0} role="region" aria-label="Farthest ranks">
        <table>
          <thead>
            <tr>
              <th scope="col">Rank</th>
              <th scope="col">Host</th>
              <th scope="col" class="number">
                Latest
              </th>
              <th scope="col" class="number">
                ÷ median
              </th>
              <th scope="col">Since</th>
            </tr>
          </thead>
          <tbody>
            {model.named.value.map((s) => (
              <tr key={s.rank}>
                <th scope="row">
                  <button
                    type="button"
                    class="link"
                    aria-pressed={s.rank === model.rank.value}
                    onClick={() => model.select(s.rank)}
                  >
                    {s.rank}
                  </button>
                </th>
                <td>{hostOf(s.rank) ? <Name text={hostOf(s.rank)} limit={18} /> : '—'}</td>
                <td class="number">{Number.isNaN(s.value) ? 'absent' : formatValue(s.value, unit)}</td>
                <td class="number">{ratioText(s.ratio)}</td>
                <td>{s.since >= 0 ? sinceText(loaded, s.since, zone.value) : s.out ? 'all shown' : '—'}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="quiet">÷ median: the middle one of the latest {nowColumns(loaded.grid.columns)} columns.</p>
    </section>
  );
}

/** What a column of the map is. */
function columnNote(model: Ranks): string {
  const loaded = model.loaded.value;
  if (!loaded) return '';
  if (loaded.exact) return loaded.axis === 'step' ? '1 column = 1 logged step' : '1 column = 1 sample';
  const { grid } = loaded;
  const width = (grid.to - grid.from + 1) / grid.columns;
  const seconds = (grid.to - grid.from) / grid.columns / (loaded.axis === 'time' ? 1000 : 1);
  const size = `1 column ≈ ${loaded.axis === 'step' ? `${formatCount(width)} steps` : formatSpan(seconds)}, `;
  if (loaded.sampled) return `${size}not each of them read, the worst kept`;
  return `${size}${model.worse.value === 'either' ? 'the last value kept' : 'the worst value kept'}`;
}

/** The map, what is beside it, and the spread below, on one axis. */
function Plane({ model, hover }: { model: Ranks; hover: Signal<Cell | null> }) {
  const choice = model.loadedChoice.value ?? model.choice.value;
  const tall = rowHeight(model.rows.value.length);
  const chart = choice?.chart;
  const ratios = clocks(model);
  const clocked = ratios.some(Number.isFinite);
  const empty = model.loaded.value !== null && model.rows.value.length === 0;
  return (
    <section class="panel plane" aria-label="Ranks over the run">
      <header>
        <h2>
          {choice?.text} ÷ {model.base.value === 'peers' ? 'peer median' : 'own median'}
          {chart && <Trust help={chart.help} caveat={chart.caveat} />}
          <span class="quiet">{columnNote(model)}</span>
        </h2>
        <span class="under">{hover.value && cellText(model, hover.value)}</span>
        <Legend model={model} />
      </header>
      {empty ? (
        <p class="nothing">
          No rank has points here.{' '}
          <button type="button" class="link" onClick={() => view.resetZoom()}>
            Show the whole run
          </button>
        </p>
      ) : (
        <div class={clocked ? 'sheet clocked' : 'sheet'}>
          <RowLabels model={model} tall={tall} />
          <HeatMap model={model} hover={hover} />
          <Dots model={model} tall={tall} />
          {clocked && <Clocks model={model} ratios={ratios} tall={tall} />}
          <SpreadTicks model={model} height={SPREAD_PX} />
          <Spread model={model} height={SPREAD_PX} />
          <SpreadReadout model={model} />
          {clocked && <span class="clocks-axis" />}
          <span class="gutter quiet">{model.loaded.value?.axis === 'step' ? 'step' : ''}</span>
          <XAxis model={model} />
          <DotsAxis model={model} />
          {clocked && <ClockAxis />}
        </div>
      )}
    </section>
  );
}

function Legend({ model }: { model: Ranks }) {
  const { low, high, lowIsWorse } = model.scale.value;
  const stops = [1, 2, 3, 4, 5].map((at) => `var(--div-${lowIsWorse ? 6 - at : at})`);
  return (
    <span class="legend">
      ≤ {low.toFixed(2)}
      <span class="ramp" style={{ background: `linear-gradient(90deg, ${stops.join()})` }} />≥{' '}
      {high.toFixed(2)}
      <span class="hatched" /> absent
    </span>
  );
}

function XAxis({ model }: { model: Ranks }) {
  const loaded = model.loaded.value;
  if (!loaded) return <div class="x-axis" />;
  const { from, to } = loaded.grid;
  const most = Math.max(2, Math.floor(model.width.value / 110));
  const [ticks, labels] = xTicks(loaded.axis, from, to, most, zone.value);
  const end = loaded.axis === 'step' ? 1 : 0;
  return (
    <div class="x-axis" aria-hidden="true">
      {ticks.map((tick, at) => (
        <span
          key={tick}
          style={{ left: `${((tick + end / 2 - from) / Math.max(1e-9, to - from + end)) * 100}%` }}
        >
          {labels[at]}
        </span>
      ))}
    </div>
  );
}

function DotsAxis({ model }: { model: Ranks }) {
  const loaded = model.loaded.value;
  if (!loaded || model.shown.value < 0) return <div class="dots-axis" />;
  return (
    <div class="dots-axis quiet" aria-hidden="true">
      ÷ median at {shown(columnText(loaded, model.shown.value, zone.value), 30)}
    </div>
  );
}

const LINES = `tg.init(project_name="my-project")       # on every rank
for step in range(1_000):
    with tg.step(step) as s:
        ...
        with s.phase("wait"):            # told apart from the rank's own work
            torch.distributed.barrier()`;

/** Where there are no ranks to compare: what there is, and what makes more report. */
function Alone({ board, model, ranks }: { board: Board; model: Ranks; ranks: number[] }) {
  const world = model.crew.value.world;
  const labelled = (board.metrics.value ?? []).filter((m) => rankLabel(m.labels) !== null).length;
  const one = ranks.length === 1;
  const judged = inView(board.health.value?.verdicts ?? []);
  return (
    <section class="empty">
      {judged && <VerdictCard board={board} verdict={judged} />}
      <h2>
        {world > 1
          ? `${one ? '1' : 'None'} of ${formatCount(world)} ranks ${one ? 'reports' : 'report'} series of its own`
          : 'One process, no ranks to compare'}
      </h2>
      <p>
        {world > 1
          ? 'Only a process that logs has series to compare. Start the run on every rank, not on rank 0 alone; its series get the label '
          : 'This tab holds the ranks of a distributed job beside each other. In a job of several processes, start the run on every rank; its series get the label '}
        <code>rank</code> by themselves:
      </p>
      <figure class="snippet">
        <figcaption>
          On every rank
          <button type="button" onClick={() => copy(LINES, 'the lines')}>
            Copy
          </button>
        </figcaption>
        <pre>
          <code>{LINES}</code>
        </pre>
      </figure>
      {labelled > 0 && (
        <p class="quiet">
          {formatCount(labelled)} series have the label <code>rank</code>
          {one && ` of rank ${ranks[0]}`}; Charts shows them.
        </p>
      )}
    </section>
  );
}
