/** Deliveries, what fired before, silences, and all rules. */
import { useState } from 'preact/hooks';
import { Failure } from '../components/failure';
import { Guarded } from '../components/guarded';
import { CritIcon, OkIcon, WarnIcon } from '../components/icons';
import { Name } from '../components/name';
import { counted } from '../fleet/names';
import { setParams } from '../lib/address';
import { now, zone } from '../lib/clock';
import { formatCount, THIN } from '../lib/number';
import { shown } from '../lib/text';
import { formatFull, formatMinute, formatSecond, formatSpan, formatWhen } from '../lib/time';
import { tell, tellError } from '../lib/toast';
import {
  addSilence,
  askDeliveries,
  askHistory,
  type Delivery,
  endSilence,
  type Firing,
  type Rule,
  type Silence,
} from './answers';
import { SilencedIcon } from './icons';
import type { Alerts } from './model';
import { keeper, matcherText, scopeText, tone, waitsText } from './words';

/** Rules and firings that are listed at most. */
const LISTED = 500;

/** How a message fared, in words: `200 in 84 ms`, `timed out, retried, 200 after 31 s`. */
export function deliveryText(d: Delivery): string {
  const took =
    d.took_ms === null
      ? ''
      : d.took_ms < 10_000
        ? ` in ${formatCount(d.took_ms)}${THIN}ms`
        : ` after ${formatSpan(d.took_ms / 1000)}`;
  const status = d.status === null ? '' : String(d.status);
  const tries = d.tries > 1 ? `${d.tries} tries, ` : '';
  const error = d.error ? shown(d.error, 120) : '';
  switch (d.result) {
    case 'delivered':
      return [error, `${tries}${status || 'delivered'}${took}`].filter((t) => t).join(', ');
    case 'waiting':
      return [error, d.tries > 0 ? `${tries}waits to try again` : 'waits'].filter((t) => t).join(', ');
    case 'silenced':
      return error || 'silenced';
    default:
      return `${d.result === 'dropped' ? 'dropped' : 'failed'}, ${tries}${error || status || 'no reason given'}`;
  }
}

function DeliveryIcon({ delivery: d }: { delivery: Delivery }) {
  if (d.result === 'silenced') return <SilencedIcon />;
  if (d.result === 'delivered') return d.tries > 1 || d.error ? <WarnIcon /> : <OkIcon />;
  return d.result === 'waiting' ? <WarnIcon /> : <CritIcon />;
}

const KINDS: Record<string, string> = { alertmanager: 'Alertmanager', slack: 'Slack', webhook: 'webhook' };

