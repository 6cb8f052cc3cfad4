/** All of one span. */
import type { ComponentChildren } from 'preact';
import { Failure } from '../components/failure';
import { Name } from '../components/name';
import { zone } from '../lib/clock';
import { formatCount } from '../lib/number';
import { PHASES, phaseAt } from '../lib/phases';
import { shown, visible } from '../lib/text';
import { formatSecond } from '../lib/time';
import { type SpanAnswer, type SpanKey, writeKey } from './answer';
import { AttributeList } from './attributes';
import { keyOf, placeOf, type Timeline } from './model';
import type { Spans } from './rows';
import { laneName, laneText, lengthText, phaseText } from './words';

/** Links and events in the page. */
const PARTS_MAX = 100;
const EVENT_ATTRIBUTES = 20;
/** Characters of an event's attribute in the page. */
const TEXT_MAX = 4000;

/** The panel; it says what it is for while nothing is chosen. */
export function Detail({ model }: { model: Timeline }) {
  const chosen = model.chosen.value;
  const detail = model.detail.value;
  return (
    <section class="panel detail" aria-label="The chosen span">
      {model.detailError.value !== null ? (
        <Failure error={model.detailError.value} retry={() => void model.loadSpan()} />
      ) : !chosen ? (
        <Nothing model={model} />
      ) : (
        detail && <Whole model={model} {...detail} />
      )}
    </section>
  );
}

/** Before a span is chosen: where the time of the step goes. */
function Nothing({ model }: { model: Timeline }) {
  const spans = model.loaded.value;
  return (
    <>
      <h2>No span is chosen</h2>
      <p class="quiet">
        A click tells all of a span, against the same one of the other ranks. <kbd>n</kbd> and <kbd>N</kbd> go
        to the next and last of its kind.
      </p>
      {spans && spans.answer.step !== null && spans.lanes.length > 0 && (
        <PhaseTable spans={spans} own={model.own.value} />
      )}
    </>
  );
}

/** Time by phase over the processes: the median, and who has most. */
function PhaseTable({ spans, own }: { spans: Spans; own: Float64Array[] }) {
  const rows = PHASES.map((phase, at) => {
    const most = own.reduce((best, times, lane) => (times[at] > own[best][at] ? lane : best), 0);
    const sorted = own.map((times) => times[at]).sort((a, b) => a - b);
    return { phase, most, greatest: own[most][at], median: sorted[sorted.length >> 1] };
  });
  return (
    <table>
      <caption>Time of the step by phase, what lies within a span not counted to it</caption>
      <thead>
        <tr>
          <th scope="col">Phase</th>
          <th scope="col">Median</th>
          {spans.lanes.length > 1 && <th scope="col">Greatest</th>}
        </tr>
      </thead>
      <tbody>
        {rows
          .filter(({ greatest }) => greatest > 0)
          .map(({ phase, most, greatest, median }) => (
            <tr key={phase.key}>
              <th scope="row">{phase.text}</th>
              <td>{lengthText(median)}</td>
              {spans.lanes.length > 1 && (
                <td>
                  {lengthText(greatest)} <span class="quiet">{laneName(spans.lanes[most], 12)}</span>
                </td>
              )}
            </tr>
          ))}
      </tbody>
    </table>
  );
}

/** A time of the span's origin in words. */
function clockText(origin: string, us: number): string {
  const ms = Number(BigInt(origin) / 1_000_000n) + us / 1000;
  const rest = Math.floor(((ms % 1000) + 1000) % 1000);
  const where = zone.value === 'utc' ? ' UTC' : '';
  return `${formatSecond(ms, zone.value)}.${String(rest).padStart(3, '0')}${where}`;
}

/** The start of the chosen span on the ruler, where its clock was moved as in the lanes. */
function startOf(model: Timeline, span: SpanAnswer['span']): number {
  const [spans, at] = [model.loaded.value, model.chosenAt.value];
  if (!spans) return 0;
  if (at >= 0) return spans.start[at];
  return span.start_us + Number(BigInt(span.origin_ns) - spans.origin) / 1000;
}

