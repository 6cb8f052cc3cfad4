/** Tokens a second against the batch, log-log: what memory and arithmetic allow, where the cache stops fitting, and what an engine was seen to do. */
import { useEffect, useRef, useState } from 'preact/hooks';
import { param, setParams } from '../lib/address';
import { zone } from '../lib/clock';
import { formatCount, formatTicks, formatValue } from '../lib/number';
import { shown } from '../lib/text';
import { formatSecond } from '../lib/time';
import { percent } from '../money/quantity';
import type { CalcAnswer, Value } from './answers';
import type { Measured } from './fill';

const HEIGHT = 380;
const LEFT = 60;
const RIGHT = 24;
const TOP = 18;
const BOTTOM = 38;
/** Room around what is drawn, as a factor. */
const AIR = 1.6;
/** A roof that is more than so many times above all else is left out. */
const NEAR = 10;

/** A batch as it was reckoned. */
export interface Spot {
  batch: number;
  tokens: number;
  /** Shares of the step that arithmetic and memory need. */
  tensor: number;
  memory: number;
}

const numeric = (value: Value | undefined) => (typeof value === 'number' ? value : Number.NaN);

/** Rows of the answer as spots; those without numbers are left out. */
export function spotsOf(answer: CalcAnswer | null): Spot[] {
  return (answer?.rows ?? []).flatMap((row) => {
    const spot = {
      batch: numeric(row.batch),
      tokens: numeric(row.tokens_per_second),
      tensor: numeric(row.tensor_busy_ratio),
      memory: numeric(row.memory_busy_ratio),
    };
    return spot.batch > 0 && spot.tokens > 0 ? [spot] : [];
  });
}

/** What is drawn, in batches and tokens a second. */
export interface Scene {
  /** The lower one of both roofs, which is what is to be expected. */
  expected: [number, number][];
  memory: [number, number][];
  compute: [number, number][];
  rows: [number, number][];
  /** The largest batch whose cache fits; `null` where that is not known. */
  fits: number | null;
  /** Tokens a second that give each request its next token in time, for each of a batch. */
  perRequest: number | null;
  seen: { name: string; at: [number, number]; share: number | null }[];
  x: [number, number];
  y: [number, number];
}

/** Tokens a second that are to be expected at a batch, between two spots of the curve. */
export function expectedAt(curve: Spot[], batch: number): number | null {
  const at = curve.findIndex((s) => s.batch >= batch);
  if (at < 0) return null;
  const [low, high] = [curve[Math.max(0, at - 1)], curve[at]];
  if (high.batch === low.batch) return high.tokens;
  const share = Math.log(batch / low.batch) / Math.log(high.batch / low.batch);
  return low.tokens * (high.tokens / low.tokens) ** share;
}

/** Puts the picture together. An engine is drawn by what it would do on as many cards as the roof is of. */
export function sceneOf(
  answer: CalcAnswer,
  curve: CalcAnswer | null,
  measured: Measured | null,
  tpot: number | null,
): Scene | null {
  const rows = spotsOf(answer);
  const line = spotsOf(curve);
  if (rows.length === 0) return null;
  const smooth = line.length > 1 ? line : rows;
  const roof = (share: (s: Spot) => number) =>
    smooth.flatMap((s): [number, number][] => (share(s) > 0 ? [[s.batch, s.tokens / share(s)]] : []));
  // An engine's replica and the roof may be of different numbers of cards.
  const scale = (numeric(answer.inputs.gpus) || 1) / (measured?.cards ?? (numeric(answer.inputs.gpus) || 1));
  const seen = (measured?.points ?? []).map(({ name, batch, tokensPerSecond }) => {
    const tokens = tokensPerSecond * scale;
    const expected = expectedAt(smooth, batch);
    return { name, at: [batch, tokens] as [number, number], share: expected ? tokens / expected : null };
  });
  const fits = numeric(answer.result.batch_max);
  const pair = (s: Spot): [number, number] => [s.batch, s.tokens];
  const batches = [...rows.map((s) => s.batch), ...seen.map((s) => s.at[0]), ...(fits > 0 ? [fits] : [])];
  const x: [number, number] = [Math.min(1, ...batches), Math.max(8, ...batches) * AIR];
  const inside = smooth.filter((s) => s.batch <= x[1] * AIR);
  const heights = [...inside.map((s) => s.tokens), ...rows.map((s) => s.tokens), ...seen.map((s) => s.at[1])];
  const compute = roof((s) => s.tensor);
  const most = Math.max(...heights) * AIR * AIR;
  // The other roof is shown where it is near enough to mean something.
  const other = (compute[0]?.[1] ?? 0) * AIR;
  return {
    expected: smooth.map(pair),
    memory: roof((s) => s.memory),
    compute,
    rows: rows.map(pair),
    fits: fits > 0 ? fits : null,
    perRequest: tpot && tpot > 0 ? 1 / tpot : null,
    seen,
    x,
    y: [Math.min(...heights) / AIR, other > most && other < most * NEAR ? other : most],
  };
}

