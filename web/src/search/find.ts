/** Finds what one can go to by a few words: runs, models, hosts, GPUs, rules and pages. */
import type { RunsAnswer } from '../lib/answers';
import { ApiError, askJson, isAbort, tokenEntered } from '../lib/api';
import { quoteValue } from '../lib/filter';
import { PAGES } from '../lib/pages';
import { calcPath, gpuPath, inferencePath, runPath } from '../lib/route';

/** Kinds of places, in the order in which equals stand. */
export const KINDS = ['page', 'run', 'model', 'host', 'GPU', 'rule'] as const;
/** One of them. */
export type Kind = (typeof KINDS)[number];

/** Somewhere to go. */
export interface Hit {
  kind: Kind;
  text: string;
  /** What tells it from others of its name. */
  note: string;
  href: string;
}

/** What was found, and what could not be asked. */
export interface Found {
  groups: { kind: Kind; hits: Hit[]; more: boolean }[];
  failed: string[];
}

/** Hits of a kind that are shown. */
const SHOWN = 5;
/** What the server is asked for at most, so that all words can be held against it here. */
const ASKED = 200;
/** Rules that were read are good for so long. */
const RULES_MS = 60_000;
/** How long ago a host or a model may have told of itself last, seconds. */
const SEEN_SECONDS = 7 * 86_400;

const CALCULATORS = ['economics', 'roofline', 'stream', 'mfu', 'goodput', 'ettr', 'capacity'];
const PLACES: Hit[] = [
  ...PAGES.map(([letter, text, href]): Hit => ({ kind: 'page', text, note: `g ${letter}`, href })),
  ...CALCULATORS.map(
    (tool): Hit => ({ kind: 'page', text: `Calculator ${tool}`, note: '', href: calcPath(tool) }),
  ),
];

/** What is shown before anything is typed. */
export const PLAIN: Found = {
  groups: [{ kind: 'page', hits: PLACES.slice(0, PAGES.length), more: false }],
  failed: [],
};

/** The words that all have to be there. */
export const wordsOf = (text: string) => text.toLowerCase().split(/\s+/).filter(Boolean);

/** How well a text fits: 0 is the text itself, 1 begins with it, 2 has a word that does, 3 has it; `null` not at all. */
export function fitOf(text: string, words: string[]): number | null {
  const low = text.toLowerCase();
  if (!words.every((word) => low.includes(word))) return null;
  const whole = words.join(' ');
  if (low === whole) return 0;
  if (low.startsWith(whole)) return 1;
  return words.every((word) => new RegExp(`(^|[^a-z0-9])${escaped(word)}`).test(low)) ? 2 : 3;
}

/** As a part of an expression, here and in PromQL, that means itself. */
const escaped = (text: string) => text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&');

/** A matcher for labels that contain the word, whatever its case. */
const contains = (label: string, word: string) => `${label}=~${JSON.stringify(`(?i).*${escaped(word)}.*`)}`;

const longest = (words: string[]) => words.toSorted((a, b) => b.length - a.length)[0];

async function prom<T>(path: string, query: [string, string][], signal: AbortSignal): Promise<T> {
  const since = Math.floor(Date.now() / 1000) - SEEN_SECONDS;
  const all = new URLSearchParams([...query, ['start', String(since)], ['limit', String(ASKED)]]);
  return (await askJson<{ data: T }>(`/api/v1/${path}?${all}`, { signal })).data;
}

async function runs(words: string[], signal: AbortSignal): Promise<Hit[]> {
  const query = new URLSearchParams({ filter: words.map(quoteValue).join(' '), limit: '20' });
  const byName = askJson<RunsAnswer>(`runs?${query}`, { signal });
  const id = words.length === 1 && /^[0-9a-f]{16}$/.test(words[0]) ? words[0] : null;
  const byId = id ? askJson<RunsAnswer['runs'][number]>(`runs/${id}`, { signal }).catch(() => null) : null;
  const [answer, one] = await Promise.all([byName, byId]);
  return [...(one ? [one] : []), ...answer.runs].map((run) => ({
    kind: 'run',
    text: run.run,
    note: [run.state, run.project, id ? run.run_id : ''].filter(Boolean).join(' · '),
    href: runPath(run, run.run_id),
  }));
}

async function models(words: string[], signal: AbortSignal): Promise<Hit[]> {
  const match = `{__name__=~"tg_engine_requests_running|tg_engine_up",${contains('model', longest(words))}}`;
  const found = await prom<string[]>('label/model/values', [['match[]', match]], signal);
  return found.filter(Boolean).map((model) => ({
    kind: 'model',
    text: model,
    note: 'Inference',
    href: inferencePath(model),
  }));
}

