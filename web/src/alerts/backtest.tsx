/** What a rule would have done: its value over what is stored, its thresholds, and when it would have fired. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { valueTicks, xTicks } from '../charts/ticks';
import { counted } from '../fleet/names';
import { unspell } from '../lib/answers';
import { zone } from '../lib/clock';
import { formatCount, formatTicks } from '../lib/number';
import { shown, visible } from '../lib/text';
import { formatDay, formatMinute, formatSpan } from '../lib/time';
import type { Backtest } from './answers';
import { scopeText } from './words';

/** Lines that are drawn. */
const LINES = 8;
const HEIGHT = 200;
const [TOP, BOTTOM, LEFT, RIGHT] = [18, 20, 44, 8];
/** Marks closer than this are told once, px. */
const NEAR = 140;

/** Thresholds that can be drawn. */
const thresholdsOf = (answer: Backtest): { value: number; text: string }[] =>
  answer.threshold.flatMap(({ value, text }) => {
    const number = unspell(value);
    return number !== null && Number.isFinite(number) ? [{ value: number, text }] : [];
  });

/** `would have fired 3 times, 4 h 12 min in all`. */
export function backtestText(answer: Backtest): string {
  const count = answer.firings.length;
  if (count === 0)
    return answer.pending.length > 0
      ? `would not have fired; pending ${counted(answer.pending.length, 'time')}`
      : 'would not have fired';
  const times = count === 1 ? 'once' : count === 2 ? 'twice' : `${count} times`;
  return `would have fired ${times}, ${formatSpan(answer.total_seconds)} in all`;
}

/** The lowest and highest value that is drawn; a constant gets room around it. */
export function boundsOf(values: number[]): [number, number] {
  const finite = values.filter(Number.isFinite);
  if (finite.length === 0) return [0, 1];
  const [low, high] = [Math.min(...finite), Math.max(...finite)];
  if (low === high) {
    const room = Math.abs(low) * 0.05 || 1;
    return [low - room, high + room];
  }
  const room = (high - low) * 0.06;
  return [low - room, high + room];
}

/** A line as an SVG path; a step without a sample breaks it. */
export function pathOf(
  points: [number, number | null][],
  gapMs: number,
  x: (time: number) => number,
  y: (value: number) => number,
): string {
  let path = '';
  let last: number | null = null;
  for (const [time, value] of points) {
    if (value === null || !Number.isFinite(value)) {
      last = null;
      continue;
    }
    const word = last === null || time - last > gapMs ? 'M' : 'L';
    path += `${word}${x(time).toFixed(1)} ${y(value).toFixed(1)}`;
    last = time;
  }
  return path;
}

/** A distance of points beyond which nothing lies between them; of many points every few are sent. */
function gapOf(points: [number, number | null][], step: number): number {
  const apart = points.slice(1).map(([time], at) => time - points[at][0]);
  const usual = apart.sort((a, b) => a - b)[Math.floor(apart.length / 2)] ?? step;
  return 2.5 * Math.max(step, usual);
}

function useWidth(): [(node: HTMLElement | null) => void, number] {
  const [width, setWidth] = useState(640);
  const observer = useRef<ResizeObserver | null>(null);
  useEffect(() => () => observer.current?.disconnect(), []);
  const attach = (node: HTMLElement | null) => {
    observer.current?.disconnect();
    if (!node) return;
    observer.current = new ResizeObserver(([entry]) => setWidth(Math.max(200, entry.contentRect.width)));
    observer.current.observe(node);
  };
  const kept = useRef(attach);
  return [kept.current, width];
}

