/** Remediation: what would the system do, may it, what did it do? */
import { useLayoutEffect, useMemo } from 'preact/hooks';
import { Failure } from '../components/failure';
import { CritIcon } from '../components/icons';
import { Link } from '../components/link';
import { Toggle } from '../components/segments';
import { useFeed } from '../fleet/feed';
import { counted } from '../fleet/names';
import { toggleLive } from '../fleet/range';
import { setParams } from '../lib/address';
import { switchZone } from '../lib/clock';
import { bind } from '../lib/keys';
import { Asked } from '../remediation/asked';
import { Audit, exportAudit, Replay } from '../remediation/audit';
import { DecisionDialog } from '../remediation/decision';
import { ModePill } from '../remediation/machine';
import { Remediation } from '../remediation/model';
import { Off } from '../remediation/off';
import { Hosts, Pools, Queue } from '../remediation/panels';
import { Policy } from '../remediation/side';
import '../styles/remediation.css';

/** The page. */
export function RemediationPage() {
  const page = useMemo(() => new Remediation(), []);
  useFeed(page, 'Remediation', 'remediation');
  useKeys(page);
  const answer = page.answer.value;
  const act = page.act.value;
  const open = answer?.pools.filter((p) => p.breaker === 'open') ?? [];
  const live = page.range.live.value;
  return (
    <main class="remediation">
      <div class="page-bar">
        <h1>Remediation</h1>
        {answer && <ModePill mode={answer.mode} />}
        <Policy page={page} />
        {open.length > 0 && (
          <span class="pill crit">
            <CritIcon /> {counted(open.length, 'breaker')} open
          </span>
        )}
        <span class="right">
          <Toggle on={live} set={toggleLive} title="Follows the server (Space)">
            {live && <span class="dot" />} {live ? 'live' : 'paused'}
          </Toggle>
          <Link href="/alerts?side=remediation">Beside the alerts</Link>
        </span>
      </div>
      {page.error.value !== null && <Failure error={page.error.value} retry={() => void page.load()} />}
      {answer && (
        <div class="panels">
          {answer.mode === 'off' && (
            <section class="panel" aria-label="How to begin">
              <Off reason={answer.reason} />
            </section>
          )}
          <Asked page={page} />
          <div class="two">
            <Queue page={page} />
            <Pools page={page} />
          </div>
          <Hosts page={page} />
          <Replay />
          <Audit page={page} />
        </div>
      )}
      {act && <DecisionDialog page={page} act={act} />}
    </main>
  );
}

function useKeys(page: Remediation): void {
  useLayoutEffect(() => {
    const group = 'Remediation';
    const move = (by: number) => () => {
      const hosts = (page.answer.peek()?.hosts ?? []).filter((h) => h.state !== 'healthy');
      const at = hosts.indexOf(page.host.peek()!);
      const next = hosts[Math.min(hosts.length - 1, Math.max(0, at + by))];
      if (!next) return false;
      setParams({ host: next.host, gpu: next.gpu || null });
      return true;
    };
    const decide = () => {
      const queue = page.answer.peek()?.queue ?? [];
      const act = queue.find((a) => a.host === page.host.peek()?.host) ?? queue[0];
      if (!act) return false;
      page.open(act.id);
      return true;
    };
    return bind(
      { keys: 'j', does: 'The next host that is not healthy', group, run: move(1) },
      { keys: 'k', does: 'The one before', group, run: move(-1) },
      { keys: 'Enter', does: 'Decide on what waits', group, run: decide },
      { keys: 'e', does: 'Export the audit', group, run: exportAudit },
      { keys: 'Space', does: 'Live or paused', group, run: toggleLive },
      { keys: 'z', does: 'UTC or local time', group, run: switchZone },
    );
  }, [page]);
}
