/** Remediation beside the alerts: the state of a host, what waits for a decision, the last edges. */
import { Failure } from '../components/failure';
import { Link } from '../components/link';
import { Name } from '../components/name';
import { EdgeTable } from './audit';
import { Decision } from './decision';
import { Machine, ModePill } from './machine';
import type { Remediation } from './model';
import { Off } from './off';
import { actTitle } from './words';
import '../styles/remediation.css';

/** Edges that are listed. */
const EDGES = 8;

/** The policy in words. */
export function Policy({ page }: { page: Remediation }) {
  const policy = page.answer.value?.policy;
  if (!policy) return null;
  return (
    <span class="quiet">
      policy <Name text={policy.name} limit={32} />
      {`, rev ${policy.revision}`}
    </span>
  );
}

/** The side. */
export function RemediationSide({ page }: { page: Remediation }) {
  const answer = page.answer.value;
  const host = page.host.value;
  const act = answer?.queue.find((a) => a.host === host?.host && a.gpu === host.gpu) ?? answer?.queue[0];
  return (
    <aside class="remediation-side" aria-label="Remediation">
      {page.error.value !== null && <Failure error={page.error.value} retry={() => void page.load()} />}
      {answer && (
        <>
          <section class="panel" aria-label="State of a host">
            <header>
              <h2>Remediation</h2>
              <ModePill mode={answer.mode} />
              <Policy page={page} />
              <Link href="/remediation" class="right">
                Open page
              </Link>
            </header>
            {answer.mode === 'off' && <Off reason={answer.reason} />}
            {host ? (
              <Machine host={host} edges={answer.audit} waits={act?.host === host.host} />
            ) : (
              answer.mode !== 'off' && <p class="quiet calm">Every host is healthy; nothing waits.</p>
            )}
          </section>
          {act && (
            <section class="panel raised" aria-label="An act that waits">
              <header>
                <h2 class="question">
                  <Name text={actTitle(act)} limit={80} />
                </h2>
                {answer.queue.length > 1 && (
                  <Link href="/remediation" class="right">
                    {answer.queue.length - 1} more wait
                  </Link>
                )}
              </header>
              <Decision key={act.id} page={page} act={act} done={() => {}} />
            </section>
          )}
          <section class="panel" aria-label="Audit">
            <header>
              <h2>
                Audit <span class="quiet">every edge, real or dry</span>
              </h2>
              <Link href="/remediation#audit" class="right">
                All
              </Link>
            </header>
            {answer.audit.length === 0 ? (
              <p class="quiet calm">No host has changed its state yet.</p>
            ) : (
              <EdgeTable edges={answer.audit.slice(0, EDGES)} brief label="The last edges" />
            )}
          </section>
        </>
      )}
    </aside>
  );
}