/** The chart. */
export function BacktestChart({ answer, from, to }: { answer: Backtest; from: number; to: number }) {
  const [attach, width] = useWidth();
  const z = zone.value;
  const drawn = answer.series.slice(0, LINES);
  const lines = drawn.map((s) => s.points.map(([t, v]): [number, number | null] => [t, unspell(v)]));
  const thresholds = thresholdsOf(answer);
  const values = [...lines.flatMap((l) => l.flatMap(([, v]) => v ?? [])), ...thresholds.map((t) => t.value)];
  const [low, high] = boundsOf(values);
  const x = (time: number) => LEFT + ((time - from) / (to - from)) * (width - LEFT - RIGHT);
  const y = (value: number) => TOP + (1 - (value - low) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  const clipped = (time: number) => Math.min(width - RIGHT, Math.max(LEFT, x(time)));
  const yTicks = valueTicks(low, high, 4);
  const yTexts = formatTicks(yTicks);
  const [ticks, texts] = xTicks('time', from, to, Math.max(2, Math.floor(width / 110)), z);
  const box = (span: { from: number; to: number }) => ({
    x: clipped(span.from),
    width: Math.max(2, clipped(span.to) - clipped(span.from)),
  });
  return (
    <figure class="backtest" ref={attach}>
      <svg width={width} height={HEIGHT} role="img" aria-label={`Back-test: ${backtestText(answer)}`}>
        <defs>
          <pattern id="off" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
            <path d="M0 0V6" class="hatch" />
          </pattern>
        </defs>
        {yTicks.map((tick, at) => (
          <g key={tick}>
            <path class="grid" d={`M${LEFT} ${y(tick).toFixed(1)}H${width - RIGHT}`} />
            <text x={LEFT - 6} y={y(tick) + 4} text-anchor="end">
              {yTexts[at]}
            </text>
          </g>
        ))}
        {ticks.map((tick, at) => (
          <text key={tick} x={x(tick)} y={HEIGHT - 4} text-anchor={at === 0 ? 'start' : 'middle'}>
            {texts[at]}
          </text>
        ))}
        {answer.gaps.map((gap) => (
          <g key={gap.from}>
            <rect class="off" {...box(gap)} y={TOP} height={HEIGHT - TOP - BOTTOM} fill="url(#off)" />
            {box(gap).width > 12 && (
              <text x={Math.min(clipped(gap.to) + 4, width - 90)} y={TOP + 12}>
                server was off
              </text>
            )}
          </g>
        ))}
        {lines.map((points, at) => (
          <path
            key={at}
            class="line"
            style={{ stroke: `var(--series-${at + 1})` }}
            d={pathOf(points, gapOf(points, answer.step_seconds * 1000), x, y)}
          />
        ))}
        {thresholds.map((t, at) => (
          <g key={t.value} class={`threshold ${at === thresholds.length - 1 ? 'crit' : 'warn'}`}>
            <path d={`M${LEFT} ${y(t.value).toFixed(1)}H${width - RIGHT}`} />
            <text x={LEFT + 4} y={y(t.value) - 4}>
              {shown(t.text, 32)}
            </text>
          </g>
        ))}
        {answer.pending.map((span, at) => (
          <rect key={at} class="pending" {...box(span)} y={TOP - 12} height={6} />
        ))}
        {answer.firings.map((span, at) => (
          <rect key={at} class="fires" {...box(span)} y={TOP - 12} height={6} />
        ))}
        <Marks answer={answer} x={clipped} width={width} />
      </svg>
      <figcaption class="quiet">
        {answer.series_total > drawn.length &&
          `${drawn.length} of ${formatCount(answer.series_total)} series drawn, those that went furthest; all are counted. `}
        {answer.gaps_reason && `When the server was off is not known: ${shown(answer.gaps_reason, 160)}.`}
      </figcaption>
    </figure>
  );
}

/** Who would have fired, where there is room to say it. */
function Marks({ answer, x, width }: { answer: Backtest; x: (time: number) => number; width: number }) {
  let last = -Infinity;
  const marks = answer.firings
    .toSorted((a, b) => a.from - b.from)
    .flatMap((f) => {
      const at = x(f.from);
      if (at - last < NEAR) return [];
      last = at;
      return [{ at: at > width - 120 ? at : x(f.to), key: f.from, text: scopeText(f.labels) }];
    });
  return (
    <>
      {marks.map(({ at, key, text }) => (
        <text
          key={key}
          class="mark"
          x={at > width - 120 ? at - 4 : at + 8}
          y={TOP - 6}
          text-anchor={at > width - 120 ? 'end' : 'start'}
        >
          {shown(text, 24)}
        </text>
      ))}
    </>
  );
}

/** The same as a table. */
export function BacktestTable({ answer }: { answer: Backtest }) {
  if (answer.firings.length === 0) return null;
  const z = zone.value;
  const when = (time: number) => `${formatDay(time, z)} ${formatMinute(time, z)}`;
  return (
    <details class="as-table">
      <summary>Firings as a table</summary>
      <div class="scroll" tabIndex={0} role="region" aria-label="Table of firings in the back-test">
        <table>
          <thead>
            <tr>
              <th scope="col">From</th>
              <th scope="col">To</th>
              <th scope="col">Lasted</th>
              <th scope="col">Where</th>
            </tr>
          </thead>
          <tbody>
            {answer.firings.slice(0, 200).map((f, at) => (
              <tr key={at}>
                <td>{when(f.from)}</td>
                <td>{when(f.to)}</td>
                <td>{formatSpan((f.to - f.from) / 1000)}</td>
                <td title={visible(JSON.stringify(f.labels))}>{scopeText(f.labels)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}
