/** Each replica's own line of one figure on one scale, the worst first. */
import { hatch } from '../charts/ink';
import { Failure } from '../components/failure';
import { Name } from '../components/name';
import { LabelledSegments } from '../components/segments';
import type { Series } from '../explore/answer';
import { setParams } from '../lib/address';
import { THIN } from '../lib/number';
import { shown, visible } from '../lib/text';
import { type Sheet, useCanvas } from '../ranks/use_canvas';
import { type Model, numberOf, type Replica } from './answers';
import { COMPARED } from './charts';
import type { Inference, Split } from './model';
import { brief, replicaName } from './words';

/** Replicas that are drawn at most. */
const DRAWN_MAX = 48;
const PAD = 4;

/** A replica and its value in the last minutes. */
interface Drawn {
  replica: Replica;
  last: number;
}

const seriesKey = (labels: Record<string, string>) =>
  JSON.stringify([labels.job ?? '', labels.instance ?? '', labels.dp_rank ?? '']);

const replicaKey = ({ job, instance, dp_rank }: Replica) =>
  seriesKey({ job, instance, dp_rank: dp_rank ?? '' });

/** Replicas in the order that they are shown in: down first, then the worst value, then those without one. */
export function drawnOf(model: Model, figure: string, worse: 'high' | 'low'): Drawn[] {
  const sign = worse === 'high' ? -1 : 1;
  const rank = (d: Drawn) => (Number.isNaN(d.last) ? Infinity : sign * d.last);
  const all = model.replicas.map((replica): Drawn => {
    const told = numberOf(replica.values[figure]?.value);
    return { replica, last: figure === 'itl_p99' ? told * 1000 : told };
  });
  return all.toSorted(
    (a, b) =>
      Number(a.replica.up) - Number(b.replica.up) ||
      (rank(a) === rank(b) ? 0 : rank(a) - rank(b)) ||
      (a.replica.instance < b.replica.instance ? -1 : 1),
  );
}

function draw(
  sheet: Sheet,
  series: Series | null,
  x: Float64Array,
  range: [number, number],
  most: number,
): void {
  const { ctx, width, height, ink } = sheet;
  const [from, to] = range;
  const place = (time: number) => ((time - from) / (to - from)) * width;
  const rise = (value: number) => PAD + (1 - value / most) * (height - 2 * PAD);
  ctx.fillStyle = ink.grid;
  for (const share of [0, 0.5, 1]) ctx.fillRect(0, Math.round(rise(most * share)), width, 1);
  const step = x.length > 1 ? x[1] - x[0] : to - from;
  const shown = series?.values ?? new Float64Array(x.length).fill(Number.NaN);
  let start: number | null = null;
  for (let at = 0; at <= x.length; at++) {
    const empty = at < x.length && Number.isNaN(shown[at]);
    if (empty && start === null) start = x[at] - step / 2;
    if (!empty && start !== null) {
      const end = at < x.length ? x[at] - step / 2 : to;
      hatch(ctx, { x: place(start), y: 0, w: place(end) - place(start), h: height }, ink.line2, 1);
      start = null;
    }
  }
  ctx.strokeStyle = ink.series(0);
  ctx.lineWidth = 1.4;
  ctx.beginPath();
  let down = false;
  x.forEach((time, at) => {
    const value = shown[at];
    if (!Number.isFinite(value)) {
      down = false;
      return;
    }
    if (down) ctx.lineTo(place(time), rise(value));
    else ctx.moveTo(place(time), rise(value));
    if (!down && !Number.isFinite(shown[at + 1])) ctx.lineTo(place(time) + 1, rise(value));
    down = true;
  });
  ctx.stroke();
}

function Small(props: {
  page: Inference;
  drawn: Drawn;
  most: number;
  unit: string;
  figure: string;
  ranks: boolean;
}) {
  const { page, drawn, most, unit, figure, ranks } = props;
  const { replica } = drawn;
  // Read while it is drawn, so that another answer or range is drawn anew.
  const canvas = useCanvas((sheet) => {
    const split = page.replicas.value;
    const { from, to } = page.rangeOf('time');
    const series = split?.answer.series.find((s) => seriesKey(s.labels) === replicaKey(replica)) ?? null;
    draw(sheet, series, split?.answer.x ?? new Float64Array(0), [from, to], mostOf(split));
  });
  const value = Number.isNaN(drawn.last) ? null : `${brief(drawn.last)}${unit && THIN + unit}`;
  const reason = replica.error ?? replica.values[figure]?.reason ?? 'nothing was sent';
  return (
    <li class={replica.up ? '' : 'down'}>
      <header>
        <b>
          <Name text={replicaName(replica, ranks)} limit={30} />
        </b>
        <span class="quiet">{shown(replica.engine, 12)}</span>
        <span class="value">{value ?? '—'}</span>
      </header>
      <canvas
        ref={canvas}
        role="img"
        aria-label={`${shown(replica.instance)}: ${value ?? `unknown, ${visible(reason)}`}, axis to ${most}`}
      />
      {(!replica.up || value === null) && (
        <p class={replica.up ? 'quiet' : 'warning'} title={visible(reason)}>
          {replica.up ? '— unknown: ' : 'down: '}
          {visible(reason)}
        </p>
      )}
    </li>
  );
}

/** The end of the scale that all share. */
function mostOf(split: Split | null): number {
  if (split?.key === 'kv_mean') return 1;
  const highest = (split?.answer.series ?? []).map((s) => (Number.isFinite(s.max) ? s.max : 0));
  return Math.max(0, ...highest) || 1;
}

/** The small multiples. */
export function Replicas({ page, model }: { page: Inference; model: Model }) {
  const by = page.by.value;
  const found = page.replicas.value;
  const split = found && found.model === model.model && found.key === by.key ? found : null;
  const all = drawnOf(model, by.figure, by.worse);
  const ranks = new Set(model.replicas.map((r) => r.instance)).size < model.replicas.length;
  const most = mostOf(split);
  return (
    <section class="panel replicas" aria-label="Replicas">
      <header>
        <h2>
          Replicas{' '}
          <span class="quiet">
            worst first
            {split && split.answer.series.length > 0
              ? `, one scale: 0 to ${brief(most)}${by.unit && THIN + by.unit}`
              : ''}
          </span>
        </h2>
        <LabelledSegments
          label="By"
          value={by.key}
          choose={(key) => setParams({ by: key === COMPARED[0].key ? null : key })}
          choices={COMPARED.map(({ key, text }) => ({ value: key, content: text }))}
        />
      </header>
      {page.replicasError.value !== null && (
        <Failure error={page.replicasError.value} retry={() => void page.load()} />
      )}
      <ul>
        {all.slice(0, DRAWN_MAX).map((drawn) => (
          <Small
            key={replicaKey(drawn.replica)}
            page={page}
            drawn={drawn}
            most={most}
            unit={by.unit}
            figure={by.figure}
            ranks={ranks}
          />
        ))}
      </ul>
      {all.length > DRAWN_MAX && (
        <p class="quiet">
          The first {DRAWN_MAX} of {all.length} are shown.
        </p>
      )}
    </section>
  );
}