async function hosts(words: string[], signal: AbortSignal): Promise<Hit[]> {
  const match = `{__name__=~"tg_node_gpus|tg_gpu_info",${contains('host', longest(words))}}`;
  const found = await prom<string[]>('label/host/values', [['match[]', match]], signal);
  return found.map((host) => ({
    kind: 'host',
    text: host,
    note: 'Fleet',
    href: `/fleet?f=${encodeURIComponent(`host:${quoteValue(host)}`)}`,
  }));
}

async function cards(words: string[], signal: AbortSignal): Promise<Hit[]> {
  // "host-3 gpu 1" means a card of a host: the words that every card has say nothing.
  const telling = words.filter((word) => word !== 'gpu');
  const word = longest(telling.length > 0 ? telling : words);
  const match = ['host', 'uuid', 'gpu_model'].map((label): [string, string] => [
    'match[]',
    `tg_gpu_info{${contains(label, word)}}`,
  ]);
  const found = await prom<Record<string, string>[]>('series', match, signal);
  const byCard = new Map(found.map((labels) => [labels.uuid || `${labels.host}/${labels.gpu}`, labels]));
  return [...byCard.values()]
    .filter(({ gpu }) => gpu)
    .map(({ host, gpu, uuid = '', gpu_model: model = '' }) => ({
      kind: 'GPU',
      text: `${host} GPU ${gpu}`,
      note: [model, uuid].filter(Boolean).join(' · '),
      href: gpuPath(host, gpu, uuid),
    }));
}

interface RulesAnswer {
  data: { groups: { file: string; rules: { name: string; type: string }[] }[] };
}

/** The rules that were read, and the login that might see them. */
let known: { at: number; login: number; hits: Hit[] } | null = null;

async function rules(signal: AbortSignal): Promise<Hit[]> {
  const login = tokenEntered.peek();
  if (known?.login === login && Date.now() - known.at < RULES_MS) return known.hits;
  const { data } = await askJson<RulesAnswer>('/api/v1/rules?exclude_alerts=true', { signal });
  const byName = new Map<string, Hit>();
  for (const { file, rules: all } of data.groups)
    for (const { name, type } of all)
      byName.set(name, {
        kind: 'rule',
        text: name,
        note: `${type === 'alerting' ? 'alert' : 'recorded'} · ${file.replace(/^.*\//, '')}`,
        href: `/alerts?${new URLSearchParams({ tab: 'rules', rule: name })}`,
      });
  known = { at: Date.now(), login, hits: [...byName.values()] };
  return known.hits;
}

/** The best hits of each kind, the kind with the best one first. */
export function ranked(hits: Hit[], words: string[]): Found['groups'] {
  const fitting = hits.flatMap((hit) => {
    const fit = fitOf(hit.text, words) ?? (fitOf(`${hit.text} ${hit.note}`, words) === null ? null : 4);
    return fit === null ? [] : [{ hit, fit }];
  });
  return KINDS.flatMap((kind) => {
    const own = fitting.filter(({ hit }) => hit.kind === kind).sort((a, b) => a.fit - b.fit);
    if (own.length === 0) return [];
    const shown = own.slice(0, SHOWN).map(({ hit }) => hit);
    return [{ kind, hits: shown, more: own.length > SHOWN, best: own[0].fit }];
  })
    .sort((a, b) => a.best - b.best)
    .map(({ kind, hits: shown, more }) => ({ kind, hits: shown, more }));
}

/** Whether somebody is told no: what one may not see is not there for one. */
const isRefusal = (error: unknown) =>
  error instanceof ApiError && (error.status === 403 || error.status === 404);

/** Asks all that know something; one that fails leaves what the others found. */
export async function find(text: string, signal: AbortSignal): Promise<Found> {
  const words = wordsOf(text);
  if (words.length === 0) return PLAIN;
  const sources: [string, Promise<Hit[]>][] = [
    ['runs', runs(words, signal)],
    ['models', models(words, signal)],
    ['hosts', hosts(words, signal)],
    ['GPUs', cards(words, signal)],
    ['rules', rules(signal)],
  ];
  const failed: string[] = [];
  const hits = await Promise.all(
    sources.map(([name, asked]) =>
      asked.catch((error: unknown) => {
        if (isAbort(error)) throw error;
        if (!isRefusal(error)) failed.push(name);
        return [];
      }),
    ),
  );
  return { groups: ranked([...PLACES, ...hits.flat()], words), failed };
}
