/** An act that waits for an approval: what it means, its guards, its commands, and the decision. */
import { useState } from 'preact/hooks';
import { Dialog } from '../components/dialog';
import { CritIcon, InfoIcon, OkIcon, WarnIcon } from '../components/icons';
import { Link } from '../components/link';
import { Name } from '../components/name';
import { Sentence } from '../components/sentence';
import { now, zone } from '../lib/clock';
import { formatCount } from '../lib/number';
import { refusedText, who } from '../lib/session';
import { shown, visible } from '../lib/text';
import { formatFull, formatWhen } from '../lib/time';
import type { Act, Command, Guard } from './answers';
import type { Remediation } from './model';
import {
  actTitle,
  checkpointText,
  expiryText,
  gainText,
  interrupts,
  interruptsText,
  limitText,
  lostText,
  realProblem,
  refusing,
} from './words';

/** The window of one act. */
export function DecisionDialog({ page, act }: { page: Remediation; act: Act }) {
  const close = () => page.open(null);
  return (
    <Dialog title={visible(actTitle(act))} close={close} class="decision-dialog">
      <Decision page={page} act={act} done={close} />
    </Dialog>
  );
}

/** All that one has to know, and the three ways out; a form whose only quick answer is the dry run. */
export function Decision({ page, act, done }: { page: Remediation; act: Act; done: () => void }) {
  const [typed, setTyped] = useState('');
  const [rejecting, setRejecting] = useState(false);
  const mode = page.answer.value?.mode ?? 'off';
  const problem = realProblem(act, mode, typed);
  const expired = act.expires !== null && act.expires <= now.value;
  const refused = refusedText(who.value);
  const locked = expired || page.busy.value || mode === 'off' || refused !== '';
  const decide = (dry: boolean) => {
    // A dry run leaves the act waiting: what it did stands here, and in the audit.
    void page.approve(act, dry, dry ? '' : typed).then((ok) => ok && !dry && done());
  };
  const submit = (event: Event) => {
    event.preventDefault();
    if (!locked) decide(true);
  };
  return (
    <div class="decision">
      <About act={act} />
      <h3>Guards</h3>
      <Guards guards={act.guards} />
      <h3>Exactly these commands, in this order</h3>
      <Commands commands={act.commands} />
      {rejecting ? (
        <Reject page={page} act={act} done={done} back={() => setRejecting(false)} />
      ) : (
        <form class="decide" onSubmit={submit}>
          <button type="submit" class="primary" disabled={locked}>
            Run as dry run
          </button>
          <input
            class="control"
            aria-label={`Type ${shown(act.confirm, 80)} to run it for real`}
            placeholder={`type ${shown(act.confirm, 36)}`}
            autocomplete="off"
            spellcheck={false}
            value={typed}
            disabled={mode !== 'real' || refused !== ''}
            onInput={(e) => setTyped(e.currentTarget.value)}
          />
          <button
            type="button"
            class="control for-real"
            disabled={locked || problem !== ''}
            title={problem || undefined}
            onClick={() => decide(false)}
          >
            Run for real
          </button>
          <button
            type="button"
            class="control right"
            disabled={refused !== ''}
            onClick={() => setRejecting(true)}
          >
            Reject…
          </button>
        </form>
      )}
      {page.refused.value && (
        <p class="crit" role="alert">
          {shown(page.refused.value, 300)}
        </p>
      )}
      <p role="status" class={act.outcome ? 'outcome' : ''}>
        <Sentence text={act.outcome} />
      </p>
      <p class="quiet">
        {mode !== 'real' && `${problem} `}
        {refused ? `Only to be read: a decision ${refused}.` : 'Needs scope admin.'} Asked{' '}
        <time title={formatFull(act.asked, zone.value)}>{formatWhen(act.asked, now.value, zone.value)}</time>.{' '}
        {expiryText(act, now.value)} Key <Name text={act.key} limit={60} />: runs at most once.
      </p>
    </div>
  );
}

