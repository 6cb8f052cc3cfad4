/** A page, or a tab of a run, that is loaded when it is first opened. */
import type { ComponentType } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { Board } from '../charts/board';
import { Failure } from './failure';

/** What every tab of a run is given. */
export interface TabProps {
  board: Board;
}

/** The component once it is here, or why it can't be. */
function useLater<P>(load: () => Promise<ComponentType<P>>): [ComponentType<P> | null, unknown] {
  const [loaded, setLoaded] = useState<ComponentType<P> | null>(null);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    load().then((found) => setLoaded(() => found), setError);
  }, [load]);
  return [loaded, error];
}

const again = () => window.location.reload();

/** Shows the page once it is here; its frame stands meanwhile. */
export function Later({ page }: { page: () => Promise<ComponentType> }) {
  const [Loaded, error] = useLater(page);
  if (Loaded) return <Loaded />;
  return (
    <main>
      <h1 class="page-bar">Loading</h1>
      {error !== null && <Failure error={error} retry={again} />}
    </main>
  );
}

/** Shows a tab of a run once it is here. */
export function LaterTab({ tab, board }: TabProps & { tab: () => Promise<ComponentType<TabProps>> }) {
  const [Loaded, error] = useLater(tab);
  if (Loaded) return <Loaded board={board} />;
  return error === null ? null : <Failure error={error} retry={again} />;
}
