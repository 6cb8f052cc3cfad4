/** Cards of whole nodes, as the nodes' agents report them. */
import type { Columns } from '../lib/points';
import type { LaneData } from './board';
import { askMatrix, gridOf, onGrid, quoted, type Span } from './many';
import { membersOf } from './series';
import type { LaneSpec } from './specs';

/** The longest usual interval of agents and of those who scrape them. */
const HOLDS_SECONDS = 60;

const escaped = (text: string) => text.replace(/[\\^$.|?*+()[\]{}]/g, '\\$&');

/** The lanes by what agents measure; `null` when no agent reports any of the hosts. */
export async function askAgents(
  span: Span & { hosts: string[] },
  signal: AbortSignal,
): Promise<Map<string, LaneData> | null> {
  const asked = span.lanes.filter((l) => l.agent !== null);
  const hosts = quoted(span.hosts.map(escaped).join('|'));
  if (asked.length === 0 || span.hosts.length === 0 || !(span.range.to > span.range.from)) return null;
  const names = quoted(asked.map((l) => l.agent!.name).join('|'));
  const grid = gridOf(span);
  // A sample stands for a minute, not for the five of an instant selector: gaps stay gaps.
  const window = Math.ceil(Math.max(HOLDS_SECONDS, grid.step));
  const query = `last_over_time({__name__=~${names}, host=~${hosts}}[${window}s])`;
  const result = await askMatrix(query, grid, signal);
  if (result.length === 0) return null;
  const spacing = grid.step * (span.axis === 'time' ? 1000 : 1);
  const columns = (lane: LaneSpec): Columns[] =>
    result
      .filter((r) => r.metric.__name__ === lane.agent!.name)
      .map(({ metric, values }) => {
        const { __name__: name, uuid: _uuid, job: _job, instance: _instance, ...labels } = metric;
        const y = onGrid(values, grid, lane.agent!.factor);
        return {
          query: 0,
          runId: '',
          metric: name,
          display: lane.metrics[0],
          labels,
          scale: '',
          attempt: 1,
          unit: '',
          last: y,
          min: y,
          max: y,
          count: y,
          smooth: null,
          nonFinite: [],
          total: 0,
          interval: spacing,
        };
      });
  return new Map(
    span.lanes.map((lane) => {
      const members = lane.agent ? membersOf(lane, grid.x, columns(lane), span.axis) : [];
      return [
        lane.id,
        { x: grid.x, members, total: members.length, spread: null, axis: span.axis, marks: [] },
      ];
    }),
  );
}
