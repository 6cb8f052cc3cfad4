/** How the charts are looked at. */

import { useLayoutEffect, useRef } from 'preact/hooks';
import type { Board } from '../charts/board';
import * as view from '../charts/view';
import { setParams } from '../lib/address';
import { bind } from '../lib/keys';
import { formatCount } from '../lib/number';
import type { Axis, Smooth } from '../lib/points';
import { ResetZoom } from './reset_zoom';
import { LabelledSegments, Toggle } from './segments';

const AXES: { value: Axis; content: string; title: string }[] = [
  { value: 'step', content: 'Step', title: 'Step of the point' },
  { value: 'relative', content: 'Relative', title: 'Time since the start of the run' },
  { value: 'time', content: 'Wall time', title: 'Time of the point' },
];

const FORMULAS = {
  ema: 'debiased exponential moving average on the raw points: s = w·s + (1 − w)·x, divided by 1 − wⁿ',
  window: 'mean of the raw points in a centred window',
};

const write = (smooth: Smooth | null) =>
  setParams({
    smooth: smooth === null ? null : smooth.kind === 'ema' ? `ema:${smooth.weight}` : `window:${smooth.size}`,
  });

// The slider is even in what the eye sees: 0.9, 0.99 and 0.999 are as far apart as 0 and 0.9.
const weightOf = (place: number) => Number((1 - 10 ** (-place / 100)).toFixed(4));
const placeOf = (weight: number) => Math.round(-100 * Math.log10(1 - weight));

function choose(kind: 'none' | Smooth['kind']): void {
  if (kind === 'none') write(null);
  else write(kind === 'ema' ? { kind, weight: 0.9 } : { kind, size: 21 });
}

/** The bar above the charts. */
export function ChartToolbar({ board }: { board: Board }) {
  const smooth = view.smooth.value;
  const kind = smooth?.kind ?? 'none';
  const filter = useRef<HTMLInputElement>(null);
  const group = 'Charts';
  useLayoutEffect(
    () =>
      bind(
        { keys: '/', does: 'Filter charts', group, run: () => filter.current?.focus() },
        {
          keys: 'x',
          does: 'Next x axis',
          group,
          run: () =>
            view.setAxis(
              AXES[(AXES.findIndex((a) => a.value === view.pageAxis.value) + 1) % AXES.length].value,
            ),
        },
        {
          keys: 's',
          does: 'Next smoothing',
          group,
          run: () =>
            choose(
              ({ none: 'ema', ema: 'window', window: 'none' } as const)[view.smooth.value?.kind ?? 'none'],
            ),
        },
        { keys: '0', does: 'Reset the zoom', group, run: () => view.resetZoom() },
      ),
    [],
  );
  const read = board.pointsRead.value[view.pageAxis.value];
  const zoomed =
    view.zoomOf('step') !== null || view.zoomOf('time') !== null || view.zoomOf('relative') !== null;
  return (
    <div class="toolbar">
      <LabelledSegments label="x axis" choices={AXES} value={view.pageAxis.value} choose={view.setAxis} />
      <LabelledSegments
        label="Smoothing"
        choices={[
          { value: 'none', content: 'none' },
          { value: 'ema', content: 'EMA', title: FORMULAS.ema },
          { value: 'window', content: 'window', title: FORMULAS.window },
        ]}
        value={kind}
        choose={choose}
      />
      {smooth && (
        <label class="slider" title={FORMULAS[smooth.kind]}>
          {smooth.kind === 'ema' ? (
            <input
              type="range"
              aria-label="EMA weight"
              min="10"
              max="300"
              value={placeOf(smooth.weight)}
              onInput={(e) => write({ kind: 'ema', weight: weightOf(e.currentTarget.valueAsNumber) })}
            />
          ) : (
            <input
              type="range"
              aria-label="Window, points"
              min="3"
              max="501"
              step="2"
              value={smooth.size}
              onInput={(e) => write({ kind: 'window', size: e.currentTarget.valueAsNumber })}
            />
          )}
          <output>{smooth.kind === 'ema' ? smooth.weight : `${smooth.size} points`}</output>
        </label>
      )}
      <fieldset class="segments" aria-label="Drawing">
        <Toggle on={view.logAll.value} set={(on) => setParams({ log: on ? '1' : null })}>
          log y
        </Toggle>
        <Toggle
          on={view.envelope.value}
          set={(on) => setParams({ env: on ? null : '0' })}
          title="Min–max of each bucket behind the line"
        >
          envelope
        </Toggle>
        <Toggle
          on={view.clip.value}
          set={(on) => setParams({ clip: on ? '1' : null })}
          title="Scale without the lowest and the highest percent"
        >
          clip 1–99 %
        </Toggle>
      </fieldset>
      <input
        ref={filter}
        class="control filter"
        type="search"
        placeholder="Filter charts"
        aria-label="Filter charts"
        value={view.chartFilter.value}
        onInput={(e) => setParams({ charts: e.currentTarget.value })}
        onKeyDown={(e) => e.key === 'Escape' && e.currentTarget.blur()}
      />
      <span class="right">
        {!smooth && <span class="quiet">zoom and cursor synced ·</span>}
        {read !== undefined && <span class="quiet">{formatCount(read)} points read</span>}
        <ResetZoom zoomed={zoomed} reset={() => view.resetZoom()} />
      </span>
    </div>
  );
}
