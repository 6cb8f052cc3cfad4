/** The lane above the charts: attempts and what is not finite, on the charts' x axis, with the cursor's flag. */
import type { Board } from '../charts/board';
import type { Range } from '../charts/range';
import type { AttemptSpan, Mark } from '../charts/shape';
import { placeText } from '../charts/summary';
import * as view from '../charts/view';
import { alertOf, type Band, bandsOn, bandText, type Firing, placeOf } from '../health/firings';
import { type Onset, onsetsOn } from '../health/words';
import { now, zone } from '../lib/clock';
import { formatCount } from '../lib/number';
import type { Axis } from '../lib/points';
import { shown, visible } from '../lib/text';
import { formatDay, formatMinute, formatSecond, formatSpan } from '../lib/time';
import { Link } from './link';

const MERGED_SHARE = 0.09;
/** More marks than this are drawn without words. */
const WORDED = 6;
/** A spell that is narrower has its words beside it, percent of the lane. */
const SPELL_SHARE = 14;

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
const NAME_SHARE = 8;

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
  const onsets = onsetsOn(board, axis);
  const bands = bandsOn(board, axis, (range.to - range.from) * MERGED_SHARE);
  const stretches = [
    ...bands.map((band) => ofBand(band, onsets)),
    ...onsets.map((onset) => ofOnset(board, axis, onset)),
  ];
  // What begins at one place would write over each other: the newest attempt's name stays, unless a verdict does.
  const covered = (at: number) => {
    const own = left(attempts[at]);
    return (
      attempts.slice(at + 1).some((b) => Math.abs(left(b) - own) < NAME_SHARE) ||
      onsets.some((o) => share(o.x) < own + NAME_SHARE && (o.end === null || share(o.end) > own))
    );
  };
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
        {stretches.map((of, at) => (
          <Strip
            key={of.key}
            of={of}
            share={share}
            crowded={stretches.some((o, i) => i !== at && !o.low && isLeftOf(share, o, of))}
          />
        ))}
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

/** A stretch of the lane: hatched up to `found`, then solid; open at the right while it lasts. */
interface Stretch {
  key: string;
  level: string;
  text: string;
  title: string;
  /** The rule whose page it leads to; none for what raised no alert. */
  rule: string | null;
  from: number;
  found: number;
  to: number | null;
  /** Whether it stands below another one, without words. */
  low: boolean;
}

/** Whether one stretch lies where the words to the left of another would stand. */
function isLeftOf(share: (x: number) => number, one: Stretch, of: Stretch): boolean {
  const left = share(of.from);
  return share(one.from) < left && (one.to === null ? 100 : share(one.to)) > left - SPELL_SHARE;
}

function Strip(props: { of: Stretch; share: (x: number) => number; crowded: boolean }) {
  const { of, share, crowded } = props;
  const [from, to] = [share(of.from), of.to === null ? 100 : Math.min(100, share(of.to))];
  if (from > 100 || to < 0 || to < from) return null;
  const left = Math.max(0, from);
  const width = to - left;
  const found = Math.min(to, Math.max(left, share(of.found)));
  const right = left < SPELL_SHARE || (crowded && to < 100 - SPELL_SHARE);
  const beside = width < SPELL_SHARE ? ` short${right ? ' right' : ''}` : '';
  const inside = (
    <>
      <i style={{ width: `${width > 0 ? ((found - left) / width) * 100 : 0}%` }} />
      <span>{shown(of.text, 40)}</span>
    </>
  );
  // A link is placed by its frame, since it has no style of its own.
  return (
    <span
      class={`spell ${of.level}${beside}${of.low ? ' low' : ''}`}
      style={{ left: `${left}%`, width: `${Math.max(0.2, width)}%` }}
      title={visible(of.title)}
    >
      {of.rule === null ? (
        inside
      ) : (
        <Link href={`/alerts?rule=${encodeURIComponent(of.rule)}`} class="alert">
          {inside}
        </Link>
      )}
    </span>
  );
}

/** How long something was wrong, and the alert that told of it. */
function ofOnset(board: Board, axis: Axis, onset: Onset): Stretch {
  const alert = alertOf(board, onset.id);
  const told = alert && alertWords(alert);
  return {
    key: onset.id,
    level: onset.level,
    text: told ?? onset.text,
    title: told ? `${onset.text}: ${told}` : onset.text,
    rule: alert?.rule ?? null,
    from: onset.x,
    found: (alert && placeOf(board, axis, alert.start)) ?? onset.found ?? onset.x,
    to: onset.end,
    low: false,
  };
}

/** Alerts of the run that no verdict accounts for; beside a verdict they stand below it. */
function ofBand(band: Band, onsets: Onset[]): Stretch {
  const { firings, level, from, fired, to } = band;
  const words = firings.map(alertWords);
  return {
    key: `${firings[0].fingerprint} ${firings[0].start}`,
    level,
    text: firings.length === 1 ? words[0] : bandText(band),
    title: words.join('; '),
    rule: firings[0].rule,
    from,
    found: fired,
    to,
    low: onsets.some((o) => o.x < (to ?? Infinity) && (o.end ?? Infinity) > from),
  };
}

/** `StragglerPage firing since 10:46`, or from when to when it did. */
function alertWords({ rule, start, end }: Firing): string {
  const from = formatMinute(start, zone.value);
  return end === null ? `${rule} firing since ${from}` : `${rule} ${from} – ${formatMinute(end, zone.value)}`;
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
