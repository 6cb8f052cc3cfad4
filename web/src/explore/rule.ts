/** A query as a rule of Prometheus' file format. */
import { wordsOf } from './words';

/** An alert, or a series that is recorded. */
export type RuleKind = 'alert' | 'record';

/** What is filled in. */
export interface RuleForm {
  kind: RuleKind;
  query: string;
  name: string;
  /** How long the condition holds before it fires; alerts only. */
  pending: string;
  severity: string;
  /** Compares the query, such as `> 0.5`; empty where it compares itself; alerts only. */
  condition: string;
}

const COMPARES = /^([=!]=|[<>]=?)$/;

/** Whether a query itself says when something is wrong: it compares, or asks for what is not there. */
export function hasCondition(query: string): boolean {
  let depth = 0;
  for (const { kind, text } of wordsOf(query)) {
    if (kind === 'call' && /^absent(_over_time)?$/.test(text)) return true;
    if (kind !== 'sign') continue;
    if ('([{'.includes(text)) depth++;
    else if (')]}'.includes(text)) depth--;
    else if (depth === 0 && COMPARES.test(text)) return true;
  }
  return false;
}

const nameOf = (query: string) => wordsOf(query).find((w) => w.kind === 'name')?.text ?? 'query';

/** A name in the manner of Prometheus: `level:metric:operation`, or `MetricCondition`. */
export function suggestedName(query: string, kind: RuleKind): string {
  const words = wordsOf(query);
  const metric = nameOf(query);
  if (kind === 'alert') {
    const parts = metric.replace(/_(total|bucket|sum|count)$/, '').split(/[^a-zA-Z0-9]+/);
    const name = parts.map((p) => p.charAt(0).toUpperCase() + p.slice(1)).join('');
    return /^[A-Z]/.test(name) ? name : `Rule${name}`;
  }
  const by = words.findIndex((w) => /^by$/i.test(w.text));
  const labels: string[] = [];
  for (const word of by < 0 ? [] : words.slice(by + 1)) {
    if (word.text === ')') break;
    if (word.kind === 'label') labels.push(word.text);
  }
  const call = words.find((w) => w.kind === 'call')?.text.toLowerCase() ?? 'value';
  const window = words.find((w) => w.kind === 'number' && /[a-z]$/.test(w.text))?.text ?? '';
  const level = labels.join('_') || 'all';
  return `${level}:${metric.replace(/_total$/, '').replace(/\W/g, '_')}:${call}${window}`;
}

/** A text as a double-quoted scalar of YAML. */
const scalar = (text: string) => JSON.stringify(text);

/** The rule as a whole file. */
export function ruleYaml({ kind, query, name, pending, severity, condition }: RuleForm): string {
  const compared = kind === 'alert' && condition !== '' ? `(\n${query}\n) ${condition}` : query;
  const lines = compared.split('\n').map((line) => `          ${line}`.trimEnd());
  const head = `groups:\n  - name: explore\n    rules:\n      - ${kind}: ${scalar(name)}\n        expr: |-\n${lines.join('\n')}\n`;
  if (kind === 'record') return head;
  const held = pending ? `        for: ${pending}\n` : '';
  return `${head}${held}        labels:\n          severity: ${scalar(severity)}\n        annotations:\n          summary: ${scalar(`${name}: {{ $value }}`)}\n`;
}

/** Why a name can't be one; empty when it can. */
export function nameProblem(name: string, kind: RuleKind): string {
  if (name.trim() === '') return 'a rule needs a name';
  if (kind === 'record' && !/^[a-zA-Z_:][a-zA-Z0-9_:]*$/.test(name))
    return 'a recorded series has letters, digits, `_` and `:` in its name, and no digit first';
  return '';
}
