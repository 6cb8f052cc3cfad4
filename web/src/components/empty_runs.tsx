/** No run yet: how to start one, and a line that says we listen. */
import { lostSince } from '../lib/stream';
import { Snippet } from './snippet';

/** The empty state of the run list. */
export function EmptyRuns() {
  return (
    <section class="empty">
      <h2>No runs yet</h2>
      <p>A training script that logs to this server shows up here by itself.</p>
      <Snippet />
      <p class="waiting" role="status">
        <span class="dot" />{' '}
        {lostSince.value === null ? 'waiting for the first point' : 'not connected, trying again'}
      </p>
    </section>
  );
}
