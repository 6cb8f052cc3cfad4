/** The lane above the charts: attempts and what is not finite, on the charts' x axis, with the cursor's flag. */
import type { Board } from '../charts/board';
import type { Range } from '../charts/range';
import type { AttemptSpan, Mark } from '../charts/shape';
import { placeText } from '../charts/summary';
import * as view from '../charts/view';
import { now, zone } from '../lib/clock';
import { formatCount } from '../lib/number';
import type { Axis } from '../lib/points';
import { shown, visible } from '../lib/text';
import { formatDay, formatSecond, formatSpan } from '../lib/time';

const MERGED_SHARE = 0.09;
/** More marks than this are drawn without words. */
const WORDED = 6;

interface LaneMark {
  x: number;
  names: string[];
  kinds: string[];
  count: number;
}

/** Spans of the attempts on an axis: from the points on steps, from the sessions on time. */
function attemptsOn(board: Board, axis: Axis): AttemptSpan[] {
  const detail = board.detail.value;
  if (!detail) return [];
  if (axis === 'step') {
    const spans = new Map<number, AttemptSpan>();
    for (const chart of board.charts.value) {
      const loaded = board.state(chart.name).loaded.value;
      if (loaded?.axis !== 'step') continue;
      for (const span of loaded.shape.attempts) {
        const known = spans.get(span.number);
        spans.set(span.number, {
          number: span.number,
          from: Math.min(span.from, known?.from ?? Infinity),
          to: Math.max(span.to, known?.to ?? -Infinity),
        });
      }
    }
    return [...spans.values()].sort((a, b) => a.number - b.number);
  }
  const origin = axis === 'relative' ? (detail.started_ms ?? 0) : 0;
  const scale = axis === 'relative' ? 1000 : 1;
  const end = detail.ended_ms ?? detail.last_time_ms ?? Date.now();
  return detail.attempts_list
    .filter((a) => a.started_ms !== null)
    .map((a) => ({
      number: a.number,
      from: (a.started_ms! - origin) / scale,
      to: ((a.ended_ms ?? end) - origin) / scale,
    }));
}

/** What is not finite, and in which chart. */
export type NamedMark = Mark & { name: string };

function chartMarks(board: Board, axis: Axis): NamedMark[] {
  return board.charts.value.flatMap(({ name }) => {
    const loaded = board.state(name).loaded.value;
    return loaded?.axis === axis ? loaded.shape.marks.map((m) => ({ ...m, name })) : [];
  });
}

function merged(all: NamedMark[], range: Range): LaneMark[] {
  const marks: LaneMark[] = [];
  for (const mark of all.filter((m) => m.x >= range.from && m.x <= range.to).sort((a, b) => a.x - b.x)) {
    const near = marks[marks.length - 1];
    if (near && mark.x - near.x < (range.to - range.from) * MERGED_SHARE) {
      near.count += mark.count;
      if (!near.names.includes(mark.name)) near.names.push(mark.name);
      if (!near.kinds.includes(mark.kind)) near.kinds.push(mark.kind);
    } else marks.push({ x: mark.x, names: [mark.name], kinds: [mark.kind], count: mark.count });
  }
  return marks;
}

/** The time of the day, and the day itself when it is not today. */
function clockText(time: number): string {
  const today = formatDay(time, zone.value) === formatDay(now.value, zone.value);
  const words = [
    today ? '' : formatDay(time, zone.value),
    formatSecond(time, zone.value),
    zone.value === 'utc' ? 'UTC' : '',
  ];
  return words.filter(Boolean).join(' ');
}

function flagText(board: Board, axis: Axis, x: number): string {
  if (axis === 'relative') return formatSpan(x);
  const map = board.stepMap.value;
  const time = axis === 'time' ? x : (map?.timeOf(x) ?? null);
  const step = axis === 'step' ? x : (map?.stepOf(x) ?? null);
  const words = [step === null ? '' : `step ${formatCount(step)}`, time === null ? '' : clockText(time)];
  return (axis === 'step' ? words : words.reverse()).filter(Boolean).join(' · ');
}

/** Width of an attempt's name, percent of the lane. */
const NAME_SHARE = 7;

/** The lane; over the page's axis and with the marks of its charts unless it is told others. */
export function EventLane(props: {
  board: Board;
  axis?: Axis;
  marks?: NamedMark[];
  attempts?: AttemptSpan[];
}) {
  const { board, axis = view.pageAxis.value } = props;
  const range = board.rangeOf(axis);
  const share = (x: number) => ((x - range.from) / (range.to - range.from)) * 100;
  const known = props.attempts ?? attemptsOn(board, axis);
  const attempts = known.filter((a) => a.to >= range.from && a.from <= range.to);
  const marks = merged(props.marks ?? chartMarks(board, axis), range);
  const left = (a: AttemptSpan) => Math.max(0, share(a.from));
  // Attempts that begin at one place would write over each other: the newest one's name stays.
  const covered = (at: number) =>
    attempts.slice(at + 1).some((b) => Math.abs(left(b) - left(attempts[at])) < NAME_SHARE);
  return (
    <section class="lane" aria-label="Events">
      <h2>Events</h2>
      <div class="track">
        {attempts.map((a, at) => {
          const [left, right] = [Math.max(0, share(a.from)), Math.min(100, share(a.to))];
          const newest = at === attempts.length - 1;
          return (
            <span
              key={a.number}
              class={newest ? 'attempt newest' : 'attempt'}
              style={{
                left: `${left}%`,
                width: `${Math.max(0.2, right - left)}%`,
                top: `${(attempts.length - 1 - at) % 2 === 0 ? 7 : 3}px`,
              }}
              title={`attempt ${a.number}: ${placeText(axis, a.from, zone.value)} to ${placeText(axis, a.to, zone.value)}`}
            >
              {!covered(at) && <span>attempt {a.number}</span>}
            </span>
          );
        })}
        {marks.map((m) => (
          <span
            key={m.x}
            class={share(m.x) > 80 ? 'event left' : 'event'}
            style={{ left: `${share(m.x)}%` }}
            title={`${formatCount(m.count)} × ${m.kinds.join(', ')} in ${visible(m.names.join(', '))} at ${placeText(axis, m.x, zone.value)}`}
          >
            <svg width="10" height="10" viewBox="0 0 10 10" aria-hidden="true">
              <path d="M5 0 10 5 5 10 0 5z" />
            </svg>
            {marks.length <= WORDED && markText(m)}
          </span>
        ))}
        <Flag board={board} axis={axis} share={share} />
      </div>
    </section>
  );
}

function markText(mark: LaneMark): string {
  if (mark.count === 1) return `${mark.kinds[0]}, ${shown(mark.names[0], 24)}`;
  return `${formatCount(mark.count)} ${mark.kinds.length === 1 ? mark.kinds[0] : 'not finite'}`;
}

function Flag({ board, axis, share }: { board: Board; axis: Axis; share: (x: number) => number }) {
  const x = board.cursor[axis].value;
  const from = board.mark.value?.[axis] ?? null;
  if (x === null || share(x) < 0 || share(x) > 100) return null;
  return (
    <span class={share(x) > 70 ? 'flag left' : 'flag'} style={{ left: `${share(x)}%` }}>
      <span>
        {flagText(board, axis, axis === 'step' ? Math.round(x) : x)}
        {board.pinned.value ? ' · pinned' : ''}
        {from !== null && ` · from ${flagText(board, axis, axis === 'step' ? Math.round(from) : from)}`}
      </span>
    </span>
  );
}
