/** Which time is asked for, and with what step. */
import { type ReadonlySignal, useSignal } from '@preact/signals';
import { useState } from 'preact/hooks';
import type { Range } from '../charts/range';
import { Dialog } from '../components/dialog';
import { Menu, type MenuItem } from '../components/menu';
import { Segments } from '../components/segments';
import { setParams } from '../lib/address';
import { zone } from '../lib/clock';
import { formatDay, formatMinute, formatSpan } from '../lib/time';
import type { Explore } from './model';
import {
  autoStep,
  formatDuration,
  PRESETS,
  parseDuration,
  parseTime,
  presetName,
  rangeOf,
  type Span,
  USUAL,
} from './span';
import '../styles/range.css';

/** A page whose range is chosen here. */
export interface Ranged {
  readonly span: ReadonlySignal<Span>;
  readonly range: ReadonlySignal<Range>;
  /** The end of a range that moves. */
  readonly asOf: ReadonlySignal<number>;
  /** The times of what is stored, where they are known. */
  readonly census?: ReadonlySignal<{ headStats: { minTime: number; maxTime: number } } | null>;
  /** What the range is called, where it has a name of its own. */
  readonly name?: ReadonlySignal<string>;
  /** Whether there is nothing beside it, earlier or later. */
  readonly whole?: ReadonlySignal<boolean>;
  /** What the menu offers instead of the last while. */
  menu?: () => MenuItem[];
  /** Takes `from` and `to` of the address; `null` twice for the usual range. */
  choose: (from: string | null, to: string | null) => void;
}

/** `‹ Last 3 h  08:34 – 11:34 UTC ›` with its menu. */
export function RangeControl({ explore }: { explore: Ranged }) {
  const exact = useSignal(false);
  const span = explore.span.value;
  const range = explore.range.value;
  const name = explore.name?.value ?? ('last' in span ? `Last ${presetName(span.last)}` : 'Fixed');
  const whole = explore.whole?.value ?? false;
  return (
    <div class="range" role="group" aria-label="Time range">
      <button
        type="button"
        aria-label="Earlier"
        title="Half a range earlier (,)"
        disabled={whole}
        onClick={() => shift(explore, -0.5)}
      >
        ‹
      </button>
      <Menu
        label="Time range"
        named
        items={() => [
          ...(explore.menu ?? (() => lasts(explore)))(),
          { text: 'From and to …', run: () => (exact.value = true) },
        ]}
      >
        <b>{name}</b> {timesOf(range.from, range.to)}
      </Menu>
      <button
        type="button"
        aria-label="Later"
        title="Half a range later (.)"
        disabled={whole}
        onClick={() => shift(explore, 0.5)}
      >
        ›
      </button>
      {exact.value && <Exact explore={explore} close={() => (exact.value = false)} />}
    </div>
  );
}

/** The last while of different lengths, and all that there is where that is known. */
function lasts(explore: Ranged): MenuItem[] {
  const span = explore.span.peek();
  const bound = explore.census?.peek()?.headStats;
  const all = PRESETS.map((last) => ({
    text: `Last ${presetName(last)}`,
    checked: 'last' in span && span.last === last,
    run: () => explore.choose(last === USUAL ? null : `-${last}`, null),
  }));
  if (!bound || bound.minTime >= bound.maxTime) return all;
  const stored = () => explore.choose(String(bound.minTime), String(bound.maxTime));
  return [...all, { text: 'All that is stored', checked: false, run: stored }];
}

function timesOf(from: number, to: number): string {
  const z = zone.value;
  const [a, b] = [formatDay(from, z), formatDay(to, z)];
  const mark = z === 'utc' ? ' UTC' : '';
  if (a === b) return `${formatMinute(from, z)} – ${formatMinute(to, z)}${mark}`;
  return `${a} ${formatMinute(from, z)} – ${b} ${formatMinute(to, z)}${mark}`;
}

/** Moves the range; one that moves with the clock becomes fixed. */
export function shift(explore: Ranged, share: number): void {
  const { from, to } = explore.range.peek();
  const by = (to - from) * share;
  explore.choose(String(Math.round(from + by)), String(Math.round(to + by)));
}

/** Makes the range wider or narrower around its middle; one that moves keeps its end. */
export function widen(explore: Ranged, factor: number): void {
  const span = explore.span.peek();
  if ('last' in span) {
    const width = parseDuration(span.last)! * factor;
    explore.choose(`-${formatDuration(Math.max(1000, width))}`, null);
    return;
  }
  const [middle, half] = [(span.from + span.to) / 2, ((span.to - span.from) / 2) * factor];
  explore.choose(String(Math.round(middle - half)), String(Math.round(middle + half)));
}

function Exact({ explore, close }: { explore: Ranged; close: () => void }) {
  const range = rangeOf(explore.span.peek(), explore.asOf.peek());
  const [from, setFrom] = useState(new Date(range.from).toISOString());
  const [to, setTo] = useState(new Date(range.to).toISOString());
  const [start, end] = [parseTime(from), parseTime(to)];
  const wrong =
    start === null || end === null
      ? 'A time is 2026-11-30 11:34:07 (UTC), with its zone, or a number since the epoch.'
      : start >= end
        ? 'The end is not after the start.'
        : '';
  const submit = (event: Event) => {
    event.preventDefault();
    if (wrong) return;
    explore.choose(String(start), String(end));
    close();
  };
  return (
    <Dialog title="From and to" close={close}>
      <form class="token-form" onSubmit={submit}>
        <label>
          From
          <input class="control" value={from} onInput={(e) => setFrom(e.currentTarget.value)} />
        </label>
        <label>
          To
          <input class="control" value={to} onInput={(e) => setTo(e.currentTarget.value)} />
        </label>
        <p role="status" class={wrong ? 'crit' : 'quiet'}>
          {wrong || 'Any way of writing a time may be pasted.'}
        </p>
        <button type="submit" class="primary" disabled={wrong !== ''}>
          Show this range
        </button>
      </form>
    </Dialog>
  );
}

/** Auto, or a step that stays. */
export function StepControl({ explore }: { explore: Explore }) {
  const fixed = explore.fixedStep.value;
  const auto = autoStep(explore.range.value);
  const [typed, setTyped] = useState<string | null>(null);
  const written = typed ?? (fixed === null ? '' : formatDuration(fixed));
  return (
    <span class="step" role="group" aria-label="Step of the query">
      <span class="quiet">step</span>
      <Segments
        label="Step"
        value={fixed === null ? 'auto' : 'fixed'}
        choices={[
          { value: 'auto', content: `auto ${formatSpan(auto / 1000)}`, title: 'Suits the range' },
          { value: 'fixed', content: 'fixed', title: 'Stays when the range changes' },
        ]}
        choose={(kind) => setParams({ step: kind === 'auto' ? null : formatDuration(explore.step.peek()) })}
      />
      {fixed !== null && (
        <input
          class="control"
          aria-label="Fixed step"
          aria-invalid={parseDuration(written) === null}
          value={written}
          onInput={(e) => {
            setTyped(e.currentTarget.value);
            if (parseDuration(e.currentTarget.value) !== null) setParams({ step: e.currentTarget.value });
          }}
          onBlur={() => setTyped(null)}
        />
      )}
    </span>
  );
}
