/** PromQL cut into words: for colours, and for the place of a mistake. */

/** What a word is. */
export type WordKind = 'name' | 'label' | 'call' | 'text' | 'number' | 'sign' | 'space' | 'comment';

/** A word and where it stands. */
export interface Word {
  kind: WordKind;
  text: string;
  from: number;
}

const LEXER =
  /(?<space>\s+)|(?<comment>#[^\n]*)|(?<text>"(?:\\[\s\S]|[^"\\])*"?|'(?:\\[\s\S]|[^'\\])*'?|`[^`]*`?)|(?<number>0[xX][\da-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?:[a-z]+\d*)*)|(?<name>[\p{L}_:][\p{L}\p{N}_:]*)|(?<sign>[=!]~|[=!<>]=|[\s\S])/uy;

/** What stands before a list of label names. */
const BEFORE_LABELS = /^(by|without|on|ignoring|group_left|group_right)$/i;

/** What makes the name before it a call. */
const CALLED = /^\s*(\(|(by|without)\s*\()/i;
/** Words of the grammar that stand alone; in braces they are names like any other. */
const KEYWORD = /^(bool|offset|and|or|unless|atan2|inf|nan)$/i;

/** Cuts a query into words, all of it: what is no PromQL becomes signs. */
export function wordsOf(query: string): Word[] {
  const words: Word[] = [];
  const open: ('labels' | 'matchers' | 'other')[] = [];
  let before = '';
  LEXER.lastIndex = 0;
  for (let match = LEXER.exec(query); match; match = LEXER.exec(query)) {
    const [text] = match;
    const from = match.index;
    const groups = match.groups!;
    const kind = (Object.keys(groups) as WordKind[]).find((k) => groups[k] !== undefined)!;
    if (text === '{') open.push('matchers');
    else if (text === '(') open.push(BEFORE_LABELS.test(before) ? 'labels' : 'other');
    else if (text === '}' || text === ')') open.pop();
    if (kind === 'name') {
      const inside = open[open.length - 1];
      const called = KEYWORD.test(text) || CALLED.test(query.slice(from + text.length));
      words.push({
        kind: inside === 'labels' || inside === 'matchers' ? 'label' : called ? 'call' : 'name',
        text,
        from,
      });
    } else words.push({ kind, text, from });
    if (kind !== 'space' && kind !== 'comment') before = text;
  }
  return words;
}

/** Metrics that a query names, in its order, among those that `exist`. */
export function metricsIn(query: string, exist: ReadonlySet<string>): string[] {
  const names = wordsOf(query).flatMap((w) => (w.kind === 'name' && exist.has(w.text) ? [w.text] : []));
  return [...new Set(names)];
}

/** A mistake and where it is. */
export interface Mistake {
  /** Index into the query. */
  at: number;
  line: number;
  column: number;
  reason: string;
}

/** Reads the place out of an error: line and column in bytes, both from 1; `null` when it names none. */
export function mistakeOf(query: string, error: string): Mistake | null {
  const match = /(\d+):(\d+): ((?:parse error|not supported): [\s\S]*)$/.exec(error);
  if (!match) return null;
  const line = Number(match[1]);
  const lines = query.split('\n');
  const start = lines.slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0);
  const bytes = new TextEncoder().encode(lines[line - 1] ?? '').subarray(0, Number(match[2]) - 1);
  const column = new TextDecoder().decode(bytes).length;
  return { at: Math.min(query.length, start + column), line, column: column + 1, reason: match[3] };
}

/** An error without what Prometheus puts before it. */
export function plainError(error: string): string {
  return error.replace(/^invalid parameter "query": /, '');
}
