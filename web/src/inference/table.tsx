/** The models, one a row: what their users get, and what they have. */
import type { ComponentChildren } from 'preact';
import { CritIcon, StateIcon, WarnIcon } from '../components/icons';
import { Name } from '../components/name';
import { open, setParams } from '../lib/address';
import { inferencePath } from '../lib/route';
import { visible } from '../lib/text';
import type { Figure, Model } from './answers';
import type { Inference } from './model';
import {
  COLUMNS,
  type Column,
  figureText,
  goodputOf,
  misses,
  modelName,
  type Need,
  needOf,
  nextOrder,
  toKnow,
} from './words';

/** Models that are listed at most. */
const ROWS_MAX = 300;

/** A model's page, with the range and what else is chosen; each replica for itself where it is wanted. */
export function openModel(model: string, split = false): void {
  const now = new URLSearchParams(window.location.search);
  now.delete('target');
  if (split) now.set('split', 'replicas');
  const query = now.toString();
  open(inferencePath(model) + (query ? `?${query}` : ''));
}

const NEEDS: Record<Need, string> = {
  crit: 'all replicas are down',
  warn: 'needs a look',
  ok: 'nothing to do',
  info: 'nothing known',
};

/** The shape of a need. */
export function NeedIcon({ need }: { need: Need }) {
  return (
    <span class={`need ${need}`} role="img" aria-label={NEEDS[need]} title={NEEDS[need]}>
      {need === 'crit' ? <CritIcon /> : need === 'warn' ? <WarnIcon /> : null}
      {need === 'ok' && <StateIcon state="finished" />}
      {need === 'info' && <StateIcon state="stale" />}
    </span>
  );
}

/** What is not known, with the sentence that says why. */
export function Unknown({ reason }: { reason: string | null | undefined }) {
  return (
    <span class="absent" title={visible(reason ?? 'not known')}>
      —<span class="unseen"> unknown: {visible(reason ?? 'nothing was sent')}</span>
    </span>
  );
}

/** A figure, or a dash with its reason. */
export function Cell({ figure, write }: { figure: Figure | undefined; write: (value: number) => string }) {
  const text = figureText(figure, write);
  if (text === null) return <Unknown reason={figure?.reason} />;
  const coverage = figure?.coverage ?? null;
  const partial = coverage !== null && coverage < 0.9;
  return (
    <span
      class={partial ? 'partial' : undefined}
      title={coverage === null ? undefined : `${Math.round(coverage * 100)} % of these minutes observed`}
    >
      {text}
    </span>
  );
}

function FigureCell({ model, column }: { model: Model; column: Column }) {
  const { values } = model;
  const first = values[column.key];
  if (column.key === 'goodput_lower') return <Goodput model={model} />;
  if (!column.and)
    return (
      <td class={`number${column.strong ? ' strong' : ''}${misses(model, column) ? ' crit strong' : ''}`}>
        <Cell figure={first} write={column.write} />
      </td>
    );
  return (
    <td class="number">
      <Cell figure={first} write={column.write} />
      {figureText(first, column.write) !== null && (
        <>
          {' / '}
          <Cell figure={values[column.and]} write={column.write} />
        </>
      )}
    </td>
  );
}

/** Share of the bar that is drawn: goodput below a half is a half to the eye. */
const BAR_FROM = 0.5;

/** Between which bounds goodput is, with the target as a tick. */
function Goodput({ model }: { model: Model }) {
  const bounds = goodputOf(model);
  if (!bounds)
    return (
      <td class="number">
        <Unknown reason={model.values.goodput_lower?.reason} />
      </td>
    );
  const { low, high, target, tone } = bounds;
  const place = (share: number) => `${(Math.max(0, share - BAR_FROM) / (1 - BAR_FROM)) * 100}%`;
  const text = low.toFixed(2) === high.toFixed(2) ? low.toFixed(2) : `${low.toFixed(2)}–${high.toFixed(2)}`;
  return (
    <td class={`number goodput ${tone}`} title={target === null ? undefined : `target ${target.toFixed(2)}`}>
      {tone ? <b>{text}</b> : text}
      <span class="bounds" aria-hidden="true">
        <i style={{ left: place(low), right: `calc(100% - ${place(high)})` }} />
        {target !== null && <u style={{ left: place(target) }} />}
      </span>
    </td>
  );
}

