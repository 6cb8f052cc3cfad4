/** A run's charts: how does it learn, and what happened when? */
import { useSignal } from '@preact/signals';
import { useEffect, useRef, useState } from 'preact/hooks';
import { type Board, MOUNTED_MAX } from '../charts/board';
import { rank, type Section, sectionsOf } from '../charts/sections';
import * as view from '../charts/view';
import { AbsentCards } from '../components/absent_card';
import { type CardActions, ChartCard } from '../components/chart_card';
import { ChartToolbar } from '../components/chart_toolbar';
import { EventLane } from '../components/event_lane';
import { PointTable } from '../components/point_table';
import { Snippet } from '../components/snippet';
import { setParams } from '../lib/address';
import { now, zone } from '../lib/clock';
import { formatCount } from '../lib/number';
import { formatSpan, formatWhen } from '../lib/time';
import { leave, useAsking, useChartKeys } from './chart_keys';

/** Columns of the grid by the page's width. */
function columnsFor(width: number): number {
  if (width >= 1920) return 4;
  if (width >= 1200) return 3;
  return width >= 720 ? 2 : 1;
}

const HEIGHTS: Record<number, number> = { 1: 226, 2: 226, 3: 198, 4: 190 };
/** More sections than this start folded beyond the first. */
const UNFOLDED_CHARTS = 60;

/** The tab. */
export function ChartsTab({ board }: { board: Board }) {
  const [columns, setColumns] = useState(columnsFor(window.innerWidth));
  const full = useSignal<string | null>(null);
  const table = useSignal<string | null>(null);
  const pointed = useRef<CardActions | null>(null);
  useEffect(() => {
    const resize = () => setColumns(columnsFor(window.innerWidth));
    window.addEventListener('resize', resize);
    return () => window.removeEventListener('resize', resize);
  }, []);
  useAsking(board);
  useChartKeys(board, pointed, full);

  const charts = board.charts.value;
  if (board.metrics.value !== null && charts.length === 0) return <NoPoints board={board} />;
  const sections = sectionsOf(charts, view.chartFilter.value);
  const many = charts.length > UNFOLDED_CHARTS;
  let room = MOUNTED_MAX * 4;
  return (
    <>
      <ChartToolbar board={board} />
      <EventLane board={board} />
      <div class="charts" style={{ '--grid': columns }} onPointerLeave={() => leave(board)}>
        {sections.map((section, at) => {
          const folded =
            (many && at > 0 && !view.chartFilter.value) !== view.foldSwitched.value.includes(section.prefix);
          const shown = folded ? [] : section.charts.slice(0, Math.max(0, room));
          room -= shown.length;
          return (
            <SectionView
              key={section.prefix}
              section={section}
              only={sections.length === 1}
              folded={folded}
              shown={shown.length}
            >
              {shown.map((chart, place) => (
                <ChartCard
                  key={chart.name}
                  board={board}
                  chart={chart}
                  wide={columns >= 3 && at === 0 && place === 0 && rank(chart.name) <= 2}
                  height={HEIGHTS[columns]}
                  full={full}
                  setFull={(name) => (full.value = name)}
                  openTable={(name) => (table.value = name)}
                  point={(actions) => (pointed.current = actions)}
                />
              ))}
              {section.prefix === 'system' && !view.chartFilter.value && (
                <AbsentCards board={board} height={HEIGHTS[columns]} />
              )}
            </SectionView>
          );
        })}
        {charts.length > 0 && sections.length === 0 && (
          <p class="nothing">
            No chart of {formatCount(charts.length)} matches.{' '}
            <button type="button" class="link" onClick={() => setParams({ charts: null })}>
              Clear the filter
            </button>
          </p>
        )}
      </div>
      <Table board={board} name={table.value} close={() => (table.value = null)} />
    </>
  );
}

/** The points of the chart of that name, over the page. */
export function Table({ board, name, close }: { board: Board; name: string | null; close: () => void }) {
  const chart = board.charts.value.find((c) => c.name === name);
  const loaded = chart && board.state(chart.name).loaded.value;
  if (!chart || !loaded) return null;
  return <PointTable of={{ ...loaded, title: chart.name, unit: chart.unit }} close={close} />;
}

function SectionView(props: {
  section: Section;
  only: boolean;
  folded: boolean;
  shown: number;
  children: preact.ComponentChildren;
}) {
  const { section, folded } = props;
  const title = section.prefix || 'logged';
  const left = section.charts.length - props.shown;
  return (
    <section class="section" aria-label={`Section ${title}`}>
      {!props.only && (
        <h2>
          <button type="button" aria-expanded={!folded} onClick={() => view.toggleIn('fold', section.prefix)}>
            <span aria-hidden="true">{folded ? '▸' : '▾'}</span> {title}{' '}
            <span class="quiet">{formatCount(section.charts.length)}</span>
          </button>
        </h2>
      )}
      {!folded && <div class="cards">{props.children}</div>}
      {!folded && left > 0 && (
        <p class="nothing">{formatCount(left)} more: filter charts by name to see them.</p>
      )}
    </section>
  );
}

/** A run without a point: what we know of its writer, and how to log. */
function NoPoints({ board }: { board: Board }) {
  const detail = board.detail.value!;
  const beat = Math.max(0, ...detail.sessions.map((s) => s.heartbeat_ms ?? 0));
  const dropped =
    Object.values(detail.dropped).reduce((sum, n) => sum + n, 0) +
    Object.values(detail.refused).reduce((sum, n) => sum + n, 0);
  return (
    <section class="empty">
      <h2>No points yet</h2>
      <p class="waiting" role="status">
        <span class="dot" /> waiting for the first point
        {beat > 0 &&
          ` · last heartbeat ${formatWhen(beat, now.value, zone.value)}, ${formatSpan(Math.max(0, (now.value - beat) / 1000))} ago`}
      </p>
      {dropped > 0 && (
        <p>{formatCount(dropped)} points were dropped or refused: the reasons are in Overview.</p>
      )}
      <Snippet />
    </section>
  );
}
