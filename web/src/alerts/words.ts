/** What alerts are called, how they are grouped, and which ones a filter keeps. */
import { wordsOf } from '../explore/words';
import { counted } from '../fleet/names';
import type { Spelled } from '../lib/answers';
import { parseFilter, parseToken, quoteValue, type Token } from '../lib/filter';
import { groupBy } from '../lib/group';
import { formatBrief } from '../lib/number';
import { labelText, shown } from '../lib/text';
import { formatAge, formatSpan } from '../lib/time';
import type { Alert, AlertGroup, Matcher, RuleDetail, Summary } from './answers';

/** Where an alert stands on the page. */
export type Section = 'firing' | 'pending' | 'silenced';

/** In their order. */
export const SECTIONS: Section[] = ['firing', 'pending', 'silenced'];

/** Alerts of one group that stand in one section. */
export interface Row {
  /** Tells rows apart. */
  key: string;
  section: Section;
  group: AlertGroup;
  alerts: Alert[];
}

/** How much an alert asks for: to be paged, a ticket, or nothing. */
export function tone(severity: string): 'crit' | 'warn' | 'info' {
  if (/^(page|critical|emergency|fatal)$/i.test(severity)) return 'crit';
  return /^(ticket|warn(ing)?|error|major|minor)$/i.test(severity) ? 'warn' : 'info';
}

/** A silenced alert is neither firing nor pending to those who look. */
export const sectionOf = (alert: Alert): Section => (alert.silenced_by.length > 0 ? 'silenced' : alert.state);

const WEIGHT = { crit: 0, warn: 1, info: 2 };

/** Groups by section: the heaviest first, then the newest. */
export function rowsOf(groups: AlertGroup[], keep: (alert: Alert) => boolean): Map<Section, Row[]> {
  const rows = new Map<Section, Row[]>(SECTIONS.map((s) => [s, []]));
  for (const group of groups) {
    const own = groupBy(group.alerts.filter(keep), sectionOf);
    for (const [section, alerts] of own)
      rows.get(section)!.push({ key: `${section} ${group.key}`, section, group, alerts });
  }
  for (const all of rows.values())
    all.sort(
      (a, b) =>
        WEIGHT[tone(heaviest(a.alerts))] - WEIGHT[tone(heaviest(b.alerts))] ||
        sinceOf(b.alerts) - sinceOf(a.alerts),
    );
  return rows;
}

/** The severity that weighs most. */
export function heaviest(alerts: Alert[]): string {
  return alerts.map((a) => a.severity).toSorted((a, b) => WEIGHT[tone(a)] - WEIGHT[tone(b)])[0] ?? '';
}

/** When the first of them began. */
export const sinceOf = (alerts: Alert[]) => Math.min(...alerts.map((a) => a.since));

/** Labels that tell where something is, in the order in which one says them; the others only if none is there. */
const SCOPE: [label: string, word: string][] = [
  ['run', ''],
  ['model_name', ''],
  ['model', ''],
  ['rank', 'rank'],
  ['pod', ''],
  ['replica', 'replica'],
  ['host', ''],
  ['gpu', 'GPU'],
  ['stage', 'stage'],
  ['instance', ''],
];

/** Labels that say nothing of the place. */
const PLACELESS = new Set([
  'alertname',
  'severity',
  'alertstate',
  'level',
  'uuid',
  'project',
  'workspace',
  'organization',
]);

/** `pretrain-7b, rank 17`: where it is, from its labels. */
export function scopeText(labels: Record<string, string>): string {
  const words = SCOPE.flatMap(([label, word]) => {
    const value = labels[label];
    return value ? [word ? `${word} ${shown(value, 12)}` : shown(value, 32)] : [];
  });
  if (words.length === 0 && labels.run_id) words.push(`run ${shown(labels.run_id, 16)}`);
  if (words.length > 0) return words.slice(0, 3).join(', ');
  const rest = Object.entries(labels).filter(([name]) => !PLACELESS.has(name));
  return shown(labelText(Object.fromEntries(rest.slice(0, 2))), 60);
}

/** What it says: its summary, else its description, else its labels. */
export const sentenceOf = (alert: Pick<Alert, 'annotations' | 'labels'>): string =>
  alert.annotations.summary ||
  alert.annotations.description ||
  labelText(Object.fromEntries(Object.entries(alert.labels).filter(([name]) => !PLACELESS.has(name))));