function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Whole({ model, span, others, texts_hidden }: SpanAnswer & { model: Timeline }) {
  const at = model.chosenAt.value;
  const spans = model.loaded.value;
  const phase = spans && at >= 0 ? spans.phase[at] : phaseAt(null);
  const elsewhere = at < 0 && spans !== null;
  return (
    <>
      <h2>
        <i style={{ background: `var(${PHASES[phase].token})` }} />
        <Name text={span.name} limit={40} />
      </h2>
      <p class="quiet">{laneText(span)}</p>
      {elsewhere && <Elsewhere model={model} iteration={span.iteration} />}
      <dl class="facts">
        <Fact name="Length">
          <b>{lengthText(span.length_us)}</b>
          {span.reversed && <span class="warning"> it ends before it starts: the clock was set back</span>}
        </Fact>
        <Fact name="Other ranks">
          <Others length={span.length_us} others={others} />
        </Fact>
        <Fact name="Start">
          {lengthText(startOf(model, span))} · {clockText(span.origin_ns, span.start_us)}
        </Fact>
        {span.iteration !== null && <Fact name="Step">{formatCount(span.iteration)}</Fact>}
        {spans && at >= 0 && <Fact name="Phase">{phaseText(phase)}</Fact>}
        <Fact name="Status">
          {span.status === 2 ? (
            <span class="crit">
              error
              {span.status_text && (
                <>
                  : <Name text={span.status_text} limit={200} />
                </>
              )}
            </span>
          ) : span.status === 1 ? (
            'ok'
          ) : (
            'not said'
          )}
        </Fact>
        <Fact name="Kind">{shown(span.kind)}</Fact>
        {span.scope && (
          <Fact name="From">
            <Name text={span.scope} limit={40} />
          </Fact>
        )}
        {span.instance && (
          <Fact name="Instance">
            <Name text={span.instance} limit={40} />
          </Fact>
        )}
      </dl>
      <Links model={model} span={span} />
      <Events model={model} span={span} />
      {span.parts_left_out > 0 && (
        <p class="quiet">
          {formatCount(span.parts_left_out)} more events and links were too many to be kept.
        </p>
      )}
      <h3>Attributes</h3>
      {texts_hidden && (
        <p class="quiet">
          Texts of prompts and completions are kept of this span; only a token of an admin may read them.
        </p>
      )}
      <AttributeList
        key={`${span.instance} ${span.start_us} ${span.name}`}
        attributes={span.attributes}
        label="Attributes"
      />
    </>
  );
}

/** The chosen span is not among those that were read. */
function Elsewhere({ model, iteration }: { model: Timeline; iteration: number | null }) {
  const shownStep = model.loaded.value?.answer.step ?? null;
  if (iteration !== null && iteration !== shownStep)
    return (
      <p class="warning">
        It is not in what is shown.{' '}
        <button type="button" class="link" onClick={() => model.chooseKey(model.chosen.peek()!, iteration)}>
          Open step {formatCount(iteration)}
        </button>
      </p>
    );
  return <p class="warning">It is not among the spans that are shown.</p>;
}

function Others({ length, others }: { length: number; others: SpanAnswer['others'] }) {
  if (!others || others.ranks === 0) return <span class="absent">— no other rank has it in this step</span>;
  const { ranks, median_us, min_us, max_us } = others;
  const ratio = median_us > 0 ? length / median_us : null;
  return (
    <>
      {ratio !== null && <b class={ratio >= 1.05 ? 'warning' : ''}>{ratio.toFixed(2)} × </b>}
      median {lengthText(median_us)} of {formatCount(ranks)}; {lengthText(min_us)} – {lengthText(max_us)}
    </>
  );
}

