/** What the server says of alerts, silences, deliveries and rules. Times are ms since the epoch. */
import { getProm } from '../explore/answer';
import type { Spelled } from '../lib/answers';
import { ask, askJson } from '../lib/api';

/** An alert that is pending or fires. */
export interface Alert {
  rule: string;
  file: string;
  labels: Record<string, string>;
  annotations: Record<string, string>;
  state: 'firing' | 'pending';
  since: number;
  value: Spelled;
  severity: string;
  /** Ids of the silences that keep it from being told. */
  silenced_by: string[];
  fingerprint: string;
  delivered: { time: number; to: string; result: string } | null;
}

/** Alerts that one cause raised. */
export interface AlertGroup {
  key: string;
  labels: Record<string, string>;
  count: number;
  severity: string;
  since: number;
  alerts: Alert[];
}

/** What is wrong now. */
export interface Summary {
  firing: number;
  pending: number;
  silenced: number;
  groups: AlertGroup[];
  rules: number;
  last_evaluation: number | null;
  errors: { rule: string; error: string }[];
  /** Unknown to who sees a part of all projects. */
  deliveries: { today: number | null; delivered: number | null };
}

/** Something that fired. */
export interface Firing {
  rule: string;
  labels: Record<string, string>;
  annotations: Record<string, string>;
  severity: string;
  start: number;
  /** `null` where it fires still. */
  end: number | null;
}

/** A firing's page. */
export interface HistoryAnswer {
  firings: Firing[];
  next: string | null;
}

/** What an alert's label has to be. */
export interface Matcher {
  name: string;
  value: string;
  is_regex: boolean;
  is_equal: boolean;
}

/** A silence. */
export interface Silence {
  id: string;
  matchers: Matcher[];
  starts_at: number;
  ends_at: number;
  comment: string;
  created_by: string;
  state: 'active' | 'pending' | 'expired';
}

/** A message to a receiver. */
export interface Delivery {
  id: number;
  time: number;
  group: string;
  receiver: string;
  kind: string;
  state: 'firing' | 'resolved';
  alerts: number;
  rules: string[];
  result: 'delivered' | 'failed' | 'waiting' | 'silenced' | 'dropped';
  status: number | null;
  took_ms: number | null;
  tries: number;
  error: string | null;
}

/** A page of them, the newest first. */
export interface DeliveriesAnswer {
  deliveries: Delivery[];
  next: string | null;
}

/** A rule as Prometheus' API has it. */
export interface PromRule {
  name: string;
  query: string;
  type: 'alerting' | 'recording';
  state?: string;
  health: string;
  lastError?: string;
  duration?: number;
  keepFiringFor?: number;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  alerts?: unknown[];
  lastEvaluation?: string;
  evaluationTime?: number;
}

/** A rule with its group. */
export interface Rule extends PromRule {
  file: string;
  group: string;
  interval: number;
}

/** How one test of a rule's file fared. */
export interface RuleTest {
  name: string;
  passed: boolean;
  error: string | null;
}

/** What is known of one rule beyond its text. */
export interface RuleDetail {
  runbook: string | null;
  tests: RuleTest[] | null;
  /** Why no tests are known. */
  tests_reason: string | null;
}

/** What a rule would have done on what is stored. */
export interface Backtest {
  /** What the condition compares, the series that went furthest first. */
  series: { labels: Record<string, string>; points: [number, Spelled][] }[];
  series_total: number;
  /** With the comparison as its text, such as `> 1.1`. */
  threshold: { value: Spelled; text: string }[];
  firings: { labels: Record<string, string>; from: number; to: number }[];
  pending: { labels: Record<string, string>; from: number; to: number }[];
  /** When nothing was stored. */
  gaps: { from: number; to: number }[];
  /** Why gaps are not known. */
  gaps_reason: string | null;
  total_seconds: number;
  step_seconds: number;
}

/** What is tried: a rule in force, or a text. */
export type Tried = { rule: string } | { expr: string; for_seconds: number };

const query = (fields: Record<string, string | number | null>) => {
  const text = new URLSearchParams();
  for (const [name, value] of Object.entries(fields)) if (value !== null) text.set(name, String(value));
  return text.toString();
};

/** Asks what is wrong now. */
export const askSummary = (signal?: AbortSignal) => askJson<Summary>('alerts/summary', { signal });

/** Asks what fired in a range. */
export const askHistory = (from: number, to: number, cursor: string | null, signal?: AbortSignal) =>
  askJson<HistoryAnswer>(
    `alerts/history?${query({ from: Math.round(from), to: Math.round(to), limit: 200, cursor })}`,
    { signal },
  );

/** Asks for the silences. */
export async function askSilences(signal?: AbortSignal): Promise<Silence[]> {
  return (await askJson<{ silences: Silence[] }>('silences', { signal })).silences;
}

/** Begins a silence and gives its id. */
export async function addSilence(silence: Omit<Silence, 'id' | 'state'>): Promise<string> {
  const made = await askJson<{ id: string }>('silences', { method: 'POST', body: JSON.stringify(silence) });
  return made.id;
}

/** Ends a silence. */
export async function endSilence(id: string): Promise<void> {
  await ask(`silences/${encodeURIComponent(id)}`, { method: 'DELETE' });
}

/** Asks for messages to receivers. */
export const askDeliveries = (limit: number, cursor: string | null, signal?: AbortSignal) =>
  askJson<DeliveriesAnswer>(`deliveries?${query({ limit, cursor })}`, { signal });

/** Asks for all rules. */
export async function askRules(signal?: AbortSignal): Promise<Rule[]> {
  const { groups } = await getProm<{
    groups: { name: string; file: string; interval: number; rules: PromRule[] }[];
  }>('rules', {}, signal);
  return groups.flatMap((g) =>
    g.rules.map((rule) => ({ ...rule, file: g.file, group: g.name, interval: g.interval })),
  );
}

/** Asks for one rule's tests and runbook. */
export const askRule = (name: string, signal?: AbortSignal) =>
  askJson<RuleDetail>(`rules/${encodeURIComponent(name)}`, { signal });

/** A file of rules that is saved in the server. */
export interface RuleFile {
  name: string;
  text: string;
  tests: string | null;
  /** Rules of other files that are out of force because of it. */
  replaces: string[];
}

const ruleFile = (name: string) => `rules/files/${encodeURIComponent(name)}`;

/** Asks for a saved file of rules. */
export const askRuleFile = (name: string) => askJson<RuleFile>(ruleFile(name));

/** Saves a file of rules, which is in force then; tests and what it replaces stay where they are not given. */
export async function saveRuleFile(name: string, file: Partial<Omit<RuleFile, 'name'>>): Promise<void> {
  await ask(ruleFile(name), { method: 'PUT', body: JSON.stringify(file) });
}

/** Takes a saved file of rules out of force for good. */
export async function removeRuleFile(name: string): Promise<void> {
  await ask(ruleFile(name), { method: 'DELETE' });
}

/** Tries a rule on what is stored. */
export const askBacktest = (tried: Tried, from: number, to: number, seconds: number, signal?: AbortSignal) =>
  askJson<Backtest>('rules/backtest', {
    method: 'POST',
    body: JSON.stringify({ ...tried, from: Math.round(from), to: Math.round(to), step_seconds: seconds }),
    signal,
  });
