/** Every edge that a host took, real or dry; and what the policy would have done before. */
import { useState } from 'preact/hooks';
import { Failure } from '../components/failure';
import { Name } from '../components/name';
import { Sentence } from '../components/sentence';
import { counted } from '../fleet/names';
import { now, zone } from '../lib/clock';
import { save } from '../lib/download';
import { shown } from '../lib/text';
import { formatDay, formatFull, formatSecond, formatWhen } from '../lib/time';
import { tellError } from '../lib/toast';
import { askAudit, askReplay, type Edge, type ReplayAnswer } from './answers';
import { DeedPill } from './machine';
import type { Remediation } from './model';
import { auditCsv, deedText, edgeText } from './words';

/** Edges of a page, and of an export. */
const PAGE = 200;
const EXPORT_MAX = 50_000;
/** Edges that come along with everything: where there are fewer there are no older ones. */
const ALONG = 50;

/** Tells edges apart: one act has several. */
const keyOf = (e: Edge) => JSON.stringify([e.time, e.host, e.gpu, e.from, e.to, e.text]);

/** The time of an edge: the second when it was today, else the day too. */
function When({ time }: { time: number }) {
  const z = zone.value;
  const today = formatWhen(time, now.value, z).includes(':');
  return (
    <time title={formatFull(time, z)}>
      {today ? formatSecond(time, z) : `${formatDay(time, z)} ${formatSecond(time, z)}`}
    </time>
  );
}

/** Rows of edges. */
export function EdgeTable({
  edges,
  brief = false,
  label,
}: {
  edges: Edge[];
  brief?: boolean;
  label: string;
}) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={label}>
      <table class="edges">
        <thead class={brief ? 'unseen' : ''}>
          <tr>
            <th scope="col">When</th>
            <th scope="col">Host</th>
            <th scope="col">Edge</th>
            {!brief && <th scope="col">Why</th>}
            <th scope="col">By</th>
            <th scope="col">Mode</th>
          </tr>
        </thead>
        <tbody>
          {edges.map((e, at) => (
            <tr key={at} class={deedText(e) === 'real' ? 'acted' : 'dry'}>
              <td>
                <When time={e.time} />
              </td>
              <th scope="row">
                <Name text={e.host} limit={24} />
                {!brief && e.gpu && <span class="quiet"> GPU {shown(e.gpu, 8)}</span>}
              </th>
              <td title={brief ? shown(e.text, 300) : undefined}>{edgeText(e)}</td>
              {!brief && (
                <td>
                  {shown(e.text, 120) !== edgeText(e) && <Name text={e.text} limit={120} />}
                  {e.evidence.length > 0 && (
                    <span class="quiet">
                      {' '}
                      incident <Name text={e.evidence.join(', ')} limit={60} />
                    </span>
                  )}
                  {e.commands.length > 0 && (
                    <ul class="ran" aria-label={e.dry_run ? 'Would have run' : 'Ran'}>
                      {e.commands.map((line, n) => (
                        <li key={n}>
                          <code>
                            <Name text={line} limit={160} />
                          </code>
                        </li>
                      ))}
                    </ul>
                  )}
                </td>
              )}
              <td>
                <Name text={e.actor} limit={28} />
              </td>
              <td>
                <DeedPill edge={e} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Saves all edges, or those of a host. */
async function exportAll(host: string): Promise<void> {
  const all: Edge[] = [];
  let cursor: string | null = null;
  try {
    do {
      const page = await askAudit(PAGE, cursor, host);
      all.push(...page.audit);
      cursor = page.next;
    } while (cursor !== null && all.length < EXPORT_MAX);
    save(new Blob([auditCsv(all)], { type: 'text/csv' }), 'remediation-audit.csv');
  } catch (error) {
    tellError('cannot export the audit', error);
  }
}

/** The audit, older edges on demand. */
export function Audit({ page }: { page: Remediation }) {
  const [more, setMore] = useState<{ edges: Edge[]; next: string | null } | null>(null);
  const [own, setOwn] = useState(false);
  const host = page.host.value?.host ?? '';
  const first = page.answer.value?.audit ?? [];
  // What comes live stands before the pages that were asked for.
  const known = new Set(more?.edges.map(keyOf));
  const all = more ? [...first.filter((e) => !known.has(keyOf(e))), ...more.edges] : first;
  const edges = own ? all.filter((e) => e.host === host) : all;
  const ask = () =>
    askAudit(PAGE, more?.next ?? null).then(
      (got) => setMore({ edges: [...(more?.edges ?? []), ...got.audit], next: got.next }),
      (error: unknown) => tellError('cannot read older edges', error),
    );
  return (
    <section class="panel audit" aria-label="Audit">
      <header>
        <h2>
          Audit <span class="quiet">every edge, real or dry</span>
        </h2>
        <span class="right">
          {host && (
            <label class="check">
              <input type="checkbox" checked={own} onChange={() => setOwn(!own)} />
              only <Name text={host} limit={24} />
            </label>
          )}
          <button
            type="button"
            class="control"
            title="Every edge as CSV (e)"
            onClick={() => void exportAll(own ? host : '')}
          >
            Export
          </button>
        </span>
      </header>
      {edges.length === 0 ? (
        <p class="quiet calm">No host has changed its state yet.</p>
      ) : (
        <EdgeTable edges={edges} label="Table of edges" />
      )}
      {(more === null ? first.length >= ALONG : more.next !== null) && (
        <button type="button" class="link" onClick={() => void ask()}>
          Older
        </button>
      )}
    </section>
  );
}

/** Exports every edge: for the page's key. */
export const exportAudit = () => void exportAll('');

const SPANS: [text: string, days: number][] = [
  ['1 day', 1],
  ['7 days', 7],
  ['30 days', 30],
];

/** The policy on what was stored: nothing runs. */
export function Replay() {
  const [state, setState] = useState<{ days: number; answer: ReplayAnswer | null; error: unknown } | null>(
    null,
  );
  const play = (days: number) => {
    setState({ days, answer: null, error: null });
    const to = Date.now();
    askReplay(to - days * 86_400_000, to).then(
      (answer) => setState({ days, answer, error: null }),
      (error: unknown) => setState({ days, answer: null, error }),
    );
  };
  const answer = state?.answer ?? null;
  return (
    <section class="panel replay" aria-label="Replay">
      <header>
        <h2>
          Replay{' '}
          <span class="quiet">what the policy would have done on recorded incidents; nothing runs</span>
        </h2>
        <span class="right">
          {SPANS.map(([text, days]) => (
            <button type="button" key={text} class="control" onClick={() => play(days)}>
              {text}
            </button>
          ))}
        </span>
      </header>
      {state !== null && state.error !== null && (
        <Failure error={state.error} retry={() => play(state.days)} />
      )}
      {answer && (
        <>
          <p role="status">
            <Sentence text={answer.text} /> · {counted(answer.plans.length, 'act')},{' '}
            {counted(answer.audit.length, 'edge')} from {counted(answer.events, 'event')}
            {answer.pools.map((p) => (
              <span key={p.pool} class="quiet">
                {' '}
                · <Name text={p.pool} limit={24} />: at most {p.most_out} of {counted(p.nodes, 'node')} out at
                once
              </span>
            ))}
          </p>
          {answer.audit.length > 0 && (
            <EdgeTable edges={answer.audit.slice(0, 500)} label="Table of replayed edges" />
          )}
        </>
      )}
    </section>
  );
}