/** Messages to receivers, the newest first. */
export function Deliveries({ page }: { page: Alerts }) {
  const [more, setMore] = useState<{ rows: Delivery[]; next: string | null } | null>(null);
  const answer = page.deliveries.value;
  const error = page.deliveriesError.value;
  const rows = [...(answer?.deliveries ?? []), ...(more?.rows ?? [])];
  const next = more ? more.next : (answer?.next ?? null);
  const ask = () =>
    askDeliveries(200, next).then(
      (got) => setMore({ rows: [...(more?.rows ?? []), ...got.deliveries], next: got.next }),
      (reason: unknown) => tellError('cannot read older deliveries', reason),
    );
  return (
    <section class="panel deliveries" aria-label="Deliveries">
      <header>
        <h2>
          Deliveries <span class="quiet">newest first</span>
        </h2>
        {next !== null && (
          <button type="button" class="link right" onClick={() => void ask()}>
            Older
          </button>
        )}
      </header>
      {error !== null && <Failure error={error} retry={() => void page.load()} />}
      {answer && rows.length === 0 && (
        <p class="quiet calm">
          Nothing was sent yet. Receivers are named by <code>alerting.receivers_file</code>; without one,
          alerts are shown here alone.
        </p>
      )}
      {rows.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Table of deliveries">
          <table>
            <thead class="unseen">
              <tr>
                <th scope="col">When</th>
                <th scope="col">Rule</th>
                <th scope="col">State</th>
                <th scope="col">To</th>
                <th scope="col">Result</th>
              </tr>
            </thead>
            <tbody>
              {rows.map((d) => (
                <tr key={d.id}>
                  <td>
                    <time title={formatFull(d.time, zone.value)}>{formatSecond(d.time, zone.value)}</time>
                  </td>
                  <td>
                    <b>
                      <Name text={d.rules.slice(0, 2).join(', ') || d.group} limit={44} />
                    </b>
                    {d.rules.length > 2 && ` and ${d.rules.length - 2} more`}
                    {d.alerts > 1 && <span class="quiet"> {counted(d.alerts, 'alert')}</span>}
                  </td>
                  <td>{d.state}</td>
                  <td>
                    {KINDS[d.kind] ?? shown(d.kind, 20)} <Name text={d.receiver} limit={32} />
                  </td>
                  <td class={`result ${d.result}${d.tries > 1 || d.error ? ' retried' : ''}`}>
                    <DeliveryIcon delivery={d} /> {deliveryText(d)}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

/** What fired in the range. */
export function History({ page }: { page: Alerts }) {
  const [more, setMore] = useState<{ of: unknown; rows: Firing[]; next: string | null } | null>(null);
  const answer = page.history.value;
  const error = page.historyError.value;
  // Pages that follow belong to the answer they were asked after.
  const later = more?.of === answer ? more : null;
  const all = [...(answer?.firings ?? []), ...(later?.rows ?? [])].slice(0, LISTED);
  const rows = all.filter(keeper(page.filter.value));
  const next = later ? later.next : (answer?.next ?? null);
  const ask = () => {
    const { from, to } = page.range.range.peek();
    askHistory(from, to, next).then(
      (got) => setMore({ of: answer, rows: [...(later?.rows ?? []), ...got.firings], next: got.next }),
      (reason: unknown) => tellError('cannot read older firings', reason),
    );
  };
  if (error !== null) return <Failure error={error} retry={() => void page.load()} />;
  if (!answer) return null;
  if (all.length === 0) return <p class="nothing">Nothing fired in this range.</p>;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Table of firings">
      <table>
        <thead>
          <tr>
            <th scope="col">Rule</th>
            <th scope="col">Where</th>
            <th scope="col">From</th>
            <th scope="col">To</th>
            <th scope="col" class="number">
              Lasted
            </th>
            <th scope="col">Severity</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((f, at) => (
            <tr key={at}>
              <th scope="row">
                <button
                  type="button"
                  class="rule-name"
                  onClick={() => setParams({ rule: f.rule, sel: null })}
                >
                  <Name text={f.rule} limit={40} />
                </button>
              </th>
              <td>
                <Name text={scopeText(f.labels)} limit={64} />
              </td>
              <td>
                <time title={formatFull(f.start, zone.value)}>
                  {formatWhen(f.start, now.value, zone.value)}
                </time>
              </td>
              <td>{f.end === null ? <b class="crit">still fires</b> : formatMinute(f.end, zone.value)}</td>
              <td class="number">{formatSpan(((f.end ?? now.value) - f.start) / 1000)}</td>
              <td class={tone(f.severity) === 'crit' ? 'crit' : ''}>{shown(f.severity, 16)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length === 0 && <p class="nothing">No firing is left by this filter.</p>}
      {next !== null && all.length < LISTED && (
        <p class="more">
          <button type="button" class="link" onClick={ask}>
            Older firings
          </button>
        </p>
      )}
    </div>
  );
}

/** Silences that hold or will. */
export function Silences({ page }: { page: Alerts }) {
  const error = page.silencesError.value;
  const all = (page.silences.value ?? []).filter((s) => s.ends_at > now.value && s.state !== 'expired');
  if (error !== null) return <Failure error={error} retry={() => void page.load()} />;
  if (all.length === 0) return null;
  const end = async (silence: Silence) => {
    try {
      await endSilence(silence.id);
      const { matchers, comment, created_by, ends_at } = silence;
      tell('The silence has ended', () => {
        addSilence({ matchers, comment, created_by, ends_at, starts_at: Date.now() }).then(
          () => page.load(),
          (reason: unknown) => tellError('cannot silence again', reason),
        );
      });
      await page.load();
    } catch (reason) {
      tellError('cannot end the silence', reason);
    }
  };
  return (
    <section class="panel silences" aria-label="Silences">
      <h2>Silences</h2>
      <ul>
        {all.map((s) => (
          <li key={s.id}>
            <SilencedIcon />
            <span>
              <b>
                {s.starts_at > now.value ? `from ${formatWhen(s.starts_at, now.value, zone.value)} ` : ''}
                until {formatWhen(s.ends_at, now.value, zone.value)}
                {formatWhen(s.ends_at, now.value, zone.value).includes(':')
                  ? ''
                  : ` ${formatMinute(s.ends_at, zone.value)}`}
              </b>{' '}
              “<Name text={s.comment} limit={120} />” <span class="quiet">{shown(s.created_by, 32)}</span>
              <code>{shown(s.matchers.map(matcherText).join(', '), 200)}</code>
            </span>
            <Guarded class="control" act={() => void end(s)}>
              End now
            </Guarded>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** Every rule in force. */
export function Rules({ page }: { page: Alerts }) {
  const error = page.rulesError.value;
  const wanted = page.filter.value.toLowerCase().replaceAll('"', '');
  const kept = page.rules.value.filter((r) =>
    [r.name, r.file, r.labels?.severity ?? ''].some((t) => t.toLowerCase().includes(wanted)),
  );
  if (error !== null) return <Failure error={error} retry={() => void page.load()} />;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Table of rules">
      <table>
        <thead>
          <tr>
            <th scope="col">Rule</th>
            <th scope="col">Fires when</th>
            <th scope="col">Severity</th>
            <th scope="col">File</th>
            <th scope="col">Now</th>
          </tr>
        </thead>
        <tbody>
          {kept.slice(0, LISTED).map((rule) => (
            <RuleRow key={`${rule.file} ${rule.group} ${rule.name} ${rule.query}`} rule={rule} page={page} />
          ))}
        </tbody>
      </table>
      {kept.length === 0 && <p class="nothing">No rule is left by this filter.</p>}
      {kept.length > LISTED && <p class="more quiet">{counted(kept.length - LISTED, 'rule')} not listed.</p>}
    </div>
  );
}

function RuleRow({ rule, page }: { rule: Rule; page: Alerts }) {
  const choose = () => setParams({ rule: rule.name, sel: null });
  const active = rule.alerts?.length ?? 0;
  const state =
    rule.health === 'err'
      ? 'can’t be evaluated'
      : rule.type === 'recording'
        ? 'recorded'
        : rule.state === 'inactive' || active === 0
          ? 'quiet'
          : `${rule.state}, ${counted(active, 'alert')}`;
  return (
    <tr aria-selected={page.ruleName.value === rule.name} onClick={choose}>
      <th scope="row">
        <button type="button" class="rule-name" onClick={choose}>
          <Name text={rule.name} limit={48} />
        </button>
      </th>
      <td>
        {rule.type === 'alerting' ? (
          waitsText(rule.query, rule.duration ?? 0)
        ) : (
          <span class="quiet">records</span>
        )}
      </td>
      <td>{shown(rule.labels?.severity ?? '', 16)}</td>
      <td class="quiet">
        <Name text={rule.file} limit={40} />
      </td>
      <td class={rule.health === 'err' || rule.state === 'firing' ? 'crit' : ''}>{state}</td>
    </tr>
  );
}
