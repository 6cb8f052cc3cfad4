/** What a page that leads here asks about, such as the drain of a slow rank's host, and what exists for it. */
import { useState } from 'preact/hooks';
import { Name } from '../components/name';
import { Sentence } from '../components/sentence';
import { param, setParams } from '../lib/address';
import { now, zone } from '../lib/clock';
import { shown } from '../lib/text';
import { formatWhen } from '../lib/time';
import type { Act, Edge, RemediationAnswer } from './answers';
import { ActPill } from './machine';
import type { Remediation } from './model';
import { actTitle, edgeText } from './words';

/** Longest reason that the server keeps, characters. */
const REASON_MAX = 200;

/** A host, and what is wrong with it. */
export interface Question {
  host: string;
  uuid: string;
  verdict: string;
}

/** What exists for it: an act that waits or runs, else the last edge of the host. */
export interface Found {
  waits: Act | null;
  runs: Act | null;
  last: Edge | null;
}

/** Looks for what the question is about: its verdict first, then its card, then its host. */
export function found(question: Question, answer: RemediationAnswer): Found {
  const fits: ((a: Act) => boolean)[] = [
    (a) => question.verdict !== '' && a.verdict === question.verdict,
    (a) => question.uuid !== '' && a.host === question.host && a.uuid === question.uuid,
    (a) => a.host === question.host,
  ];
  const first = (acts: Act[]) => fits.map((fit) => acts.find(fit)).find((a) => a !== undefined) ?? null;
  const own = answer.audit.filter((e) => e.host === question.host);
  return {
    waits: first(answer.queue),
    runs: first(answer.executing),
    last: own.toSorted((a, b) => b.time - a.time)[0] ?? null,
  };
}

/** Why nothing exists, in a sentence. */
export function nothingText(question: Question, answer: RemediationAnswer): string {
  if (answer.mode === 'off') return 'Remediation is off, so nothing is proposed: the switch is below.';
  if (answer.policy === null) return 'No policy is loaded, so nothing is proposed.';
  const known = answer.hosts.some((h) => h.host === question.host);
  const of = `Policy \`${answer.policy.name}\`, revision ${answer.policy.revision}, has`;
  return known
    ? `${of} proposed nothing for it.`
    : `${of} proposed nothing for it: no incident of this host is known, or it is in no pool.`;
}

/** The panel; nothing where the address asks about nothing. */
export function Asked({ page }: { page: Remediation }) {
  const answer = page.answer.value;
  const question = { host: param('host'), uuid: param('uuid'), verdict: param('verdict') };
  if (!answer || question.verdict === '' || question.host === '') return null;
  const { waits, runs, last } = found(question, answer);
  const act = waits ?? runs;
  return (
    <section class="panel asked" aria-label="What was asked for">
      <h2>
        <span>
          Drain of <Name text={question.host} limit={40} />
        </span>{' '}
        <span class="quiet">for a verdict on a run</span>
        <button
          type="button"
          class="link right"
          onClick={() => setParams({ verdict: null, uuid: null })}
          title="Leaves the host selected"
        >
          Done
        </button>
      </h2>
      {act ? (
        <p>
          {waits ? 'Waits for a decision: ' : 'Under way: '}
          <b>
            <Name text={actTitle(act)} limit={80} />
          </b>{' '}
          <ActPill mode={act.mode} />{' '}
          {waits && (
            <button type="button" class="primary" onClick={() => page.open(waits.id)}>
              Decide…
            </button>
          )}
        </p>
      ) : (
        <>
          <p>
            <Sentence text={nothingText(question, answer)} />
          </p>
          {answer.mode !== 'off' && answer.policy !== null && <Propose page={page} question={question} />}
        </>
      )}
      {last && (
        <p class="quiet">
          Last, {formatWhen(last.time, now.value, zone.value)}: {edgeText(last)}
          {last.from !== last.to && last.text && (
            <>
              , <Sentence text={last.text} />
            </>
          )}
        </p>
      )}
    </section>
  );
}

/** Asks that the policy's act for it be queued, with a reason for the audit. Nothing runs by it. */
function Propose({ page, question }: { page: Remediation; question: Question }) {
  const [reason, setReason] = useState('');
  const submit = (event: Event) => {
    event.preventDefault();
    if (reason.trim() !== '') void page.propose(question, reason.trim());
  };
  return (
    <form class="propose" onSubmit={submit}>
      <input
        class="control"
        required
        maxLength={REASON_MAX}
        aria-label="Why it is proposed"
        placeholder="Why, for the audit"
        value={reason}
        onInput={(e) => setReason(e.currentTarget.value)}
      />
      <button type="submit" class="primary" disabled={reason.trim() === '' || page.busy.value}>
        Propose it
      </button>
      <span class="quiet">It waits for a decision; nothing runs by this.</span>
      {page.refused.value && (
        <p class="crit" role="alert">
          {shown(page.refused.value, 300)}
        </p>
      )}
    </form>
  );
}