/** What a group has in common, in words; empty where that is only the rule. */
export function causeText(group: AlertGroup): string {
  if (group.key.startsWith('alertname=')) return '';
  const run = group.key.startsWith('run_id=') ? group.labels.run : undefined;
  return `cause: ${run ? `run ${run}` : group.key}`;
}

/** The labels that all of them share. */
export function sharedLabels(alerts: Alert[]): Record<string, string> {
  const [first, ...rest] = alerts;
  if (!first) return {};
  return Object.fromEntries(
    Object.entries(first.labels).filter(([name, value]) => rest.every((a) => a.labels[name] === value)),
  );
}

/** The rules of a row and how often each, the most frequent first. */
export function ruleCounts(alerts: Alert[]): [rule: string, count: number][] {
  const counts = new Map<string, number>();
  for (const alert of alerts) counts.set(alert.rule, (counts.get(alert.rule) ?? 0) + 1);
  return [...counts].sort(([, a], [, b]) => b - a);
}

/** A value of an alert; one that JSON spells is read. */
export function valueText(value: Spelled): string {
  if (typeof value === 'string') return value.replace(/^-/, '\u2212');
  return formatBrief(value);
}

/** The first comparison of an expression outside parentheses, such as `> 0.95`; empty where it has none. */
export function conditionOf(expr: string): string {
  let depth = 0;
  let found = '';
  let open = false;
  for (const { kind, text } of wordsOf(expr)) {
    if (kind === 'comment') continue;
    if (kind === 'sign' && '([{'.includes(text)) depth++;
    if (depth === 0 && kind === 'sign' && /^([=!]=|[<>]=?)$/.test(text)) open = true;
    if (open && depth === 0 && kind === 'call' && /^(and|or|unless)$/i.test(text)) break;
    if (open) found += kind === 'space' ? ' ' : text;
    if (kind === 'sign' && ')]}'.includes(text)) depth--;
  }
  return found.trim().replace(/^>=/, '≥').replace(/^<=/, '≤').slice(0, 40);
}

/** `> 0.95, 10 min`: what a rule waits for. */
export function waitsText(expr: string, seconds: number): string {
  const condition = conditionOf(expr);
  const held = seconds > 0 ? `for ${formatSpan(seconds).replace(/ 00 min$/, '')}` : 'at once';
  return condition ? `${condition}, ${held}` : held;
}

/** How long it has been so; of a pending one, out of how long. */
export function sinceText(row: Pick<Row, 'section' | 'alerts'>, now: number, heldSeconds: number): string {
  const seconds = Math.max(0, (now - sinceOf(row.alerts)) / 1000);
  if (row.section !== 'pending' || heldSeconds <= 0) return formatAge(seconds);
  const [unit, size] = heldSeconds >= 7200 ? ['h', 3600] : heldSeconds >= 60 ? ['min', 60] : ['s', 1];
  const of = Math.round(heldSeconds / size);
  return `${Math.min(of, Math.floor(seconds / size))} of ${of} ${unit}`;
}

/** `Nothing fires. 34 rules, last evaluation 4 s ago, 41 of 41 delivered.` */
export function calmSentence(summary: Summary, now: number): string {
  const looked =
    summary.last_evaluation === null
      ? 'none evaluated yet'
      : `last evaluation ${formatAge(Math.max(0, (now - summary.last_evaluation) / 1000))} ago`;
  const { today, delivered } = summary.deliveries;
  const told =
    today === null ? '' : today === 0 ? ', nothing to deliver today' : `, ${delivered} of ${today} delivered`;
  return `Nothing fires. ${counted(summary.rules, 'rule')}, ${looked}${told}.`;
}

/** How a rule's tests fared. */
export interface Tested {
  passed: number;
  failed: number;
  failures: string[];
}

/** The outcome of tests, counted; `null` where there are none, or nobody says. */
export function testedOf(detail: RuleDetail | null): Tested | null {
  const tests = detail?.tests ?? [];
  if (tests.length === 0) return null;
  const failed = tests.filter((t) => !t.passed);
  return {
    passed: tests.length - failed.length,
    failed: failed.length,
    failures: failed.map((t) => (t.error ? `${t.name}: ${t.error}` : t.name)),
  };
}

/** What a filter reads: an alert, or a firing that is over and has no file. */
export type Filtered = Pick<Alert, 'rule' | 'labels' | 'annotations' | 'severity'> &
  Partial<Pick<Alert, 'file' | 'state' | 'silenced_by'>>;

