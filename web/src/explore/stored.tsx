/** What is stored: all metrics, and what costs how many series. */
import { useState } from 'preact/hooks';
import { Name } from '../components/name';
import { zone } from '../lib/clock';
import { formatCount, formatValue } from '../lib/number';
import { visible } from '../lib/text';
import { formatFull } from '../lib/time';
import { type Counted, selectorOf } from './catalogue';
import type { Explore } from './model';
import { Bars } from './side';

const ROWS = 500;

/** Every metric with unit, kind and help; a click asks for it. */
export function MetricsView({ explore }: { explore: Explore }) {
  const [filter, setFilter] = useState('');
  const metrics = explore.metrics.value;
  if (!metrics) return <p class="nothing">Reading names.</p>;
  const wanted = filter.trim().toLowerCase();
  const found = metrics.filter((m) => `${m.name} ${m.help}`.toLowerCase().includes(wanted));
  return (
    <section class="panel wide" aria-label="Metrics">
      <h2>
        Metrics{' '}
        <span class="quiet">
          {formatCount(found.length)} of {formatCount(metrics.length)}
        </span>
        <input
          type="search"
          placeholder="Filter metrics"
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
              <th scope="col">kind</th>
              <th scope="col" class="number">
                series
              </th>
              <th scope="col">what it measures</th>
            </tr>
          </thead>
          <tbody>
            {found.slice(0, ROWS).map((m) => (
              <tr key={m.name}>
                <th scope="row">
                  <button type="button" class="link mono" onClick={() => explore.open(selectorOf(m.name))}>
                    <Name text={m.name} limit={64} />
                  </button>
                </th>
                <td>{visible(m.unit)}</td>
                <td>{visible(m.kind)}</td>
                <td class="number">{m.series === null ? '—' : formatCount(m.series)}</td>
                <td>{m.help ? visible(m.help) : <span class="quiet">not described</span>}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {found.length > ROWS && <p class="quiet">The first {ROWS}: filter by name to see the others.</p>}
    </section>
  );
}

/** Which metrics, labels and pairs cost how many series. */
export function CardinalityView({ explore }: { explore: Explore }) {
  const census = explore.census.value;
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
      <div class="costs">
        <Cost
          title="Series of a metric"
          rows={census.seriesCountByMetricName}
          open={(name) => explore.open(selectorOf(name))}
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
      </div>
    </>
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
