/** What a run's page reads: its facts, the list of its series, and news of it. */
import { effect, type Signal } from '@preact/signals';
import { useEffect, useMemo } from 'preact/hooks';
import type { Board } from '../charts/board';
import * as view from '../charts/view';
import { isAwaited } from '../health/answers';
import { param } from '../lib/address';
import type { MetricRow, RunNews } from '../lib/answers';
import { askJson, isAbort, tokenEntered } from '../lib/api';
import { runName } from '../lib/crumb';
import { paced } from '../lib/pace';
import type { Tab } from '../lib/route';
import { askRun } from '../lib/runs';
import { follow } from '../lib/stream';
import { visible } from '../lib/text';

const POINTS_MS = 1000;
const FACTS_MS = 4000;
const MAP_MS = 15_000;
const MISSING_MS = 15_000;
const HEALTH_MS = 5000;
const FIRINGS_MS = 10_000;

/** Tabs whose lane has the alerts at once; others have questions enough when they are opened. */
const LANE_FIRST: ReadonlySet<Tab> = new Set(['overview', 'charts', 'ranks']);
const LATER_MS = 10_000;

/** Whether the page follows the run: not while it is zoomed or paused. */
export function isLive(): boolean {
  return param('live') !== '0' && view.zoomOf(view.pageAxis.value) === null;
}

/** Keeps the board fed while the page is open; gives the function that reads the facts now. */
export function useRunFeed(board: Board, error: Signal<unknown>, tab: Tab): () => Promise<void> {
  const { runId } = board;
  const readFacts = useMemo(
    () => async () => {
      try {
        const [detail, answer] = await Promise.all([
          askRun(runId),
          askJson<{ metrics: MetricRow[] }>(`runs/${encodeURIComponent(runId)}/metrics`),
        ]);
        board.detail.value = detail;
        board.metrics.value = answer.metrics;
        runName.value = detail.run;
        document.title = `${visible(detail.run)} · truegauge`;
        error.value = null;
      } catch (failure) {
        if (!isAbort(failure)) error.value = failure;
      }
    },
    [board],
  );
  useEffect(() => {
    const map = paced(() => board.readStepMap(), MAP_MS);
    const missing = paced(() => board.readMissing(), MISSING_MS);
    const health = paced(() => board.readHealth(), HEALTH_MS);
    void readFacts().then(() => {
      missing.ask();
      health.ask();
    });
    const awaiting = effect(() => {
      if (isAwaited(board.health.value) && board.detail.peek()?.state === 'running') health.ask();
    });
    // Charts come first; what only joins their axes waits for them.
    const afterCharts = board.answered.subscribe((answers) => {
      if (answers === 1) map.ask();
    });
    const facts = paced(readFacts, FACTS_MS);
    const points = paced(() => board.load(true), POINTS_MS);
    const leave = follow(`run:${runId}`, (event) => {
      facts.ask();
      map.ask();
      missing.ask();
      health.ask();
      if (event.event !== 'run') return;
      const { run_id: _id, ...news } = JSON.parse(event.data) as RunNews;
      const detail = board.detail.peek();
      if (detail) board.detail.value = { ...detail, ...news };
      if (isLive()) points.ask();
    });
    return () => {
      awaiting();
      afterCharts();
      leave();
      facts.end();
      points.end();
      map.end();
      missing.end();
      health.end();
    };
  }, [board, tokenEntered.value]);
  useEffect(() => {
    const firings = paced(() => board.readFirings(), FIRINGS_MS);
    let begun = false;
    const begin = () => {
      begun = true;
      firings.ask();
    };
    const first = setTimeout(begin, LANE_FIRST.has(tab) ? 0 : LATER_MS);
    // The stream is the same from the start; its news before that are no reason to ask sooner.
    const leave = follow('alerts', () => begun && firings.ask(), true);
    return () => {
      clearTimeout(first);
      leave();
      firings.end();
    };
  }, [board, LANE_FIRST.has(tab), tokenEntered.value]);
  useEffect(
    () => () => {
      board.end();
      runName.value = '';
    },
    [board],
  );
  return readFacts;
}