/** Keys that are no label, and what they read. */
const KEYS: Record<string, (alert: Filtered) => string[]> = {
  severity: (a) => [a.severity],
  rule: (a) => [a.rule],
  state: (a) => [a.silenced_by?.length ? 'silenced' : (a.state ?? '')],
  file: (a) => [a.file ?? ''],
};

const read = (alert: Filtered, key: string): string[] => {
  const own = Object.hasOwn(KEYS, key) ? KEYS[key](alert) : [alert.labels[key] ?? ''];
  return own.filter((v) => v !== '');
};

/** Exact, or with `*` anywhere for any text. */
function matches(value: string, wanted: string): boolean {
  if (!wanted.includes('*')) return value === wanted;
  const pieces = wanted.split('*').map((p) => p.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'));
  return new RegExp(`^${pieces.join('.*')}$`, 's').test(value);
}

function holds(token: Token, alert: Filtered): boolean {
  if (token.key === '') {
    const wanted = token.values[0].toLowerCase();
    return [alert.rule, ...Object.values(alert.labels), sentenceOf(alert)].some((v) =>
      v.toLowerCase().includes(wanted),
    );
  }
  const values = read(alert, token.key);
  if (token.operator === 'has') return values.length > 0;
  if (token.operator === 'absent') return values.length === 0;
  return token.values.some((wanted) => values.some((v) => matches(v, wanted)));
}

/** What a filter keeps. */
export function keeper(text: string): (alert: Filtered) => boolean {
  const tokens = parseFilter(text);
  return (alert) => tokens.every((token) => holds(token, alert) !== token.negated);
}

const alertsOf = (groups: AlertGroup[]) => groups.flatMap((g) => g.alerts);

/** Keys of a filter that no alert has. */
export function unknownKeys(text: string, groups: AlertGroup[]): Map<string, string> {
  const alerts = alertsOf(groups);
  const unknown = parseFilter(text).filter(
    ({ key }) => key !== '' && !Object.hasOwn(KEYS, key) && !alerts.some((a) => key in a.labels),
  );
  return new Map(alerts.length > 0 ? unknown.map(({ key }) => [key, '']) : []);
}

/** Keys, then values with how many alerts have them. */
export function completions(typed: string, groups: AlertGroup[]): { text: string; count: number | null }[] {
  const alerts = alertsOf(groups);
  const { negated } = parseToken(typed);
  const sign = negated ? '-' : '';
  const body = typed.slice(sign.length);
  const colon = body.indexOf(':');
  if (colon < 0) {
    const labels = alerts.flatMap((a) => Object.keys(a.labels)).filter((l) => l !== 'alertname');
    const keys = [...new Set([...Object.keys(KEYS), ...labels])].filter((k) => k.startsWith(body));
    return keys.map((k) => ({ text: `${sign}${k}:`, count: null }));
  }
  const key = body.slice(0, colon);
  const begun = body.slice(colon + 1).replaceAll('"', '');
  const counts = new Map<string, number>();
  for (const alert of alerts)
    for (const value of read(alert, key)) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts]
    .filter(([value]) => value.startsWith(begun))
    .sort(([, a], [, b]) => b - a)
    .map(([value, count]) => ({ text: `${sign}${key}:${quoteValue(value)}`, count }));
}

/** Labels by which a silence finds an alert again; what changes from evaluation to evaluation is left out. */
export function matchersOf(alert: Alert): Matcher[] {
  const labels = { alertname: alert.rule, ...alert.labels };
  return Object.entries(labels)
    .filter(([name]) => name !== 'alertstate')
    .map(([name, value]) => ({ name, value, is_regex: false, is_equal: true }));
}

/** A matcher as Alertmanager writes it. */
export function matcherText({ name, value, is_regex, is_equal }: Matcher): string {
  const sign = is_regex ? (is_equal ? '=~' : '!~') : is_equal ? '=' : '!=';
  return `${name}${sign}${JSON.stringify(value)}`;
}

/** Whether an alert has what all matchers ask for. */
export function isMatched(alert: Alert, matchers: Matcher[]): boolean {
  const labels: Record<string, string> = { alertname: alert.rule, ...alert.labels };
  return matchers.every(({ name, value, is_regex, is_equal }) => {
    const found = labels[name] ?? '';
    if (!is_regex) return (found === value) === is_equal;
    try {
      return new RegExp(`^(?:${value})$`, 's').test(found) === is_equal;
    } catch {
      return false;
    }
  });
}