/** Powers of ten, with 2 and 5 between where there is room. */
export function logSteps(low: number, high: number, most: number): number[] {
  const all: number[] = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
    for (const digit of [1, 2, 5]) all.push(digit * 10 ** power);
  const inside = all.filter((v) => v >= low * 0.999 && v <= high * 1.001);
  return inside.length <= most ? inside : inside.filter((v) => Math.log10(v) % 1 === 0);
}

/** The picture in words. */
export function sceneText(scene: Scene): string {
  const last = scene.rows[scene.rows.length - 1];
  const words = [
    `Roofline: ${formatValue(scene.rows[0][1], 'tok/s')} at batch ${formatCount(scene.rows[0][0])}, ${formatValue(last[1], 'tok/s')} at batch ${formatCount(last[0])}`,
    scene.fits === null ? '' : `the KV cache fits up to batch ${formatCount(scene.fits)}`,
    ...scene.seen.map(
      (s) =>
        `${shown(s.name, 40)} was seen at batch ${formatValue(Number(s.at[0].toPrecision(3)))} with ${formatValue(Number(s.at[1].toPrecision(4)), 'tok/s')}${s.share === null ? '' : `, ${percent(s.share)} of what is to be expected`}`,
    ),
  ];
  return words.filter(Boolean).join('; ');
}

/** The card. */
export function Roofline(props: {
  answer: CalcAnswer;
  curve: CalcAnswer | null;
  measured: Measured | null;
  tpot: number | null;
}) {
  const { answer, curve, measured, tpot } = props;
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(720);
  useEffect(() => {
    const resize = new ResizeObserver(() => setWidth(Math.max(280, box.current?.clientWidth ?? 720)));
    resize.observe(box.current!);
    return () => resize.disconnect();
  }, []);
  const scene = sceneOf(answer, curve, measured, tpot);
  return (
    <section class="panel roofline" aria-label="Roofline">
      <header>
        <h2>
          Tokens/s against batch{' '}
          <span class="quiet">
            {gpusText(answer)}, log-log
            {measured &&
              ` · ${shown(measured.model || 'no model name', 32)} at ${formatSecond(measured.time, zone.value)}`}
          </span>
        </h2>
        <label class="wish">
          TPOT wanted, s{' '}
          <input
            class="control"
            type="text"
            inputMode="decimal"
            value={param('tpot')}
            placeholder={measured?.tpot ? String(measured.tpot) : 'none'}
            onInput={(e) => setParams({ tpot: e.currentTarget.value || null })}
          />
        </label>
        <Keys measured={measured} tpot={tpot} />
      </header>
      <div ref={box} style={{ minHeight: `${HEIGHT}px` }}>
        {scene ? <Picture scene={scene} width={width} /> : <p class="quiet">There is nothing to draw yet.</p>}
      </div>
      {scene && <Gaps scene={scene} />}
    </section>
  );
}

function Keys({ measured, tpot }: { measured: Measured | null; tpot: number | null }) {
  const keys: [string, string, boolean][] = [
    ['memory', 'memory roof', true],
    ['compute', 'compute roof', true],
    ['expected', 'to be expected', true],
    ['fits', 'KV cache full', true],
    ['wanted', `TPOT ${tpot === null ? '' : formatValue(tpot * 1000, 'ms')}`, tpot !== null],
    ['seen', 'measured', (measured?.points.length ?? 0) > 0],
  ];
  return (
    <span class="keys">
      {keys
        .filter(([, , is]) => is)
        .map(([kind, text]) => (
          <span key={kind}>
            <svg width="18" height="8" aria-hidden="true">
              {kind === 'seen' ? (
                <circle class="seen" cx="9" cy="4" r="3.5" />
              ) : (
                <path class={kind} d="M0 4h18" />
              )}
            </svg>{' '}
            {text}
          </span>
        ))}
    </span>
  );
}

