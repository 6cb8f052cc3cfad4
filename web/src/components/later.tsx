/** A page that is loaded when it is first opened. */
import type { ComponentType } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Failure } from './failure';

/** Shows the page once it is here; its frame stands meanwhile. */
export function Later({ page }: { page: () => Promise<ComponentType> }) {
  const [Loaded, setLoaded] = useState<ComponentType | null>(null);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    page().then((found) => setLoaded(() => found), setError);
  }, [page]);
  if (Loaded) return <Loaded />;
  return (
    <main>
      <h1 class="page-bar">Loading</h1>
      {error !== null && <Failure error={error} retry={() => window.location.reload()} />}
    </main>
  );
}