/** What it is for, and what it costs. */
function About({ act }: { act: Act }) {
  const checkpoint = checkpointText(act);
  const gain = gainText(act);
  const lost = lostText(act);
  return (
    <>
      <p class="why">
        <Sentence text={act.text} />
        <span class={`pill ${interrupts(act) ? 'warn' : ''}`}>
          {interrupts(act) && <WarnIcon />} {interruptsText(act)}
        </span>
      </p>
      {act.evidence.length > 0 && (
        <ul class="act-evidence">
          {act.evidence.slice(0, 6).map((one, at) => (
            <li key={at}>
              <Sentence text={one} />
            </li>
          ))}
        </ul>
      )}
      <dl class="effects">
        <div>
          <dt>Affected</dt>
          <dd>
            {act.affects.length === 0
              ? 'no run of this server'
              : act.affects.slice(0, 4).map((a, at) => (
                  <span key={a.run_id ?? a.run}>
                    {at > 0 && ', '}
                    {a.run_id === null ? (
                      <Name text={a.run} limit={32} />
                    ) : (
                      <Link href={`/r/${encodeURIComponent(a.run_id)}`}>
                        <Name text={a.run || a.run_id} limit={32} />
                      </Link>
                    )}
                    {a.dead && ', not alive'}
                    {a.attempt !== null && `, attempt ${a.attempt}`}
                    {a.gpus !== null && `, ${formatCount(a.gpus)} GPUs`}
                  </span>
                ))}
            {act.affects.length > 4 && ` and ${act.affects.length - 4} more`}
          </dd>
        </div>
        <div>
          <dt>Last verified checkpoint</dt>
          <dd>
            {checkpoint ? (
              <>
                {checkpoint.step}, <b>{checkpoint.age}</b>; {checkpoint.lost}
              </>
            ) : (
              <span class="absent">none is known</span>
            )}
          </dd>
        </div>
        <div>
          <dt>Lost until it is back there</dt>
          <dd>
            {lost.known}
            {lost.missing && (
              <span class="absent">
                {lost.known && '; '}
                {shown(lost.missing, 90)}
              </span>
            )}
          </dd>
        </div>
        <div>
          <dt>Gain if it works</dt>
          <dd>{gain ?? <span class="absent">not known</span>}</dd>
        </div>
        <div>
          <dt>Spare in the pool</dt>
          <dd>
            {act.spare ? <Name text={act.spare} limit={80} /> : <span class="absent">none is known</span>}
          </dd>
        </div>
      </dl>
    </>
  );
}

/** Conditions with their numbers. */
function Guards({ guards }: { guards: Guard[] }) {
  if (guards.length === 0) return <p class="quiet">The policy names none.</p>;
  return (
    <ul class="guards">
      {guards.map((g) => (
        <li key={g.name} class={g.ok === false ? 'crit' : g.ok === null ? 'warning' : ''}>
          {g.ok === true ? <OkIcon /> : g.ok === false ? <CritIcon /> : <WarnIcon />}
          <span class="unseen">
            {g.ok === true ? 'holds: ' : g.ok === false ? 'says no: ' : 'not known: '}
          </span>
          <Name text={g.text} limit={90} />
          {g.ok !== true && !g.hard && <span class="quiet">one may agree</span>}
        </li>
      ))}
      {refusing(guards).length > 0 && (
        <li class="unseen">
          <InfoIcon /> It can’t run for real.
        </li>
      )}
    </ul>
  );
}

/** The commands as they would be run. */
export function Commands({ commands, now: at }: { commands: Command[]; now?: number }) {
  return (
    <ol class="commands" tabIndex={0} aria-label="Commands">
      {commands.map((c) => (
        <li key={c.n} aria-current={c.n === at ? 'step' : undefined}>
          <span class="quiet">{c.n}</span>
          <code>
            {c.text.startsWith(`${c.kind} `) ? (
              visible(c.text)
            ) : (
              <>
                <span class="kind">{shown(c.kind, 16)}</span> {visible(c.text)}
              </>
            )}
          </code>
          <span class="quiet">{limitText(c.limit_seconds)}</span>
        </li>
      ))}
      {commands.length === 0 && <li class="quiet">No command: the policy only marks the host.</li>}
    </ol>
  );
}

function Reject({
  page,
  act,
  done,
  back,
}: {
  page: Remediation;
  act: Act;
  done: () => void;
  back: () => void;
}) {
  const [reason, setReason] = useState('');
  const submit = (event: Event) => {
    event.preventDefault();
    if (reason.trim() !== '') void page.reject(act, reason.trim()).then((ok) => ok && done());
  };
  return (
    <form class="decide" onSubmit={submit}>
      <label class="reason">
        Why not?
        <input
          class="control"
          required
          ref={focused}
          maxLength={400}
          value={reason}
          onInput={(e) => setReason(e.currentTarget.value)}
        />
      </label>
      <button type="submit" class="control" disabled={reason.trim() === '' || page.busy.value}>
        Reject
      </button>
      <button type="button" class="control" onClick={back}>
        Back
      </button>
    </form>
  );
}

/** Puts the focus into a field that has just appeared. */
export const focused = (field: HTMLInputElement | null) => {
  field?.focus();
};
