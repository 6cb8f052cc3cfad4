/** Beside the queries: the metric that is asked for, and what costs series. */
import { useEffect, useState } from 'preact/hooks';
import { TrustIcon } from '../components/icons';
import { Name } from '../components/name';
import { setParams } from '../lib/address';
import { formatCount } from '../lib/number';
import { visible } from '../lib/text';
import { askDetails, type Counted, type Details, selectorOf } from './catalogue';
import type { Explore } from './model';
import { metricsIn } from './words';

const BARS = 10;

/** The side. */
export function Side({ explore }: { explore: Explore }) {
  const names = new Set(explore.known.value.keys());
  const metrics = [...new Set(explore.drafts.value.flatMap((q) => metricsIn(q, names)))];
  const census = explore.census.value;
  return (
    <aside class="side" aria-label="About the metrics">
      {metrics.slice(0, 3).map((name) => (
        <MetricCard key={name} explore={explore} name={name} />
      ))}
      {census && (
        <section class="panel" aria-label="What costs series">
          <h2>
            What costs series <span class="quiet">{formatCount(census.headStats.numSeries)} in all</span>
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
        </section>
      )}
    </aside>
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

function MetricCard({ explore, name }: { explore: Explore; name: string }) {
  const metric = explore.known.value.get(name)!;
  const [details, setDetails] = useState<Details | null>(null);
  useEffect(() => {
    let wanted = true;
    askDetails(name).then(
      (found) => wanted && setDetails(found),
      // What is known already stays; the details are only more of it.
      () => {},
    );
    return () => {
      wanted = false;
    };
  }, [name]);
  return (
    <section class="panel metric-card" aria-label={`Metric ${visible(name)}`}>
      <h2 class="mono">
        <Name text={name} />
      </h2>
      <p class="badges">
        {details && (metric.help || details.caveat) && (
          <span class="badge">
            <TrustIcon half={details.caveat !== ''} /> {details.caveat ? 'has a caveat' : 'as it is'}
          </span>
        )}
        {metric.unit && <span class="badge">{visible(metric.unit)}</span>}
        {metric.kind && <span class="badge">{visible(metric.kind)}</span>}
      </p>
      <p>{metric.help ? visible(metric.help) : <span class="quiet">Nobody described this metric.</span>}</p>
      {details?.caveat && (
        <p class="caveat">
          <b>How it misleads.</b> {visible(details.caveat)}
        </p>
      )}
      <dl>
        <div>
          <dt>Series</dt>
          <dd>{metric.series === null ? '—' : formatCount(metric.series)}</dd>
        </div>
        {details?.labels.map((label) => (
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
