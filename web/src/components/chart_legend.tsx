/** Values at the cursor: in the head for a few series, in a list below the plot for many. */
import type { Board } from '../charts/board';
import { differenceOf, type Entry, entryText, readAt } from '../charts/legend';
import type { Shape } from '../charts/shape';
import { slotDash, slotProperty } from '../lib/colour';
import type { Axis } from '../lib/points';
import { labelText } from '../lib/text';

/** What colours the entries and has the cursor. */
export type Legends = Pick<Board, 'slot' | 'cursor' | 'settled'> &
  Partial<Pick<Board, 'mark'>> & {
    /** Dash of a line where it is not that of its colour. */
    dash?: (labels: Record<string, string>) => number[] | undefined;
  };

function Swatch({ board, entry }: { board: Legends; entry: Entry }) {
  const slot = board.slot(entry.labels);
  return (
    <svg class="swatch" width="18" height="8" aria-hidden="true">
      <path
        d="M0 4h18"
        style={{ stroke: `var(${slotProperty(slot)})` }}
        stroke-dasharray={(board.dash?.(entry.labels) ?? slotDash(slot)).join(' ')}
      />
    </svg>
  );
}

interface ReadoutProps {
  board: Legends;
  axis: Axis;
  shape: Shape;
  entry: Entry;
  unit: string;
  alone: boolean;
  hover: (on: boolean) => void;
  /** What else is known of a value. */
  about?: (value: number) => string;
}

/** The value of one series at the cursor, in the head. */
export function Readout({ board, axis, shape, entry, unit, alone, hover, about }: ReadoutProps) {
  const reading = readAt(shape, entry, board.cursor[axis].value, unit);
  const from = board.mark?.value?.[axis] ?? null;
  const before = from === null ? null : readAt(shape, entry, from, unit);
  const text = entryText(entry);
  const attempt = shape.attempts.length > 1 && reading ? `attempt ${reading.attempt}` : '';
  return (
    <span
      class="readout"
      title={[
        labelText(entry.labels),
        reading?.spread && `min–max ${reading.spread}`,
        reading && about?.(reading.value),
      ]
        .filter(Boolean)
        .join(' · ')}
      onPointerEnter={() => hover(true)}
      onPointerLeave={() => hover(false)}
    >
      <Swatch board={board} entry={entry} />
      {(text || attempt) && <span class="what">{[text, attempt].filter(Boolean).join(' · ')}</span>}
      <b class={reading && !Number.isFinite(reading.value) ? 'crit' : ''}>
        {reading ? reading.text : 'absent'}
      </b>
      {from !== null && <span class="delta">Δ {differenceOf(before, reading, unit)}</span>}
      {alone && reading?.spread && (
        <span class="spread">
          min–max <b>{reading.spread}</b>
        </span>
      )}
    </span>
  );
}

interface LegendProps {
  board: Legends;
  axis: Axis;
  shape: Shape;
  entries: Entry[];
  unit: string;
  hidden: ReadonlySet<string>;
  setHidden: (hidden: ReadonlySet<string>) => void;
  hover: (id: string | null) => void;
}

/** Sorted by the value at the cursor; click for one alone, `Ctrl` and click to switch one. */
export function LegendList({ board, axis, shape, entries, unit, hidden, setHidden, hover }: LegendProps) {
  const cursor = board.settled[axis].value;
  const from = board.mark?.value?.[axis] ?? null;
  const read = entries
    .map((entry) => ({ entry, reading: readAt(shape, entry, cursor, unit) }))
    .sort((a, b) => (b.reading?.value ?? -Infinity) - (a.reading?.value ?? -Infinity));
  const click = (event: MouseEvent, id: string) => {
    const others = entries.map((e) => e.id).filter((other) => other !== id);
    if (event.ctrlKey || event.metaKey) {
      const next = new Set(hidden);
      if (!next.delete(id)) next.add(id);
      setHidden(next);
    } else setHidden(others.every((o) => hidden.has(o)) && !hidden.has(id) ? new Set() : new Set(others));
  };
  return (
    <div class="legend" role="group" aria-label="Series" onPointerLeave={() => hover(null)}>
      {read.map(({ entry, reading }) => (
        <button
          type="button"
          key={entry.id}
          tabIndex={-1}
          aria-pressed={!hidden.has(entry.id)}
          title={labelText(entry.labels)}
          onPointerEnter={() => hover(hidden.has(entry.id) ? null : entry.id)}
          onClick={(e) => click(e, entry.id)}
        >
          <Swatch board={board} entry={entry} />
          <span class="what">{entryText(entry) || 'all'}</span>
          <b>{reading?.text ?? 'absent'}</b>
          {from !== null && (
            <span class="delta">Δ {differenceOf(readAt(shape, entry, from, unit), reading, unit)}</span>
          )}
        </button>
      ))}
    </div>
  );
}
