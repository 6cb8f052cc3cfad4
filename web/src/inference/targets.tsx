/** Targets that are down, with what the last scrape met; and a page without any engine. */
import { Name } from '../components/name';
import { Block } from '../components/snippet';
import { now } from '../lib/clock';
import { visible } from '../lib/text';
import { formatAge } from '../lib/time';
import type { Inference } from './model';

const SHOWN_MAX = 50;

const ago = (time: number | null) =>
  time === null ? '' : `, last scraped ${formatAge(Math.max(0, (now.value - time) / 1000))} ago`;

/** Engines that are down, and targets of which nobody knows yet what they are. */
export function Down({ page }: { page: Inference }) {
  const { engines, others } = page.down.value;
  if (engines.length === 0 && others.length === 0) return null;
  return (
    <section class="panel down" aria-label="Targets down" id="down">
      <h2>Targets down</h2>
      <ul>
        {engines.slice(0, SHOWN_MAX).map((t) => (
          <li key={`${t.job} ${t.instance}`}>
            <b>
              <Name text={t.instance} />
            </b>{' '}
            <span class="quiet">
              {visible(t.engine)}, job <Name text={t.job} limit={32} />
              {ago(t.last_scrape)}
            </span>
            <pre>{visible(t.error ?? 'it sends nothing in this window')}</pre>
          </li>
        ))}
        {others.slice(0, SHOWN_MAX).map((t) => (
          <li key={t.scrapeUrl}>
            <b>
              <Name text={t.scrapeUrl} limit={64} />
            </b>{' '}
            <span class="quiet">never answered: whether it is an engine is not known</span>
            <pre>{visible(t.lastError)}</pre>
          </li>
        ))}
      </ul>
      {engines.length + others.length > SHOWN_MAX && <p class="quiet">The first {SHOWN_MAX} are shown.</p>}
    </section>
  );
}

/** How engines come here. */
export function EmptyInference() {
  const { origin } = window.location;
  return (
    <section class="empty">
      <h2>No engine is scraped yet</h2>
      <p>
        vLLM, SGLang, TGI, Triton, trtllm-serve, Dynamo, NIM and llama.cpp are known by the names on their
        pages: this server only has to be told where they are.
      </p>
      <div class="snippet">
        <Block title="Scraped by this server" text={'truegauge up --scrape http://engine-0:8000/metrics'} />
        <Block
          title="Where a Prometheus scrapes them already"
          text={`remote_write:\n  - url: ${origin}/api/v1/write\n    # authorization: {credentials: ...}   only when this server has a token`}
        />
      </div>
      <p class="waiting" role="status">
        Waiting for the first engine.
      </p>
    </section>
  );
}
