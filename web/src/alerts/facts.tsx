/** The chosen alert: where its labels lead, and whom it was told to. */
import { Link } from '../components/link';
import { Name } from '../components/name';
import { setParams } from '../lib/address';
import { now, zone } from '../lib/clock';
import { quoteValue, splitTokens } from '../lib/filter';
import { gpuPath, inferencePath, remediationPath } from '../lib/route';
import { shown, visible } from '../lib/text';
import { formatFull, formatWhen } from '../lib/time';
import type { Alert } from './answers';
import type { Alerts } from './model';

/** Pages that the labels of an alert lead to. */
export function placesOf(labels: Record<string, string>): { text: string; href: string }[] {
  const places: { text: string; href: string }[] = [];
  const { run_id, run, host, gpu, uuid } = labels;
  const model = labels.model_name || labels.model;
  if (run_id) places.push({ text: `run ${run || run_id}`, href: `/r/${encodeURIComponent(run_id)}` });
  if (model) places.push({ text: `model ${model}`, href: inferencePath(model) });
  if (host && gpu) places.push({ text: `GPU ${gpu} of ${host}`, href: gpuPath(host, gpu, uuid) });
  else if (host)
    places.push({
      text: `cards of ${host}`,
      href: `/fleet?f=${encodeURIComponent(`host:${quoteValue(host)}`)}`,
    });
  if (host) places.push({ text: `remediation of ${host}`, href: remediationPath(host, gpu) });
  return places;
}

/** How it was told last. */
function Told({ alert }: { alert: Alert }) {
  if (alert.state === 'pending') return <span class="quiet">told once it fires</span>;
  const { delivered } = alert;
  if (!delivered) return <span class="quiet">told to nobody yet</span>;
  return (
    <span class={delivered.result === 'failed' || delivered.result === 'dropped' ? 'crit' : 'quiet'}>
      {shown(delivered.result, 16)}, <Name text={delivered.to} limit={32} />{' '}
      <time title={formatFull(delivered.time, zone.value)}>
        {formatWhen(delivered.time, now.value, zone.value)}
      </time>
    </span>
  );
}

/** Links, labels that filter when they are clicked, and the last delivery. */
export function AlertFacts({ page, alert }: { page: Alerts; alert: Alert }) {
  const labels = Object.entries(alert.labels).filter(([name]) => name !== 'alertname');
  const places = placesOf(alert.labels);
  const filter = (token: string) => {
    const tokens = splitTokens(page.filter.peek());
    setParams({ f: tokens.includes(token) ? page.filter.peek() : [...tokens, token].join(' ') });
  };
  return (
    <div class="alert-facts">
      {places.map(({ text, href }) => (
        <Link key={href} href={href}>
          {shown(text, 60)}
        </Link>
      ))}
      <Told alert={alert} />
      <span class="labels">
        {labels.map(([name, value]) => (
          <button
            type="button"
            key={name}
            class="badge"
            title={`Only alerts with ${visible(name)} ${visible(value)}`}
            onClick={() => filter(`${name}:${quoteValue(value)}`)}
          >
            {shown(name, 24)} <Name text={value} limit={32} />
          </button>
        ))}
      </span>
    </div>
  );
}
