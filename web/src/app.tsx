/** The shell: bar, page, and what floats above. */
import { useEffect, useLayoutEffect, useState } from 'preact/hooks';
import { KeySheet } from './components/key_sheet';
import { Later } from './components/later';
import { keptQuery } from './components/link';
import { Toasts } from './components/toasts';
import { TokenPrompt } from './components/token_prompt';
import { TopBar } from './components/top_bar';
import { open, path } from './lib/address';
import { inFlight, tokenEntered } from './lib/api';
import { bind, sheetOpen } from './lib/keys';
import { PAGES } from './lib/pages';
import { parseRoute, type Route, runPath } from './lib/route';
import { askRun } from './lib/runs';
import { nextTheme } from './lib/theme';
import { RunLoading, RunPage } from './pages/run';
import { RunsPage } from './pages/runs';

const explorePage = () => import('./pages/explore').then((m) => m.ExplorePage);

const fleetPage = () => import('./pages/fleet').then((m) => m.FleetPage);

const gpuPage = () => import('./pages/gpu').then((m) => m.GpuPage);

const inferencePage = () => import('./pages/inference').then((m) => m.InferencePage);

const loginPage = () => import('./pages/login').then((m) => m.LoginPage);

const comparePage = () => import('./pages/compare').then((m) => m.ComparePage);

const alertsPage = () => import('./pages/alerts').then((m) => m.AlertsPage);

const remediationPage = () => import('./pages/remediation').then((m) => m.RemediationPage);

const calcPage = () => import('./pages/calc').then((m) => m.CalcPage);

/** Everything. */
export function App() {
  useLayoutEffect(
    () =>
      bind(
        {
          keys: '?',
          does: 'This sheet',
          group: 'Everywhere',
          run: () => (sheetOpen.value = !sheetOpen.value),
        },
        ...PAGES.map(([letter, does, to]) => ({
          keys: `g ${letter}`,
          does,
          group: 'Everywhere',
          run: () => open(to + keptQuery()),
        })),
        { keys: 'g t', does: 'Next theme', group: 'Everywhere', run: nextTheme },
      ),
    [],
  );
  return (
    <>
      <TopBar />
      {inFlight.value > 0 && <div class="loading-bar" />}
      <Page route={parseRoute(path.value)} />
      <Toasts />
      <KeySheet />
      <TokenPrompt />
    </>
  );
}

function Page({ route }: { route: Route }) {
  useEffect(() => {
    if (route.page === 'home') open(`/runs${window.location.search}`, true);
  }, [route.page]);
  switch (route.page) {
    case 'runs':
      return <RunsPage key={JSON.stringify(route.scope)} scope={route.scope} />;
    case 'run':
      return <RunPage key={route.runId} scope={route.scope} runId={route.runId} tab={route.tab} />;
    case 'explore':
      return <Later page={explorePage} />;
    case 'fleet':
      return <Later page={fleetPage} />;
    case 'gpu':
      return <Later key={`${route.host} ${route.gpu}`} page={gpuPage} />;
    case 'inference':
      return <Later page={inferencePage} />;
    case 'login':
      return <Later page={loginPage} />;
    case 'compare':
      return <Later page={comparePage} />;
    case 'alerts':
      return <Later page={alertsPage} />;
    case 'remediation':
      return <Later page={remediationPage} />;
    case 'calc':
      return <Later page={calcPage} />;
    case 'short':
      return <ShortLink runId={route.runId} />;
    case 'home':
      return <main />;
    default:
      return (
        <main class="empty">
          <h1>No such page</h1>
          <p>
            Nothing lives at this address. <a href="/runs">All runs</a>
          </p>
        </main>
      );
  }
}

/** Finds where a run lives and goes there. */
function ShortLink({ runId }: { runId: string }) {
  const [error, setError] = useState<unknown>(null);
  const find = () => {
    askRun(runId)
      .then((run) => open(runPath(run, run.run_id) + window.location.search, true))
      .catch(setError);
  };
  useEffect(find, [runId, tokenEntered.value]);
  return <RunLoading runId={runId} error={error} retry={find} />;
}
