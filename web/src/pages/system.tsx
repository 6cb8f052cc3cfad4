/** A run's hardware: did it do it? */
import { useComputed, useSignal } from '@preact/signals';
import { Fragment } from 'preact';
import { useEffect, useLayoutEffect, useMemo, useRef } from 'preact/hooks';
import { stepCursor, zoomAt } from '../charts/gestures';
import * as view from '../charts/view';
import { EventLane, type NamedMark } from '../components/event_lane';
import { Failure } from '../components/failure';
import type { TabProps } from '../components/later';
import { zoomDepth } from '../lib/address';
import { bind } from '../lib/keys';
import { formatValue } from '../lib/number';
import { shown as shownText, visible } from '../lib/text';
import { HostFacts, limitsOf, NoGpus, NoSystem } from '../system/absent';
import { AxisRow } from '../system/axis_row';
import { SystemBoard } from '../system/board';
import { Facts } from '../system/facts';
import { type LaneActions, LaneView } from '../system/lane';
import { LaneTable } from '../system/lane_table';
import * as look from '../system/look';
import { Matrix } from '../system/matrix';
import type { LaneSpec } from '../system/specs';
import { SystemToolbar } from '../system/toolbar';
import { counted } from '../system/words';
import '../styles/system.css';

/** What a host lane is measured against. */
function scopeOf(system: SystemBoard, lane: LaneSpec, host: string | undefined) {
  const nothing = { text: '', whole: '' };
  if (lane.subject !== 'host') return nothing;
  const limits = limitsOf(system, host);
  if (!limits) return nothing;
  const cpu = lane.id === 'cpu';
  if (!cpu && lane.id !== 'host_memory') return nothing;
  const at = cpu ? limits.cpuAt : limits.memoryAt;
  const amount = cpu ? limits.cpus : limits.memory;
  const of = amount === null ? '' : `of ${formatValue(amount, cpu ? '' : 'B')}${cpu ? ' CPUs' : ''}`;
  const whole = [of, at && `measured at ${at}`, limits.mode && `cgroup ${limits.mode}`].filter(Boolean);
  return {
    text: [of, at && shownText(at, 22)].filter(Boolean).join(' · '),
    whole: visible(whole.join(' · ')),
  };
}

/** The tab. */
export function SystemTab({ board }: TabProps) {
  const system = useMemo(() => new SystemBoard(board), [board]);
  const pointed = useRef<LaneActions | null>(null);
  const table = useSignal<LaneSpec | null>(null);
  useEffect(() => () => system.end(), [system]);
  useSystemKeys(system, pointed);
  const marks = useComputed<NamedMark[]>(() =>
    system.lanes.value
      .filter((l) => l.subject === 'run')
      .flatMap((l) => system.marks(l).map((m) => ({ ...m, name: l.title }))),
  );
  const lanes = system.shown.value;
  const cards = system.cards.value;
  const some = system.lanes.value.some((l) => l.subject !== 'run');
  if (!some && cards.length === 0) return <NoSystem system={system} />;
  const chosen = cards.find((c) => c.key === system.selected.value[0]);
  const host = chosen?.host ?? board.detail.value?.hosts[0];
  const leave = () => {
    if (!board.pinned.peek()) board.point(look.laneAxis.peek(), null);
  };
  const errors = [...system.errors.value];
  return (
    <>
      <SystemToolbar system={system} />
      <div class="system">
        <aside aria-label="Cards">
          {cards.length > 1 && <Matrix system={system} />}
          {cards.length > 0 ? <Facts system={system} /> : <NoGpus system={system} />}
          <HostFacts system={system} host={host} />
        </aside>
        <div class="lanes" onPointerLeave={leave}>
          <EventLane board={board} axis={look.laneAxis.value} marks={marks.value} />
          {errors.map(([name, error]) => (
            <Failure key={name} error={error} retry={() => void system.load(true)} />
          ))}
          {lanes.map((lane, at) => (
            <Fragment key={lane.id}>
              {lane.subject !== 'run' &&
                lane.subject !== 'gpu' &&
                !['host', 'process'].includes(lanes[at - 1]?.subject ?? '') && (
                  <h2 class="group">{hostsTitle(board.detail.value?.hosts.length ?? 1)}</h2>
                )}
              <LaneView
                system={system}
                lane={lane}
                scope={scopeOf(system, lane, host)}
                point={(actions) => (pointed.current = actions)}
                openTable={(one) => (table.value = one)}
              />
            </Fragment>
          ))}
          <AxisRow system={system} />
        </div>
      </div>
      {table.value !== null && (
        <LaneTable system={system} lane={table.value} close={() => (table.value = null)} />
      )}
    </>
  );
}

const hostsTitle = (hosts: number) => (hosts > 1 ? counted(hosts, 'host') : 'Host');

function useSystemKeys(system: SystemBoard, pointed: { current: LaneActions | null }): void {
  useLayoutEffect(() => {
    const { board } = system;
    const act = (what: (actions: LaneActions) => void) => () => {
      if (!pointed.current) return false;
      what(pointed.current);
      return true;
    };
    const step = (by: number) =>
      act((a) => stepCursor(board, look.laneAxis.peek(), a.drawn()?.shape ?? null, by));
    const zoom = (factor: number) => act(() => zoomAt(board, look.laneAxis.peek(), factor));
    const order = ['time', 'step', 'relative'] as const;
    const next = () => look.setTicks(order[(order.indexOf(look.ticks.value) + 1) % order.length]);
    const one = 'Lane under the pointer or focus';
    const group = 'System';
    return bind(
      { keys: 'l', does: 'Log scale', group: one, run: act((a) => a.log()) },
      { keys: 'e', does: 'Export every point as CSV', group: one, run: act((a) => a.save()) },
      { keys: 'v', does: 'View as table', group: one, run: act((a) => a.table()) },
      { keys: 'i', does: 'What it measures', group: one, run: act((a) => a.explain()) },
      { keys: 'ArrowLeft', does: 'Cursor back by one bucket', group: one, run: step(-1) },
      { keys: 'ArrowRight', does: 'Cursor on by one bucket', group: one, run: step(1) },
      { keys: 'Shift+ArrowLeft', does: 'Cursor back by ten', group: one, run: step(-10) },
      { keys: 'Shift+ArrowRight', does: 'Cursor on by ten', group: one, run: step(10) },
      { keys: '+', does: 'Zoom in', group: one, run: zoom(0.5) },
      { keys: '-', does: 'Zoom out', group: one, run: zoom(2) },
      { keys: 'x', does: 'Next x axis', group, run: next },
      { keys: 'p', does: 'Peers drawn or not', group, run: () => (system.peers.value = !system.peers.value) },
      {
        keys: 'c',
        does: 'Pin the cursor; again elsewhere for the difference',
        group,
        run: () => board.pin(),
      },
      { keys: '0', does: 'Reset the zoom', group, run: () => view.resetZoom() },
      {
        keys: 'Backspace',
        does: 'Previous zoom',
        group,
        run: () => (zoomDepth() > 0 ? window.history.back() : view.resetZoom()),
      },
      { keys: 'Escape', does: 'Free the cursor', group, run: () => board.unpin() },
    );
  }, [system]);
}
