/** The filter's grammar: tokens, `-` for not, `key:value`, comma for or, quotes for spaces. */

/** One condition of a filter. */
export interface Token {
  /** As it was typed. */
  raw: string;
  /** Whether it starts with `-`. */
  negated: boolean;
  /** Before the colon; empty for a bare word, which asks for a name that contains it. */
  key: string;
  /** How the value compares. */
  operator: '' | '>' | '<' | '>=' | '<=' | 'has' | 'absent';
  /** The alternatives. */
  values: string[];
}

/** Keys that every run has. */
export const KEYS = [
  'state',
  'run',
  'run_id',
  'tag',
  'host',
  'started',
  'elapsed',
  'step',
  'attempts',
  'points',
  'project',
  'workspace',
  'organization',
  'rank',
  'description',
] as const;

/** Cuts a text at `mark` outside quotes; there are no escapes. */
function splitOutside(text: string, mark: RegExp): string[] {
  const pieces = [''];
  let quoted = false;
  for (const char of text) {
    if (char === '"') quoted = !quoted;
    if (!quoted && mark.test(char)) pieces.push('');
    else pieces[pieces.length - 1] += char;
  }
  return pieces;
}

/** Cuts a filter at spaces outside quotes. */
export function splitTokens(text: string): string[] {
  return splitOutside(text, /\s/).filter((token) => token !== '');
}

/** Whether a quote is still open, so that a space belongs to the token. */
export function quoteOpen(text: string): boolean {
  return (text.match(/"/g)?.length ?? 0) % 2 === 1;
}

/** Puts quotes around a value that needs them; a quote inside can't be asked for and is left out. */
export function quoteValue(value: string): string {
  return /^[^\s",:]+$/.test(value) && !/^[-<>*]/.test(value) ? value : `"${value.replaceAll('"', '')}"`;
}

function unquote(text: string): string {
  return text.replaceAll('"', '');
}

/** Reads one token. */
export function parseToken(raw: string): Token {
  const negated = raw.length > 1 && raw.startsWith('-');
  const body = negated ? raw.slice(1) : raw;
  const [key, ...rest] = splitOutside(body, /:/);
  if (rest.length === 0 || key === '')
    return { raw, negated, key: '', operator: '', values: [unquote(body)] };
  const value = rest.join(':');
  const name = unquote(key);
  if (value === '*') return { raw, negated, key: name, operator: 'has', values: [] };
  if (value === '-') return { raw, negated, key: name, operator: 'absent', values: [] };
  const operator = (/^(>=|<=|>|<)/.exec(value)?.[0] ?? '') as Token['operator'];
  const values = splitOutside(value.slice(operator.length), /,/)
    .filter((v) => v !== '')
    .map(unquote);
  return { raw, negated, key: name, operator, values };
}

/** Reads a whole filter. */
export function parseFilter(text: string): Token[] {
  return splitTokens(text).map(parseToken);
}

/** Keys that the server named in warnings as unknown, with the nearest known key. */
export function unknownKeys(warnings: string[]): Map<string, string> {
  const found = new Map<string, string>();
  for (const warning of warnings) {
    const match = /unknown key `([^`]*)`(?:, nearest `([^`]*)`)?/.exec(warning);
    if (match) found.set(match[1], match[2] ?? '');
  }
  return found;
}
