/** How the lanes are looked at: which cards, over what, and how many lines. */
import { Menu } from '../components/menu';
import { LabelledSegments } from '../components/segments';
import { setParams } from '../lib/address';
import { formatCount, formatValue } from '../lib/number';
import type { Axis } from '../lib/points';
import { formatSpan } from '../lib/time';
import type { SystemBoard } from './board';
import * as look from './look';
import { counted } from './words';

const AXES: { value: Axis; content: string; title: string }[] = [
  { value: 'step', content: 'Step', title: 'Times, labelled with the training step of that time' },
  { value: 'relative', content: 'Relative', title: 'Time since the start of the run' },
  { value: 'time', content: 'Wall time', title: 'Time of the sample' },
];

/** Who reports, and how often. */
function sourceText(system: SystemBoard): string {
  const reports = system.board.missing.value?.capture ?? [];
  const every = new Set(reports.map((r) => r.interval_seconds).filter((s) => s > 0));
  const hosts = new Set(system.cards.value.map((c) => c.host));
  if (look.scope.value === 'nodes' && system.agents.value === true)
    return `Source: agents of ${counted(hosts.size, 'host')}`;
  if (look.scope.value === 'nodes' && system.agents.value === false)
    return 'No agent reports these nodes: all cards that the run knows';
  const processes = reports.filter((r) => r.state === 'sampling').length;
  if (processes === 0) return '';
  const often = every.size === 1 ? `, every ${formatSpan([...every][0])}` : '';
  return `Source: ${counted(processes, 'process', 'processes')}${often}`;
}

/** Share of the cards' ticks that came, over what is drawn. */
function coverage(system: SystemBoard): number | null {
  const lane = system.colour.value;
  const data = lane && system.data.value.get(lane.id);
  if (!data || data.members.length === 0 || data.spread) return null;
  const { from, to } = system.range();
  let [seen, whole] = [0, 0];
  for (const { y, spacing } of data.members) {
    if (!(spacing > 0)) continue;
    let last = Number.NaN;
    for (let at = 0; at < data.x.length; at++) {
      const x = data.x[at];
      if (x < from || x > to || !Number.isFinite(y[at])) continue;
      if (Number.isFinite(last)) seen += Math.min(x - last, 2.5 * spacing);
      last = x;
    }
    whole += to - from - spacing;
  }
  return whole > 0 ? Math.min(1, seen / whole) : null;
}

/** The bar above the lanes. */
export function SystemToolbar({ system }: { system: SystemBoard }) {
  const { owned, nodes } = system.counts.value;
  const gpus = nodes > 0;
  const most = Math.max(0, ...[...system.data.value.values()].map((d) => d.total));
  const share = coverage(system);
  const source = sourceText(system);
  const spread = [...system.data.value.values()].some((d) => d.spread !== null);
  const many = most > look.LINES_USUAL || system.cards.value.length > 1;
  const items = () =>
    system.lanes.value.map((lane) => ({
      text: lane.title,
      checked: system.shown.value.some((l) => l.id === lane.id),
      run: () => system.toggle(lane.id),
    }));
  return (
    <div class="toolbar system-bar">
      {gpus && (
        <LabelledSegments
          label="Scope"
          choices={[
            { value: 'owned', content: `Owned by this run · ${formatCount(owned)}` },
            { value: 'nodes', content: `Whole nodes · ${formatCount(nodes)}` },
          ]}
          value={look.scope.value}
          choose={(value) => setParams({ scope: value === 'nodes' ? value : null })}
        />
      )}
      <LabelledSegments label="x axis" choices={AXES} value={look.ticks.value} choose={look.setTicks} />
      {many && (
        <LabelledSegments
          label="Show"
          choices={[
            { value: 'spread', content: 'Median, spread, outliers' },
            // Too many to be sent one by one.
            ...(spread ? [] : [{ value: 'lines' as const, content: 'All lines' }]),
            { value: 'map', content: 'Heat map' },
          ]}
          value={spread && look.show.value !== 'map' ? 'spread' : look.showOf(Math.max(owned, 1))}
          choose={(value) => setParams({ show: value })}
        />
      )}
      <span class="right">
        <span class="quiet source" title={source}>
          {source}
        </span>
        {share !== null && (
          <span
            class={share >= 0.99 ? 'badge good' : share >= 0.9 ? 'badge' : 'badge warning'}
            title="Share of the time that the cards' samples stand for"
          >
            coverage {share.toFixed(2)}
          </span>
        )}
        <Menu label="Signals" named items={items} class="as-control">
          Signals {formatValue(system.shown.value.length)} ▾
        </Menu>
      </span>
    </div>
  );
}