function Links({ model, span }: { model: Timeline; span: SpanAnswer['span'] }) {
  const chosen = model.chosen.value;
  const { links, linked_from, parent } = span;
  if (links.length + linked_from.length === 0 && !parent) return null;
  const to = (trace: string, id: string) => model.chooseKey(linkedKey(model, trace, id));
  return (
    <>
      <h3>Links</h3>
      <ul>
        {parent && chosen && (
          <li>
            within{' '}
            <button
              type="button"
              class="link"
              onClick={() => model.chooseKey({ ...chosen, id: parent }, null)}
            >
              {nameOf(model, chosen.trace, parent, chosen) ?? <code>{shown(parent, 16)}</code>}
            </button>
          </li>
        )}
        {links.slice(0, PARTS_MAX).map(({ trace, id }) => (
          <li key={`${trace} ${id}`}>
            points to{' '}
            <button type="button" class="link" onClick={() => to(trace, id)}>
              {nameOf(model, trace, id, null) ?? <code>{shown(id, 16)}</code>}
            </button>
          </li>
        ))}
        {linked_from.slice(0, PARTS_MAX).map(({ name, rank, ...key }) => (
          <li key={writeKey(key)}>
            pointed to by{' '}
            <button type="button" class="link" onClick={() => model.chooseKey(key)}>
              <Name text={name} limit={32} />
            </button>{' '}
            <span class="quiet">{laneName({ rank, instance: key.instance })}</span>
          </li>
        ))}
        <Beyond count={links.length + linked_from.length} most={PARTS_MAX} />
      </ul>
    </>
  );
}

function Beyond({ count, most }: { count: number; most: number }) {
  return count > most ? <li class="quiet">and {formatCount(count - most)} more</li> : null;
}

/**
 * A span of what was read, by its ids; another rank or an earlier life may have equal ones, then the own one
 * is meant.
 */
function found(model: Timeline, trace: string, id: string): number {
  const spans = model.loaded.value;
  if (!spans) return -1;
  const { spans: columns, traces } = spans.answer;
  const chosen = model.chosen.value;
  const own = chosen ? placeOf(spans, { ...chosen, trace, id }) : -1;
  if (own >= 0) return own;
  let any = -1;
  for (let at = columns.id.indexOf(id); at >= 0; at = columns.id.indexOf(id, at + 1))
    if (traces[columns.trace[at]] === trace) any = at;
  return any;
}

function linkedKey(model: Timeline, trace: string, id: string): SpanKey {
  const at = found(model, trace, id);
  const spans = model.loaded.peek();
  if (at >= 0 && spans) return keyOf(spans, at);
  return { instance: '', incarnation: null, ...model.chosen.peek(), trace, id };
}

function nameOf(model: Timeline, trace: string, id: string, of: SpanKey | null): string | null {
  const spans = model.loaded.value;
  if (!spans) return null;
  const at = of ? placeOf(spans, { ...of, trace, id }) : found(model, trace, id);
  return at < 0 ? null : shown(spans.answer.names[spans.answer.spans.name[at]], 40);
}

/** A text such as a stack trace, line by line. */
function linesOf(text: string): string {
  const cut = text.slice(0, TEXT_MAX).split('\n').map(visible).join('\n');
  return text.length > TEXT_MAX ? `${cut}…` : cut;
}

function Events({ model, span }: { model: Timeline; span: SpanAnswer['span'] }) {
  if (span.events.length === 0) return null;
  return (
    <>
      <h3>Events</h3>
      <ul>
        {span.events.slice(0, PARTS_MAX).map((event, at) => (
          <li key={`${at} ${event.name}`}>
            <button
              type="button"
              class="link"
              onClick={() => model.centre(startOf(model, span) + event.at_us - span.start_us)}
              title="Show this time"
            >
              {lengthText(startOf(model, span) + event.at_us - span.start_us)}
            </button>{' '}
            <Name text={event.name} limit={60} />
            {event.attributes.slice(0, EVENT_ATTRIBUTES).map(([key, value]) => (
              <figure key={key}>
                <figcaption>{shown(key, 60)}</figcaption>
                <pre>{linesOf(String(value))}</pre>
              </figure>
            ))}
          </li>
        ))}
        <Beyond count={span.events.length} most={PARTS_MAX} />
      </ul>
    </>
  );
}
