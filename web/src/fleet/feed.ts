/** Keeps a page that asks by itself up to date. */
import { effect, type ReadonlySignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { paced } from '../lib/pace';
import { follow } from '../lib/stream';

/** News are read at most so often, and asked for so often where none come. */
const NEWS_MS = 5000;
const POLL_MS = 10_000;

/** What a page asks of the server, and how it asks again. */
interface Asked {
  question: ReadonlySignal<unknown>;
  range: { live: ReadonlySignal<boolean> };
  load(): Promise<void>;
  end(): void;
}

/** Asks when the question changes and, while the page is live, when there is news or time went by. */
export function useFeed(page: Asked, title: string, topics = 'fleet'): void {
  useEffect(() => {
    document.title = `${title} · truegauge`;
    const refresh = paced(() => page.load(), NEWS_MS);
    const stopAsking = effect(() => {
      void page.question.value;
      queueMicrotask(() => void page.load());
    });
    const news = () => {
      if (page.range.live.peek()) refresh.ask();
    };
    const stopFollowing = follow(topics, news, true);
    const timer = setInterval(() => {
      if (!document.hidden) news();
    }, POLL_MS);
    return () => {
      stopAsking();
      stopFollowing();
      clearInterval(timer);
      refresh.end();
      page.end();
    };
  }, [page]);
}
