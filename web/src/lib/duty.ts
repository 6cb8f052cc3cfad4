/** What waits for somebody, for the bar of every page: alerts that fire, and acts that want an approval. */
import { signal } from '@preact/signals';
import { paced } from './pace';
import { follow } from './stream';

/** Alerts that fire and are not silenced; `null` where nobody says. */
export const firing = signal<number | null>(null);
/** Acts that wait for an approval; `null` where nobody says. */
export const waiting = signal<number | null>(null);

/** How often the bar asks where no news come, how long it leaves the server to the page first, and its pace. */
const EVERY_MS = 60_000;
const FIRST_MS = 1000;
const NEWS_MS = 5000;

/** A number of the bar and where it comes from. */
interface Question {
  path: string;
  /** What tells that it may be another one. */
  topic: string;
  number: typeof firing;
  read: (answer: Record<string, unknown>) => unknown;
  /** When it was last told, by whoever asked. */
  told: number;
}

const QUESTIONS: Question[] = [
  {
    path: 'alerts/summary?brief=true',
    topic: 'alerts',
    number: firing,
    read: (a) => a.firing,
    told: -Infinity,
  },
  {
    path: 'remediation?brief=true',
    topic: 'remediation',
    number: waiting,
    read: (a) => a.waiting,
    told: -Infinity,
  },
];

/** Takes a number that a page has read anyway, so that the bar need not ask. */
export function tellDuty(number: typeof firing, count: number): void {
  number.value = count;
  for (const question of QUESTIONS) if (question.number === number) question.told = Date.now();
}

/** Whether somebody has told it within that time; a clock that was set back is no reason to wait. */
const isFresh = ({ told }: Question, ms: number) => Math.abs(Date.now() - told) < ms;

/** What comes of a question: news may follow, none will before a restart, or nobody tells one. */
type Outlook = 'news' | 'calm' | 'refused' | 'unknown';

/** Asks one; no sign of it is shown, and who may not know is not asked to log in. */
async function ask({ path, number, read }: Question): Promise<Outlook> {
  try {
    const answer = await fetch(`/api/tg/v1/${path}`);
    if (!answer.ok) return answer.status === 403 || answer.status === 404 ? 'refused' : 'unknown';
    const told = (await answer.json()) as Record<string, unknown>;
    const count = read(told);
    number.value = typeof count === 'number' ? count : null;
    return told.mode === 'off' ? 'calm' : 'news';
  } catch {
    // The page itself tells that the server does not answer.
    return 'unknown';
  }
}

/** Keeps one number up to date: asked for once, then with each news, and now and then for want of them. */
function watch(question: Question): () => void {
  let leave = () => {};
  let followed = false;
  let ended = false;
  let timer: ReturnType<typeof setInterval> | undefined;
  const look = async () => {
    if (document.hidden) return;
    const outlook = await ask(question);
    if (ended) return;
    if (outlook === 'refused') clearInterval(timer);
    else if (outlook === 'news' && !followed) {
      followed = true;
      leave = follow(question.topic, news.ask);
    }
  };
  // The page that tells it reads it with the same news.
  const news = paced(() => (isFresh(question, NEWS_MS) ? undefined : look()), NEWS_MS);
  const first = setTimeout(() => {
    timer = setInterval(() => {
      if (!isFresh(question, EVERY_MS / 2)) void look();
    }, EVERY_MS);
    void look();
  }, FIRST_MS);
  return () => {
    ended = true;
    clearTimeout(first);
    clearInterval(timer);
    news.end();
    leave();
  };
}

/** Keeps the numbers of the bar up to date until the returned function is called. */
export function watchDuty(): () => void {
  const ends = QUESTIONS.map(watch);
  return () => {
    for (const end of ends) end();
  };
}
