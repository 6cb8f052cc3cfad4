/** The bar on top of every page: mark, where we are, pages, keys, theme. */
import { useEffect } from 'preact/hooks';
import { path } from '../lib/address';
import { now, zone } from '../lib/clock';
import { runName } from '../lib/crumb';
import { firing, waiting, watchDuty } from '../lib/duty';
import { quoteValue } from '../lib/filter';
import { sheetOpen } from '../lib/keys';
import { parseRoute, runPath, runsPath, type Scope } from '../lib/route';
import { lostSince } from '../lib/stream';
import { nextTheme, theme } from '../lib/theme';
import { formatSecond, formatSpan } from '../lib/time';
import { Mark, ThemeIcon, WarnIcon } from './icons';
import { Link } from './link';
import { Name } from './name';
import { Search } from './search';
import { Who } from './who';

function Crumbs({ scope }: { scope: Scope }) {
  const filtered = (key: string, value: string) =>
    `/runs?f=${encodeURIComponent(`${key}:${quoteValue(value)}`)}`;
  const route = parseRoute(path.value);
  return (
    <nav class="crumbs" aria-label="Breadcrumb">
      {scope.organization && (
        <Link href={filtered('organization', scope.organization)}>
          <Name text={scope.organization} limit={24} />
        </Link>
      )}
      {scope.workspace && (
        <Link href={filtered('workspace', scope.workspace)}>
          <Name text={scope.workspace} limit={24} />
        </Link>
      )}
      <Link href={runsPath(scope)} class={route.page === 'runs' ? 'here' : ''}>
        {scope.project ? <Name text={scope.project} limit={24} /> : 'no project'}
      </Link>
      {route.page === 'run' && (
        <Link href={runPath(scope, route.runId)} class="here">
          <Name text={runName.value || route.runId} limit={32} />
        </Link>
      )}
    </nav>
  );
}

/** How many, beside the name of their page. */
function Count({ value, what, tone = '' }: { value: number; what: string; tone?: string }) {
  return (
    <span class={`count ${tone}`}>
      {value > 999 ? '999+' : value}
      <span class="unseen"> {what}</span>
    </span>
  );
}

/** The bar. */
export function TopBar() {
  useEffect(watchDuty, []);
  const route = parseRoute(path.value);
  const scope = route.page === 'runs' || route.page === 'run' ? route.scope : null;
  return (
    <header class="top-bar">
      <div class="place">
        <Link href="/runs" class="brand" title="All runs">
          <Mark />
          truegauge
        </Link>
        {scope && <Crumbs scope={scope} />}
      </div>
      <nav class="pages" aria-label="Pages">
        <Link href={runsPath(scope)} current={route.page === 'runs' || route.page === 'run'}>
          Runs
        </Link>
        <Link href="/fleet" current={route.page === 'fleet' || route.page === 'gpu'}>
          Fleet
        </Link>
        <Link href="/inference" current={route.page === 'inference'}>
          Inference
        </Link>
        <Link href="/alerts" current={route.page === 'alerts'}>
          Alerts
          {firing.value !== null && firing.value > 0 && (
            <Count value={firing.value} what="firing" tone="crit" />
          )}
        </Link>
        <Link href="/remediation" current={route.page === 'remediation'}>
          Remediation
          {waiting.value !== null && waiting.value > 0 && <Count value={waiting.value} what="waiting" />}
        </Link>
        <Link href="/explore" current={route.page === 'explore'}>
          Explore
        </Link>
        <Link href="/calc" current={route.page === 'calc'}>
          Calculators
        </Link>
      </nav>
      <div class="right">
        {lostSince.value !== null && (
          <span class="lost" role="status">
            <WarnIcon /> not connected since {formatSecond(lostSince.value, zone.value)} (
            {formatSpan(Math.max(1, (now.value - lostSince.value) / 1000))}), trying again
          </span>
        )}
        <Search />
        <Who />
        <button
          type="button"
          class="plain"
          aria-label="Keys"
          title="Keys (?)"
          onClick={() => (sheetOpen.value = true)}
        >
          ?
        </button>
        <button
          type="button"
          class="plain"
          aria-label={`Theme: ${theme.value}`}
          title={`Theme: ${theme.value}`}
          onClick={nextTheme}
        >
          <ThemeIcon />
        </button>
      </div>
    </header>
  );
}
