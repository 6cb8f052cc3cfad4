/** What is stored: all metrics, and what costs how many series. */
import { useEffect, useState } from 'preact/hooks';
import { Failure } from '../components/failure';
import { Name } from '../components/name';
import { param, setParams } from '../lib/address';
import { isAbort, tokenEntered } from '../lib/api';
import { zone } from '../lib/clock';
import { formatCount, formatValue } from '../lib/number';
import { visible } from '../lib/text';
import { formatFull } from '../lib/time';
import {
  askCensus,
  askMetrics,
  type Census,
  type Counted,
  type Metrics,
  type Population,
  selectorOf,
} from './catalogue';
import type { Explore } from './model';
import { Bars, RefusedLine } from './side';

const WAIT_MS = 150;

/** Every metric with unit, type and help; a click asks for it. */
export function MetricsView({ explore }: { explore: Explore }) {
  const [filter, setFilter] = useState('');
  const [found, setFound] = useState<Metrics | null>(null);
  useEffect(() => {
    const controller = new AbortController();
    const wait = setTimeout(
      () => {
        askMetrics(filter.trim(), controller.signal).then(setFound, (error: unknown) => {
          if (!isAbort(error)) explore.catalogueError.value = error;
        });
      },
      found === null ? 0 : WAIT_MS,
    );
    return () => {
      clearTimeout(wait);
      controller.abort();
    };
  }, [filter, tokenEntered.value]);
  if (!found) return <p class="nothing">Reading names.</p>;
  return (
    <section class="panel wide" aria-label="Metrics">
      <h2>
        Metrics <span class="quiet">{formatCount(found.total)}</span>
        <input
          type="search"
          placeholder="Name or meaning"
          aria-label="Filter metrics"
          value={filter}
          onInput={(e) => setFilter(e.currentTarget.value)}
        />
      </h2>
      <div class="scroll" role="region" aria-label="List of metrics" tabIndex={0}>
        <table>
          <thead>
            <tr>
              <th scope="col">metric</th>
              <th scope="col">unit</th>
              <th scope="col">type</th>
              <th scope="col" class="number">
                series
              </th>
              <th scope="col">what it measures</th>
            </tr>
          </thead>
          <tbody>
            {found.metrics.map((m) => (
              <tr key={m.name}>
                <th scope="row">
                  <button type="button" class="link mono" onClick={() => explore.open(selectorOf(m.name))}>
                    <Name text={m.name} limit={64} />
                  </button>
                </th>
                <td>{visible(m.unit)}</td>
                <td>{m.type === 'unknown' ? '' : visible(m.type)}</td>
                <td class="number">{formatCount(m.series)}</td>
                <td>
                  {m.help ? visible(m.help) : <span class="quiet">not described</span>}
                  {m.caveat && <span class="quiet"> How it misleads: {visible(m.caveat)}</span>}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {found.total > found.metrics.length && (
        <p class="quiet">The first {found.metrics.length}: filter by name to see the others.</p>
      )}
    </section>
  );
}

/** Which metrics, labels and pairs cost how many series, of all or of one metric. */
export function CardinalityView({ explore }: { explore: Explore }) {
  const census = explore.census.value;
  const metric = param('metric');
  if (!census) return <p class="nothing">Counting series.</p>;
  const { headStats: head } = census;
  return (
    <>
      <p class="facts">
        <span>
          <b>{formatCount(head.numSeries)}</b> series
        </span>
        <span>
          <b>{formatCount(head.numLabelPairs)}</b> label pairs
        </span>
        {head.minTime <= head.maxTime && (
          <span>
            from {formatFull(head.minTime, zone.value)} to {formatFull(head.maxTime, zone.value)}
          </span>
        )}
      </p>
      {metric && <OneMetric key={metric} name={metric} explore={explore} />}
      <div class="costs">
        <Cost
          title="Series of a metric"
          rows={census.seriesCountByMetricName}
          open={(name) => setParams({ metric: name })}
        />
        <Cost
          title="Series with a label"
          rows={census.seriesCountByLabelName}
          open={(name) => explore.open(`sort_desc(count by (__name__) ({${name}!=""}))`)}
        />
        <Cost
          title="Values of a label"
          rows={census.labelValueCountByLabelName}
          open={(name) => explore.open(`sort_desc(count by (${name}) ({${name}!=""}))`)}
        />
        <Cost
          title="Series with a label and value"
          rows={census.seriesCountByLabelValuePair}
          open={(pair) => explore.open(pairSelector(pair))}
        />
        <Cost title="Bytes of a label's values" rows={census.memoryInBytesByLabelName} bytes />
        {census.seriesCountByPopulation.length > 0 && <Bounds rows={census.seriesCountByPopulation} />}
        {census.refusedLabels.length > 0 && (
          <section class="panel" aria-label="Refused labels">
            <h2>
              Refused labels <span class="quiet">since the server started</span>
            </h2>
            {census.refusedLabels.map((label) => (
              <RefusedLine key={`${label.door} ${label.name} ${label.job}`} label={label} />
            ))}
          </section>
        )}
      </div>
    </>
  );
}

/** What one metric costs. */
function OneMetric({ name, explore }: { name: string; explore: Explore }) {
  const [census, setCensus] = useState<Census | null>(null);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    let wanted = true;
    askCensus(name).then(
      (found) => wanted && setCensus(found),
      (failed: unknown) => wanted && setError(failed),
    );
    return () => {
      wanted = false;
    };
  }, [name]);
  return (
    <section class="one" aria-label={`Cost of ${visible(name)}`}>
      <p class="facts">
        <code>
          <Name text={name} limit={64} />
        </code>
        {census && (
          <span>
            <b>{formatCount(census.headStats.numSeries)}</b> series
          </span>
        )}
        <button type="button" class="link" onClick={() => explore.open(selectorOf(name))}>
          Ask for it
        </button>
        <button type="button" class="link" onClick={() => setParams({ metric: null })}>
          All metrics
        </button>
      </p>
      {error !== null && <Failure error={error} retry={() => setParams({ metric: name })} />}
      {census && (
        <div class="costs">
          <Cost
            title="Values of its labels"
            rows={census.labelValueCountByLabelName.filter((row) => row.name !== '__name__')}
            open={(label) => explore.open(`sort_desc(count by (${label}) (${selectorOf(name)}))`)}
          />
          <Cost
            title="Its series by label and value"
            rows={census.seriesCountByLabelValuePair.filter((row) => !row.name.startsWith('__name__='))}
          />
        </div>
      )}
    </section>
  );
}

/** How full the bounds on series are. */
function Bounds({ rows }: { rows: Population[] }) {
  const word = (row: Population) =>
    row.runs
      ? [row.organization, row.workspace, row.project].filter(Boolean).join(' / ') || 'no project'
      : 'no run';
  return (
    <section class="panel" aria-label="Bounds on series">
      <h2>
        Bounds on series <span class="quiet">of each project, and of what belongs to no run</span>
      </h2>
      <ul class="bars">
        {rows.slice(0, COST_ROWS).map((row) => (
          <li key={word(row)}>
            <span>
              <Name text={word(row)} limit={44} />
            </span>
            <b>
              {formatCount(row.value)} of {formatCount(row.limit)}
            </b>
            <span class="bar" style={{ '--share': Math.min(1, row.value / row.limit) }} aria-hidden="true" />
          </li>
        ))}
      </ul>
    </section>
  );
}

/** The selector of `name=value`, as the census writes a pair. */
export function pairSelector(pair: string): string {
  const at = pair.indexOf('=');
  return `count by (__name__) ({${pair.slice(0, at)}=${JSON.stringify(pair.slice(at + 1))}})`;
}

const COST_ROWS = 100;

function Cost(props: { title: string; rows: Counted[]; open?: (name: string) => void; bytes?: boolean }) {
  const rows = props.rows.slice(0, COST_ROWS);
  const sum = props.rows.reduce((all, r) => all + r.value, 0);
  return (
    <section class="panel" aria-label={props.title}>
      <h2>
        {props.title}
        {props.bytes && <span class="quiet">{formatValue(sum, 'B')}</span>}
      </h2>
      <div class="scroll" role="region" aria-label={`List: ${props.title}`} tabIndex={0}>
        <Bars rows={rows} open={props.open} />
      </div>
      {props.rows.length > rows.length && <p class="quiet">The first {COST_ROWS}.</p>}
    </section>
  );
}