/** How far what was seen is below what is to be expected: the finding. */
function Gaps({ scene }: { scene: Scene }) {
  const shares = scene.seen.flatMap((s) => s.share ?? []);
  if (shares.length === 0) return null;
  const [low, high] = [Math.min(...shares), Math.max(...shares)];
  const text = low === high ? percent(low) : `${percent(low)} to ${percent(high)}`;
  return (
    <p>
      Measured: <b>{text}</b> of what the roof allows at the same batch
      {high > 1 && ', which is more than the roof: the model, its format or the card is another one'}.
    </p>
  );
}

/** How many cards the roof is of. */
function gpusText({ inputs }: CalcAnswer): string {
  const gpus = numeric(inputs.gpus) || 1;
  return gpus === 1 ? 'one GPU' : `${formatCount(gpus)} GPUs`;
}

function Picture({ scene, width }: { scene: Scene; width: number }) {
  const { x, y } = scene;
  const [w, h] = [width - LEFT - RIGHT, HEIGHT - TOP - BOTTOM];
  const px = (v: number) => LEFT + (Math.log(v / x[0]) / Math.log(x[1] / x[0])) * w;
  const py = (v: number) => TOP + h - (Math.log(v / y[0]) / Math.log(y[1] / y[0])) * h;
  const path = (points: [number, number][]) =>
    points
      .filter(([, v]) => v > 0)
      .map(([b, v], at) => `${at === 0 ? 'M' : 'L'}${px(b).toFixed(1)} ${py(v).toFixed(1)}`)
      .join('');
  const xs = logSteps(x[0], x[1], Math.floor(w / 56));
  const ys = logSteps(y[0], y[1], Math.floor(h / 26));
  const labels = ys.map((v) => formatTicks([v])[0]);
  const wanted = scene.perRequest;
  return (
    <svg class="scene" width={width} height={HEIGHT} role="img" aria-label={sceneText(scene)}>
      <clipPath id="calc-frame">
        <rect x={LEFT} y={TOP} width={w} height={h} />
      </clipPath>
      {ys.map((v, at) => (
        <g key={v}>
          <path class="grid" d={`M${LEFT} ${py(v)}h${w}`} />
          <text class="tick" x={LEFT - 8} y={py(v) + 4} text-anchor="end">
            {labels[at]}
          </text>
        </g>
      ))}
      {xs.map((v) => (
        <g key={v}>
          <path class="grid" d={`M${px(v)} ${TOP}v${h}`} />
          <text class="tick" x={px(v)} y={HEIGHT - BOTTOM + 16} text-anchor="middle">
            {formatCount(v)}
          </text>
        </g>
      ))}
      <text class="tick" x={LEFT + w / 2} y={HEIGHT - 4} text-anchor="middle">
        batch, sequences decoded at once
      </text>
      <g clip-path="url(#calc-frame)">
        {scene.fits !== null && (
          <>
            <rect
              class="full"
              x={px(scene.fits)}
              y={TOP}
              width={Math.max(0, LEFT + w - px(scene.fits))}
              height={h}
            />
            <path class="fits" d={`M${px(scene.fits)} ${TOP}v${h}`} />
          </>
        )}
        <path class="expected" d={path(scene.expected)} />
        <path class="memory" d={path(scene.memory)} />
        <path class="compute" d={path(scene.compute)} />
        {wanted !== null && (
          <path
            class="wanted"
            d={path([
              [x[0], x[0] * wanted],
              [x[1], x[1] * wanted],
            ])}
          />
        )}
        {scene.rows.map(([b, v]) => (
          <circle key={b} class="row" cx={px(b)} cy={py(v)} r="3.5">
            <title>{`batch ${formatCount(b)}: ${formatValue(Number(v.toPrecision(4)), 'tok/s')}`}</title>
          </circle>
        ))}
        {scene.seen.map(({ name, at: [b, v], share }) => (
          <circle key={name} class="seen" cx={px(b)} cy={py(v)} r="5">
            <title>{`${shown(name, 60)}: batch ${formatValue(Number(b.toPrecision(3)))}, ${formatValue(Number(v.toPrecision(4)), 'tok/s')}${share === null ? '' : `, ${percent(share)} of the roof`}`}</title>
          </circle>
        ))}
      </g>
      {scene.fits !== null && px(scene.fits) < LEFT + w && (
        <text class="note" x={px(scene.fits) - 6} y={TOP + 12} text-anchor="end">
          KV cache full beyond {formatCount(scene.fits)}
        </text>
      )}
    </svg>
  );
}
