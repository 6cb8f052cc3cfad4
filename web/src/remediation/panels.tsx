/** Parts of the Remediation page: pools, what waits, hosts by state. */
import { useState } from 'preact/hooks';
import { Dialog } from '../components/dialog';
import { CritIcon, OkIcon, WarnIcon } from '../components/icons';
import { Name } from '../components/name';
import { Sentence } from '../components/sentence';
import { counted } from '../fleet/names';
import { param, setParams } from '../lib/address';
import { now, zone } from '../lib/clock';
import { shown } from '../lib/text';
import { formatAge, formatFull, formatWhen } from '../lib/time';
import type { Act, Host, Pool } from './answers';
import { Commands, focused } from './decision';
import { ActPill, DryPill, Machine } from './machine';
import type { Remediation } from './model';
import {
  actTitle,
  columnsOf,
  expiryText,
  interrupts,
  interruptsText,
  poolText,
  refusing,
  stateText,
  stateTone,
} from './words';

/** Hosts of a state that are listed before one asks for more; healthy ones are only counted. */
const HOSTS = 12;
/** Budget cells that are drawn. */
const CELLS = 20;

/** Pools with their budgets and breakers. */
export function Pools({ page }: { page: Remediation }) {
  const pools = page.answer.value?.pools ?? [];
  const chosen = page.pool.value;
  return (
    <section class="panel pools" aria-label="Pools">
      <h2>
        Pools <span class="quiet">what may be out of service at once</span>
      </h2>
      {pools.length === 0 && <p class="quiet calm">The policy names no pool, and no host has reported.</p>}
      <ul>
        {pools.map((pool) => (
          <li key={pool.pool}>
            <button
              type="button"
              aria-pressed={pool.pool === chosen}
              onClick={() => setParams({ pool: pool.pool === chosen ? null : pool.pool })}
            >
              <b>
                <Name text={pool.pool} limit={32} />
              </b>
              <span class="quiet">{counted(pool.nodes, 'node')}</span>
              <Budget pool={pool} />
              <span class={pool.breaker === 'open' ? 'crit' : ''}>
                {pool.breaker === 'open' ? <CritIcon /> : <OkIcon />} {poolText(pool)}
              </span>
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Budget({ pool }: { pool: Pool }) {
  const cells = Math.min(CELLS, Math.max(pool.budget, pool.in_remediation));
  return (
    <span class="budget" aria-hidden="true">
      {Array.from({ length: cells }, (_, at) => (
        <i key={at} class={at >= pool.budget ? 'over' : at < pool.in_remediation ? 'used' : ''} />
      ))}
    </span>
  );
}

/** Acts that wait, then those that run. */
export function Queue({ page }: { page: Remediation }) {
  const answer = page.answer.value;
  const pool = page.pool.value;
  const inPool = (act: Act) => pool === '' || act.pool === pool;
  const queue = (answer?.queue ?? []).filter(inPool);
  const running = (answer?.executing ?? []).filter(inPool);
  return (
    <section class="panel queue" aria-label="Approvals">
      <h2>
        Approvals{' '}
        <span class="quiet">
          {queue.length === 0
            ? 'nothing waits'
            : `${counted(queue.length, 'act')} wait${queue.length === 1 ? 's' : ''}`}
        </span>
      </h2>
      {queue.length + running.length === 0 && (
        <p class="quiet calm">
          {answer?.mode === 'off'
            ? 'Remediation is off: nothing is asked.'
            : 'No act waits: what the policy lets go by itself stands in the audit.'}
        </p>
      )}
      {running.map((act) => (
        <Running key={act.id} act={act} />
      ))}
      {queue.slice(0, 50).map((act) => (
        <article key={act.id} class="act" aria-label={shown(actTitle(act), 120)}>
          <header>
            <h3>
              <Name text={actTitle(act)} limit={80} />
            </h3>
            <ActPill mode={act.mode} />
            <span class={`pill ${interrupts(act) ? 'warn' : ''}`}>
              {interrupts(act) && <WarnIcon />} {interruptsText(act)}
            </span>
          </header>
          <p>
            <Sentence text={act.text} />
          </p>
          <footer>
            {act.outcome && (
              <span>
                <Sentence text={act.outcome} />
              </span>
            )}
            <span class="quiet">
              Asked{' '}
              <time title={formatFull(act.asked, zone.value)}>
                {formatWhen(act.asked, now.value, zone.value)}
              </time>
              . {expiryText(act, now.value)}
            </span>
            {refusing(act.guards).length > 0 && (
              <span class="crit">
                <CritIcon /> {counted(refusing(act.guards).length, 'guard')} say
                {refusing(act.guards).length === 1 ? 's' : ''} no
              </span>
            )}
            <button type="button" class="primary right" onClick={() => page.open(act.id)}>
              Decide…
            </button>
          </footer>
        </article>
      ))}
      {queue.length > 50 && (
        <p class="quiet">{counted(queue.length - 50, 'act')} more wait: choose a pool to see its own.</p>
      )}
    </section>
  );
}

function Running({ act }: { act: Act }) {
  return (
    <article class={`act running ${act.mode}`} aria-label={shown(actTitle(act), 120)}>
      <header>
        <h3>
          <Name text={actTitle(act)} limit={80} />
        </h3>
        <ActPill mode={act.mode} />
        <span class="pill">
          {act.status === 'validating' ? 'validates' : `runs, command ${act.step} of ${act.commands.length}`}
        </span>
      </header>
      <Commands commands={act.commands} now={act.step} />
    </article>
  );
}

/** Hosts in columns, from healthy to in need of a person. */
export function Hosts({ page }: { page: Remediation }) {
  const answer = page.answer.value;
  if (!answer) return null;
  const columns = columnsOf(answer.hosts, page.pool.value);
  const chosen = page.host.value;
  const named = param('host');
  return (
    <section class="panel hosts-panel" aria-label="Hosts by state">
      <h2>
        Hosts by state <span class="quiet">{counted(answer.hosts.length, 'host')}</span>
      </h2>
      {named !== '' && chosen?.host !== named && (
        <p class="quiet calm">
          Nothing is known against <Name text={named} limit={40} />: it is healthy, or has not reported.
        </p>
      )}
      {chosen && <Chosen page={page} host={chosen} />}
      <div class="scroll" tabIndex={0} role="region" aria-label="Columns of hosts">
        <div class="columns-of-hosts">
          {columns.map(({ state, hosts }) => (
            <section key={state} class={`tone-${stateTone(state)}`} aria-label={stateText(state)}>
              <h3>
                {stateText(state)} <span class="quiet">{hosts.length.toLocaleString('en-US')}</span>
              </h3>
              {(state === 'healthy' ? hosts.slice(0, 4) : hosts.slice(0, HOSTS)).map((host) => (
                <button
                  type="button"
                  key={`${host.host} ${host.gpu} ${host.uuid}`}
                  class="host"
                  aria-pressed={host === chosen}
                  onClick={() =>
                    setParams({ host: host.host, gpu: host.gpu || null, uuid: null, verdict: null })
                  }
                >
                  <b>
                    <Name text={host.host} limit={20} />
                  </b>
                  {state !== 'healthy' && (
                    <>
                      {host.gpu && <span>GPU {shown(host.gpu, 8)}</span>}
                      <DryPill dry={host.dry_run} />
                      <span class="quiet">{formatAge(Math.max(0, (now.value - host.since) / 1000))}</span>
                      {host.reason && (
                        <span class="reason">
                          <Sentence text={host.reason} />
                        </span>
                      )}
                    </>
                  )}
                </button>
              ))}
              {hosts.length > (state === 'healthy' ? 4 : HOSTS) && (
                <p class="quiet">and {counted(hosts.length - (state === 'healthy' ? 4 : HOSTS), 'other')}</p>
              )}
            </section>
          ))}
        </div>
      </div>
    </section>
  );
}

/** The chosen host: its way, and a word from a person. */
function Chosen({ page, host }: { page: Remediation; host: Host }) {
  const [asks, setAsks] = useState(false);
  const answer = page.answer.value!;
  return (
    <div class="chosen-host">
      <header>
        <b>
          <Name text={host.host} limit={40} />
          {host.gpu && ` · GPU ${shown(host.gpu, 8)}`}
        </b>
        <DryPill dry={host.dry_run} />
        <span class="quiet">
          {host.reason ? <Sentence text={host.reason} /> : 'no reason to look at it'}
          {host.resets_24h > 0 && ` · ${counted(host.resets_24h, 'reset')} in 24 h`}
        </span>
        {host.state !== 'healthy' && (
          <button type="button" class="control right" onClick={() => setAsks(true)}>
            It is healthy…
          </button>
        )}
      </header>
      <Machine host={host} edges={answer.audit} waits={answer.queue.some((a) => a.host === host.host)} />
      {asks && <Healthy page={page} host={host} close={() => setAsks(false)} />}
    </div>
  );
}

function Healthy({ page, host, close }: { page: Remediation; host: Host; close: () => void }) {
  const [reason, setReason] = useState('');
  const submit = (event: Event) => {
    event.preventDefault();
    if (reason.trim() !== '') void page.heal(host, reason.trim()).then((ok) => ok && close());
  };
  return (
    <Dialog title={`${shown(host.host, 40)} is healthy?`} close={close} class="decision-dialog">
      <form class="token-form" onSubmit={submit}>
        <p>
          It leaves <b>{stateText(host.state)}</b> and may be acted on again. No command runs: a host that was
          drained stays so until its scheduler takes it back.
        </p>
        <label>
          How do you know?
          <input
            class="control"
            required
            ref={focused}
            maxLength={400}
            value={reason}
            onInput={(e) => setReason(e.currentTarget.value)}
          />
        </label>
        {page.refused.value && (
          <p class="crit" role="alert">
            {shown(page.refused.value, 300)}
          </p>
        )}
        <button type="submit" class="primary" disabled={reason.trim() === '' || page.busy.value}>
          It is healthy
        </button>
      </form>
    </Dialog>
  );
}