/** Up of all, with the share that is down hatched. */
function Up({ model }: { model: Model }) {
  const { up, total } = model.targets;
  const down = model.replicas.find((r) => !r.up);
  const share = total > 0 ? (up / total) * 100 : 0;
  return (
    <td class={`number up${up < total ? ' warning' : ''}`}>
      <span title={down ? `${visible(down.instance)}: ${visible(down.error ?? 'down')}` : undefined}>
        {up < total ? (
          <b>
            {up} / {total}
          </b>
        ) : (
          `${up} / ${total}`
        )}
      </span>
      {up < total && (
        <span class="bar" aria-hidden="true">
          <i style={{ width: `${share}%` }} />
        </span>
      )}
    </td>
  );
}

function Row({ page, model }: { page: Inference; model: Model }) {
  const chosen = page.chosen.value?.model === model.model;
  const click = (event: MouseEvent) => {
    if ((event.target as Element).closest('a')) return;
    openModel(model.model, event.shiftKey);
  };
  const follow = (event: MouseEvent) => {
    if (event.button !== 0 || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    openModel(model.model, event.shiftKey);
  };
  return (
    <tr class={chosen ? 'chosen' : ''} onClick={click}>
      <th scope="row">
        <NeedIcon need={needOf(model)} />
        <a href={inferencePath(model.model)} aria-current={chosen ? 'true' : undefined} onClick={follow}>
          {model.model === '' ? (
            <i title="The engine's page names no model">{modelName('')}</i>
          ) : (
            <Name text={model.model} limit={32} />
          )}
        </a>
      </th>
      <td>
        <Name text={model.engines.join(', ')} limit={20} />
      </td>
      <td class="number">{model.gpus === null ? <Unknown reason={model.gpus_reason} /> : model.gpus}</td>
      <Up model={model} />
      {COLUMNS.map((column) => (
        <FigureCell key={column.key} model={model} column={column} />
      ))}
      <td class="know">{toKnow(model)}</td>
    </tr>
  );
}

/** The head of a column that may be sorted by. */
function Head(props: {
  page: Inference;
  by: string;
  number?: boolean;
  title?: string;
  children: ComponentChildren;
}) {
  const { page, by, number, title, children } = props;
  const order = page.order.value;
  const now = order?.key === by ? (order.descending ? 'descending' : 'ascending') : undefined;
  return (
    <th scope="col" class={number ? 'number' : undefined} title={title} aria-sort={now}>
      <button type="button" onClick={() => setParams({ sort: nextOrder(order, by) })}>
        {children}
        {now && <span aria-hidden="true">{now === 'descending' ? ' ↓' : ' ↑'}</span>}
      </button>
    </th>
  );
}

/** The table. */
export function ModelTable({ page }: { page: Inference }) {
  return (
    <section class="panel models" aria-label="Models">
      <div class="scroll" tabIndex={0} role="region" aria-label="Table of models">
        <table>
          <thead>
            <tr>
              <Head page={page} by="model">
                Model
              </Head>
              <th scope="col">Engine</th>
              <Head page={page} by="gpus" number title="Cards that serve it">
                GPUs
              </Head>
              <Head page={page} by="up" number title="Replicas that answered last">
                Up
              </Head>
              {COLUMNS.map((column) => (
                <Head key={column.key} page={page} by={column.key} number title={column.hint}>
                  {column.title} {column.unit}
                </Head>
              ))}
              <th scope="col">To know</th>
            </tr>
          </thead>
          <tbody>
            {page.models.value.slice(0, ROWS_MAX).map((model) => (
              <Row key={model.model} page={page} model={model} />
            ))}
          </tbody>
        </table>
        {page.models.value.length > ROWS_MAX && (
          <p class="quiet nothing-here">
            The first {ROWS_MAX} are listed; the address of any other shows it: /inference/name.
          </p>
        )}
        {page.engines.value?.next && (
          <p class="quiet nothing-here">
            These are the first by name of {page.engines.value.models_total.toLocaleString('en')} models.
          </p>
        )}
      </div>
    </section>
  );
}
