/** The x axis below the lanes: times, or the steps of those times. */

import type { StepMap } from '../charts/step_map';
import { valueTicks, xTicks } from '../charts/ticks';
import { zone } from '../lib/clock';
import { formatCount } from '../lib/number';
import type { SystemBoard } from './board';
import * as look from './look';

/** A label and where it stands. */
interface Tick {
  x: number;
  text: string;
}

/** Where the training was at round steps; a step that was trained twice stands twice. */
export function stepTicks(map: StepMap, from: number, to: number, most: number): Tick[] {
  const { steps, times } = map;
  let [low, high] = [Infinity, -Infinity];
  for (let at = 0; at < times.length; at++) {
    if (times[at] < from || times[at] > to) continue;
    low = Math.min(low, steps[at]);
    high = Math.max(high, steps[at]);
  }
  if (!(high > low)) return low === high ? [{ x: from, text: formatCount(low) }] : [];
  const found: Tick[] = [];
  for (const step of valueTicks(low, high, Math.max(1, most / 2)).filter(Number.isInteger)) {
    for (let at = 0; at + 1 < steps.length; at++) {
      const [a, b] = [steps[at], steps[at + 1]];
      if (!(a <= step && step < b)) continue;
      const x = times[at] + ((step - a) / (b - a)) * (times[at + 1] - times[at]);
      if (x >= from && x <= to) found.push({ x, text: formatCount(step) });
    }
  }
  return found.sort((a, b) => a.x - b.x);
}

/** The row. */
export function AxisRow({ system }: { system: SystemBoard }) {
  const range = system.range();
  const axis = look.laneAxis.value;
  const most = Math.max(2, Math.floor(system.width.value / 90));
  const map = system.board.stepMap.value;
  const steps = look.ticks.value === 'step' && axis === 'time';
  let ticks: Tick[];
  if (steps && map) ticks = stepTicks(map, range.from, range.to, most);
  else {
    const [places, texts] = xTicks(axis, range.from, range.to, most, zone.value);
    ticks = places.map((x, at) => ({ x, text: texts[at] }));
  }
  const share = (x: number) => ((x - range.from) / (range.to - range.from)) * 100;
  const word = axis === 'relative' ? 'since the start' : zone.value === 'utc' ? 'UTC' : 'local time';
  return (
    <div class="axis-row" aria-hidden="true">
      <span
        class="what"
        title={steps ? 'Samples have no training steps: these are the steps of their times' : undefined}
      >
        {steps ? (map ? '⇄ step at that time' : 'no steps: UTC') : word}
      </span>
      <div class="track">
        {ticks.map((tick) => (
          <span key={`${tick.x} ${tick.text}`} style={{ left: `${share(tick.x)}%` }}>
            {tick.text}
          </span>
        ))}
      </div>
    </div>
  );
}
