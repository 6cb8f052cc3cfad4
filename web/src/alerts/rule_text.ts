/** An alerting rule as a file of Prometheus' format. */

/** What is filled in, and what a rule that is edited has beside it. */
export interface AlertText {
  group: string;
  name: string;
  expr: string;
  /** How long the condition holds before it fires; empty for not at all. */
  held: string;
  /** How long it goes on firing; empty for not at all. */
  kept: string;
  labels: Record<string, string>;
  annotations: Record<string, string>;
}

/** A text as a double-quoted scalar of YAML. */
const scalar = (text: string) => JSON.stringify(text);

const key = (text: string) => (/^[a-zA-Z_]\w*$/.test(text) ? text : scalar(text));

function mapping(name: string, entries: Record<string, string>): string {
  const lines = Object.entries(entries).map(([k, v]) => `          ${key(k)}: ${scalar(v)}\n`);
  return lines.length > 0 ? `        ${name}:\n${lines.join('')}` : '';
}

/** The file. */
export function alertYaml({ group, name, expr, held, kept, labels, annotations }: AlertText): string {
  const lines = expr.split('\n').map((line) => `          ${line}`.trimEnd());
  return [
    `groups:\n  - name: ${scalar(group)}\n    rules:\n      - alert: ${scalar(name)}\n`,
    `        expr: |-\n${lines.join('\n')}\n`,
    held ? `        for: ${held}\n` : '',
    kept ? `        keep_firing_for: ${kept}\n` : '',
    mapping('labels', labels),
    mapping('annotations', annotations),
  ].join('');
}
