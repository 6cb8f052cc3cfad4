/** A server that no node reports to. */
import { Block } from '../components/snippet';

/** The agent's one command, and what to do where an exporter runs already. */
export function EmptyFleet() {
  const { origin } = window.location;
  return (
    <section class="empty">
      <h2>No node reports yet</h2>
      <p>One agent on each node tells what its GPUs do, who has them, and what the kernel says of them.</p>
      <div class="snippet">
        <Block
          title="On each node"
          text={`export TRUEGAUGE_TOKEN=            # only when this server has a token\ntruegauge agent --server ${origin}`}
        />
        <Block
          title="Where dcgm-exporter runs already"
          text={'truegauge up --scrape http://node-1:9400/metrics'}
        />
      </div>
      <p class="waiting" role="status">
        Waiting for the first node.
      </p>
    </section>
  );
}
