/** The chart of one query. */
import { useComputed, useSignal } from '@preact/signals';
import { useMemo, useRef } from 'preact/hooks';
import { zeroBelongs } from '../charts/extent';
import { stepCursor, zoomAt } from '../charts/gestures';
import { entriesOf } from '../charts/legend';
import { summary } from '../charts/summary';
import { LegendList, Readout } from '../components/chart_legend';
import { WarnIcon } from '../components/icons';
import { useOverlayPlot } from '../components/use_overlay_plot';
import { zone } from '../lib/clock';
import { formatCount } from '../lib/number';
import { visible } from '../lib/text';
import { formatSpan } from '../lib/time';
import { type Asked, type Explore, letterOf } from './model';
import { unitOf } from './unit';

const HEAD_ENTRIES = 3;
const LEGEND_HEIGHT = 40;

/** What keys do to the chart that is pointed at. */
export interface CardKeys {
  step: (by: number) => void;
  zoom: (factor: number) => void;
}

/** What a card needs. */
export interface CardProps {
  explore: Explore;
  asked: Asked;
  at: number;
  height: number;
  point: (keys: CardKeys) => void;
}

/** The card. */
export function QueryCard({ explore, asked, at, height, point }: CardProps) {
  const root = useRef<HTMLElement>(null);
  const body = useRef<HTMLDivElement>(null);
  const hover = useSignal<string | null>(null);
  const hidden = useSignal<ReadonlySet<string>>(new Set());
  const unit = useComputed(() => unitOf(asked.query, explore.known.value)).value;
  const drawn = asked.answer.value;
  const shape = drawn?.shape ?? null;
  const entries = useMemo(() => (shape ? entriesOf(shape) : []), [shape]);
  const below = entries.length > HEAD_ENTRIES;
  const zero = zeroBelongs(
    asked.query.trim(),
    unit,
    /\b(rate|increase)\s*\(/.test(asked.query) ? 'counter' : '',
  );
  useOverlayPlot(explore, asked.answer, root, body, {
    hidden,
    hover,
    unit,
    zero,
    axis: 'time',
    envelope: false,
  });
  const keys: CardKeys = {
    step: (by) => stepCursor(explore, 'time', asked.answer.peek()?.shape ?? null, by),
    zoom: (factor) => zoomAt(explore, 'time', factor),
  };
  const letter = letterOf(at);
  const stale = drawn !== null && (asked.running.value || asked.error.value !== null);
  return (
    <section
      ref={root}
      class="card"
      style={{ '--body': `${height}px` }}
      aria-label={`Chart of query ${letter}`}
      data-query={letter}
      tabIndex={0}
      onPointerMove={(e) => (e.movementX || e.movementY) && point(keys)}
      onFocusCapture={() => point(keys)}
    >
      <header>
        <h2>
          {letter} <code class="quiet">{visible(asked.query)}</code>
        </h2>
        {unit && <span class="unit">{unit}</span>}
        <span class="badges">
          {drawn && <span class="badge">step {formatSpan(drawn.step / 1000)}</span>}
          {shape && shape.total > entries.length && (
            <span class="badge">
              {entries.length} of {formatCount(shape.total)} shown
              {drawn &&
                drawn.series.length < shape.total &&
                `, of the first ${formatCount(drawn.series.length)}`}
            </span>
          )}
          {asked.error.value !== null && drawn && <span class="badge">from before the error</span>}
        </span>
        {drawn && <Notes drawn={drawn} />}
        <span class="readouts">
          {shape &&
            !below &&
            entries.map((entry) => (
              <Readout
                key={entry.id}
                board={explore}
                axis="time"
                shape={shape}
                entry={entry}
                unit={unit}
                alone={entries.length === 1}
                hover={(on) => (hover.value = on && entries.length > 1 ? entry.id : null)}
              />
            ))}
        </span>
      </header>
      <div
        class={stale && asked.error.value !== null ? 'plot old' : 'plot'}
        ref={body}
        role="img"
        aria-label={summary(`Query ${letter}`, unit, shape, 'time', explore.range.value, zone.value)}
        style={below ? { bottom: `${LEGEND_HEIGHT}px` } : undefined}
      >
        {drawn && drawn.series.length === 0 && <p class="none">no series in this range</p>}
        {shape && entries.length > 0 && !shape.lines.some((l) => l.raw.some(Number.isFinite)) && (
          <p class="none">no finite value: only NaN or infinities came</p>
        )}
      </div>
      {shape && below && (
        <LegendList
          board={explore}
          axis="time"
          shape={shape}
          entries={entries}
          unit={unit}
          hover={(id) => (hover.value = id)}
          hidden={hidden.value}
          setHidden={(next) => (hidden.value = next)}
        />
      )}
    </section>
  );
}

/** Warnings and infos of the engine, as badges that tell them whole. */
function Notes({ drawn }: { drawn: { warnings: string[]; infos: string[] } }) {
  const { warnings, infos } = drawn;
  const one = (texts: string[], word: string, className: string) =>
    texts.length > 0 && (
      <details class={`notes ${className}`}>
        <summary class="badge">
          {className === 'warning' && <WarnIcon />} {texts.length} {word}
          {texts.length > 1 ? 's' : ''}
        </summary>
        <ul class="popover">
          {texts.map((text) => (
            <li key={text}>{visible(text.replace(/^PromQL (warning|info): /, ''))}</li>
          ))}
        </ul>
      </details>
    );
  return (
    <>
      {one(warnings, 'warning', 'warning')}
      {one(infos, 'info', 'info')}
    </>
  );
}
