/** How far apart the ranks are, where several export. */
import { useComputed } from '@preact/signals';
import * as view from '../charts/view';
import { Link } from '../components/link';
import { setParams } from '../lib/address';
import { formatCount } from '../lib/number';
import { runPath } from '../lib/route';
import type { TrainingBoard } from './board';
import { Absent, type Frame, Panel } from './card';
import { instrumentOf, PANELS, STEP_SECONDS, switchOf } from './panels';
import type { Picture } from './use_panel_plot';

const TITLE = 'Spread over ranks';

/** What a metric is called in the list. */
const titleOf = (key: string) =>
  key === STEP_SECONDS ? 'step time' : (PANELS.find((p) => p.key === key && p.id !== 'mfu')?.title ?? key);

const unitOf = (page: TrainingBoard, key: string | null) =>
  key === STEP_SECONDS ? 's' : key === null ? '' : (instrumentOf(page.training.value, key)?.unit_meant ?? '');

/** The panel. */
export function SpreadPanel(props: Frame) {
  const { page, height } = props;
  const picture = useComputed<Picture | null>(() => {
    const spread = page.spread.value;
    if (!spread) return null;
    const { axis, shape } = spread;
    const unit = unitOf(page, page.spreadKey.value);
    return { axis, shape, unit, zero: false, log: view.isLog('spread'), stale: null };
  });
  const key = page.spreadKey.value;
  const unit = unitOf(page, key);
  if (page.training.value && page.board.metrics.value && key === null)
    return <Alone page={page} height={height} />;
  const error = page.errors.value.get('spread');
  return (
    <Panel
      {...props}
      id="spread"
      title={TITLE}
      unit={unit}
      help=""
      caveat=""
      picture={picture}
      head={<Choice page={page} />}
      note={<Far page={page} />}
      metric={key === null ? null : (page.rowsOf(key)[0]?.name ?? null)}
      promql={null}
      error={page.spread.value || error === undefined ? undefined : error}
    />
  );
}

function Choice({ page }: { page: TrainingBoard }) {
  const keys = page.spreadKeys.value;
  const now = page.spreadKey.value ?? '';
  return (
    <select
      class="control"
      aria-label="Spread of"
      value={now}
      onChange={(e) =>
        setParams({ spread: e.currentTarget.value === keys[0] ? null : e.currentTarget.value })
      }
    >
      {keys.map((key) => (
        <option key={key} value={key}>
          {titleOf(key).toLowerCase()}
        </option>
      ))}
    </select>
  );
}

/** Who is farthest from the others. */
function Far({ page }: { page: TrainingBoard }) {
  const spread = page.spread.value;
  const detail = page.board.detail.value;
  if (!spread || !detail) return null;
  const first = spread.far[0];
  const words = first
    ? `Farthest: rank ${first.rank}, ${first.ratio.toFixed(2)} × the median of ${formatCount(spread.ranks)}`
    : `${formatCount(spread.ranks)} ranks, none stands out`;
  return (
    <>
      {words} · <Link href={runPath(detail, page.board.runId, 'ranks')}>all ranks</Link>
    </>
  );
}

/** Where one rank exports, or none. */
function Alone({ page, height }: { page: TrainingBoard; height: number }) {
  const training = page.training.value!;
  const { ranks, world_size: world } = training.export;
  const told = switchOf(training, 'STRATEGY');
  const of = world !== null && world > 1 ? ` of ${formatCount(world)}` : '';
  const who = ranks.length === 1 ? `Rank ${ranks[0]}${of} alone` : 'One process';
  return (
    <Absent
      id="spread"
      title={TITLE}
      unit=""
      height={height}
      text={told?.text ?? `${who} sends these: there is nothing to hold beside it.`}
      command={told?.key ?? null}
    />
  );
}
