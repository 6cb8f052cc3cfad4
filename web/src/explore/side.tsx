/** Beside the queries: the metric that is asked for, and what costs series. */
import { TrustIcon, WarnIcon } from '../components/icons';
import { Name } from '../components/name';
import { setParams } from '../lib/address';
import { formatCount } from '../lib/number';
import { visible } from '../lib/text';
import { type Counted, type Population, type RefusedLabel, selectorOf } from './catalogue';
import type { ExplainedMetric } from './explain';
import type { Explore } from './model';

const BARS = 10;
const METRICS_MAX = 3;
const LABELS_MAX = 6;
const REFUSED_MAX = 2;

/** The side. */
export function Side({ explore }: { explore: Explore }) {
  const metrics = new Map(explore.latest.value.flatMap((e) => e.metrics).map((m) => [m.name, m]));
  const census = explore.census.value;
  return (
    <aside class="side" aria-label="About the metrics">
      {[...metrics.values()].slice(0, METRICS_MAX).map((metric) => (
        <MetricCard key={metric.name} metric={metric} />
      ))}
      {census && (
        <section class="panel" aria-label="What costs series">
          <h2>
            What costs series{' '}
            <span class="quiet">{costOf(census.headStats.numSeries, census.seriesCountByPopulation)}</span>
            <span class="right">
              <button type="button" class="link" onClick={() => setParams({ view: 'cardinality' })}>
                All
              </button>
            </span>
          </h2>
          <Bars
            rows={census.seriesCountByMetricName.slice(0, BARS)}
            open={(name) => explore.open(selectorOf(name))}
          />
          {census.refusedLabels.slice(0, REFUSED_MAX).map((label) => (
            <RefusedLine key={`${label.door} ${label.name} ${label.job}`} label={label} />
          ))}
        </section>
      )}
    </aside>
  );
}

/** How many series there are, of how many where all share one bound. */
function costOf(series: number, populations: Population[]): string {
  if (populations.length !== 1) return `${formatCount(series)} in all`;
  return `${formatCount(populations[0].value)} of ${formatCount(populations[0].limit)}`;
}

/** A label that points are refused for. */
export function RefusedLine({ label }: { label: RefusedLabel }) {
  const { name, door, job, value } = label;
  return (
    <p class="refused">
      <WarnIcon />
      <span>
        Label <code>{visible(name)}</code> refused {formatCount(value)} {value === 1 ? 'time' : 'times'} from{' '}
        {door === 'push' ? 'project' : 'job'} <code>{visible(job || 'unnamed')}</code>: each of its values
        would be a series.
      </span>
    </p>
  );
}

/** Names with a bar each; a click opens one. */
export function Bars({ rows, open }: { rows: Counted[]; open?: (name: string) => void }) {
  const most = Math.max(1, ...rows.map((r) => r.value));
  return (
    <ul class="bars">
      {rows.map(({ name, value }) => (
        <li key={name}>
          {open ? (
            <button type="button" class="mono" onClick={() => open(name)}>
              <Name text={name} limit={44} />
            </button>
          ) : (
            <span class="mono">
              <Name text={name} limit={44} />
            </span>
          )}
          <b>{formatCount(value)}</b>
          <span class="bar" style={{ '--share': value / most }} aria-hidden="true" />
        </li>
      ))}
    </ul>
  );
}

function MetricCard({ metric }: { metric: ExplainedMetric }) {
  const { name, type, unit, help, caveat, labels } = metric;
  const kind = type === 'unknown' ? '' : type;
  return (
    <section class="panel metric-card" aria-label={`Metric ${visible(name)}`}>
      <h2 class="mono">
        <Name text={name} />
      </h2>
      {(help || caveat || unit || kind) && (
        <p class="badges">
          {(help || caveat) && (
            <span class="badge">
              <TrustIcon level={caveat ? 'B' : 'A'} /> {caveat ? 'has a caveat' : 'as it is'}
            </span>
          )}
          {unit && <span class="badge">{visible(unit)}</span>}
          {kind && <span class="badge">{visible(kind)}</span>}
        </p>
      )}
      <p>{help ? visible(help) : <span class="quiet">Nobody described this metric.</span>}</p>
      {caveat && (
        <p class="caveat">
          <b>How it misleads.</b> {visible(caveat)}
        </p>
      )}
      <dl>
        <div>
          <dt>Series</dt>
          <dd>{formatCount(metric.series)}</dd>
        </div>
        {labels.slice(0, LABELS_MAX).map((label) => (
          <div key={label.name}>
            <dt>
              <Name text={label.name} limit={28} />
            </dt>
            <dd>
              {formatCount(label.values)} {label.values === 1 ? 'value' : 'values'}
            </dd>
          </div>
        ))}
      </dl>
    </section>
  );
}
