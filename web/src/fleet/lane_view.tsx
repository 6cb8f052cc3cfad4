/** Lanes of one card over one time axis. */
import type { ReadonlySignal, Signal as State } from '@preact/signals';
import { hatch, type Ink } from '../charts/ink';
import { valueTicks } from '../charts/ticks';
import { Trust } from '../components/trust';
import { formatTicks, formatValue } from '../lib/number';
import { shown } from '../lib/text';
import { type Sheet, useCanvas } from '../ranks/use_canvas';
import { extentOf, type History, holesOf, type LaneLine, type LaneSpec, valueAt } from './lanes';
import { valueText } from './signals';

const PAD = 4;

/** A value of a lane. */
export const laneText = (value: number, unit: string) =>
  Number.isNaN(value) ? 'absent' : unit === 'ratio' ? valueText(value, unit) : formatValue(value, unit);

/** The colour of a line: the card's own ones take the series' colours. */
export function colourOf(line: LaneLine, at: number, demoted: boolean): string {
  if (line.kind !== 'own' || demoted) return '--peer';
  return `--series-${[2, 1, 3, 4, 5, 6, 7, 8, 9, 10][at % 10]}`;
}

function inkOf(ink: Ink, line: LaneLine, at: number, demoted: boolean): string {
  const property = colourOf(line, at, demoted);
  return property === '--peer' ? ink.peer : ink.series(Number(property.slice('--series-'.length)) - 1);
}

function draw({ ctx, width, height, ink }: Sheet, lane: LaneSpec, lines: LaneLine[], history: History): void {
  const { from, to } = history.range;
  const [low, high] = extentOf(lane, lines);
  const x = (time: number) => ((time - from) / (to - from)) * width;
  const y = (value: number) => PAD + (1 - (value - low) / (high - low)) * (height - 2 * PAD);
  for (const [start, end] of holesOf(lines, history.range))
    hatch(ctx, { x: x(start), y: 0, w: x(end) - x(start), h: height }, ink.line2, 1);
  ctx.fillStyle = ink.grid;
  for (const tick of valueTicks(low, high, 2, lane.unit)) ctx.fillRect(0, Math.round(y(tick)), width, 1);
  lines.toReversed().forEach((line, behind) => {
    const at = lines.length - 1 - behind;
    ctx.strokeStyle = inkOf(ink, line, at, lane.level === 'D');
    ctx.lineWidth = line.kind === 'own' ? 1.6 : 1.2;
    ctx.setLineDash(line.kind === 'ceiling' ? [4, 3] : []);
    ctx.beginPath();
    let down = false;
    line.x.forEach((time, place) => {
      const value = line.y[place];
      if (!Number.isFinite(value)) {
        down = false;
        return;
      }
      if (down) ctx.lineTo(x(time), y(value));
      else ctx.moveTo(x(time), y(value));
      // A sample between two gaps is a dot.
      if (!down && !Number.isFinite(line.y[place + 1])) ctx.lineTo(x(time) + 1, y(value));
      down = true;
    });
    ctx.stroke();
  });
  ctx.setLineDash([]);
  if (low > 0) breakMark(ctx, height, ink.text3);
}

/** Says that the axis does not begin at zero. */
function breakMark(ctx: CanvasRenderingContext2D, height: number, colour: string): void {
  ctx.strokeStyle = colour;
  ctx.lineWidth = 1;
  ctx.beginPath();
  for (const x of [1, 4]) {
    ctx.moveTo(x, height - 1);
    ctx.lineTo(x + 3, height - 7);
  }
  ctx.stroke();
}

/** A lane in words. */
function laneWords(lane: LaneSpec, lines: LaneLine[]): string {
  const words = lines.map((line) => {
    const value = laneText(valueAt(line, null), lane.unit);
    return `${line.text ? `${line.text} ` : ''}last ${value}`;
  });
  return `${lane.title}: ${words.join(', ') || 'absent'}`;
}

/** One lane with its title on the left and what it reads on the right. */
export function LaneRow(props: {
  lane: LaneSpec;
  history: ReadonlySignal<History | null>;
  cursor: State<number | null>;
  /** Why nothing came. */
  absent: string;
  ticks: boolean;
}) {
  const { lane, history, cursor, absent, ticks } = props;
  const lines = history.value?.lines.get(lane.id) ?? [];
  const empty = history.value !== null && lines.length === 0;
  const demoted = lane.level === 'D';
  return (
    <div class={`lane-row${demoted ? ' demoted' : ''}`} data-lane={lane.id}>
      <div class="title">
        <b>{lane.title}</b>
        <span class="quiet">{lane.unit === 'ratio' || lane.unit === 'B' ? '' : lane.unit}</span>
        {ticks && <Trust help={lane.title} caveat={lane.caveat} level={lane.level} />}
      </div>
      {empty ? <p class="absent-lane">{absent}</p> : <Plot lane={lane} history={history} ticks={ticks} />}
      <Reads lane={lane} lines={lines} cursor={cursor} />
    </div>
  );
}

function Plot(props: { lane: LaneSpec; history: ReadonlySignal<History | null>; ticks: boolean }) {
  const { lane, history, ticks } = props;
  const canvas = useCanvas((sheet) => {
    if (history.value) draw(sheet, lane, history.value.lines.get(lane.id) ?? [], history.value);
  });
  const lines = history.value?.lines.get(lane.id) ?? [];
  const [low, high] = extentOf(lane, lines);
  const values = valueTicks(low, high, lane.level === 'D' ? 1 : 2, lane.unit);
  const unit = lane.unit === 'ratio' ? '' : lane.unit;
  return (
    <div class="lane-plot">
      <canvas ref={canvas} role="img" aria-label={laneWords(lane, lines)} />
      {ticks &&
        history.value &&
        formatTicks(values, unit).map((text, at) => (
          <span
            key={text}
            class="tick"
            aria-hidden="true"
            style={{
              top: `calc(${PAD}px + ${1 - (values[at] - low) / (high - low)} * (100% - ${2 * PAD}px))`,
            }}
          >
            {text}
          </span>
        ))}
    </div>
  );
}

function Reads({ lane, lines, cursor }: { lane: LaneSpec; lines: LaneLine[]; cursor: State<number | null> }) {
  return (
    <dl class="reads">
      {lines.slice(0, 4).map((line, at) => (
        <div key={line.key}>
          <dt>
            <i style={{ background: `var(${colourOf(line, at, lane.level === 'D')})` }} aria-hidden="true" />
            {shown(line.text, 16) || 'card'}
          </dt>
          <dd>{laneText(valueAt(line, cursor.value), lane.unit)}</dd>
        </div>
      ))}
    </dl>
  );
}
