/** What a half-typed query may become, as the server knows it. */
import { askJson, isAbort } from '../lib/api';
import { formatCount } from '../lib/number';

/** What the server says of one choice. */
interface Choice {
  text: string;
  insert: string;
  kind: 'metric' | 'label' | 'value' | 'function' | 'aggregation' | 'keyword' | 'duration';
  series?: number;
  values?: number;
  type?: string;
  unit?: string;
  arguments?: string;
  help?: string;
  caveat?: string;
}

/** What the server says of a place. Places are characters. */
interface Answer {
  wants: string;
  from: number;
  to: number;
  typed: string;
  options: Choice[];
}

/** One completion. */
export interface Option {
  text: string;
  /** What replaces the typed text. */
  insert: string;
  kind: Choice['kind'];
  /** Unit, kind or number beside it. */
  note: string;
  /** Type of a metric, arguments of a function. */
  about: string;
  help: string;
  caveat: string;
}

/** Completions of a text, and what they replace in it. */
export interface Options {
  /** The text that was asked for. */
  query: string;
  /** Indexes into it. */
  from: number;
  to: number;
  typed: string;
  options: Option[];
}

const LIMIT = 50;
/** Where all there is may be offered before anything is typed. */
const AT_ONCE = ['label', 'value', 'duration'];

/** Finds completions; a question that was not answered yet is called off by the next one. */
export class Completer {
  private controller = new AbortController();

  /** What may stand at `at`, an index into `query`; `null` for nothing. `wanted`: somebody asked for it. */
  async at(query: string, at: number, wanted = false): Promise<Options | null> {
    this.stop();
    const { signal } = this.controller;
    const cursor = [...query.slice(0, at)].length;
    const asked = new URLSearchParams({ query, cursor: String(cursor), limit: String(LIMIT) });
    try {
      return optionsOf(query, await askJson<Answer>(`complete?${asked}`, { signal }), wanted);
    } catch (error) {
      // A list that can't be had is no list: the query is typed without it.
      if (!isAbort(error)) return null;
      throw error;
    }
  }

  /** Calls off what was asked. */
  stop(): void {
    this.controller.abort();
    this.controller = new AbortController();
  }
}

/** The answer as a list; `null` where there is none to show. */
export function optionsOf(query: string, answer: Answer, wanted: boolean): Options | null {
  const nothingTyped = answer.typed === '' && !AT_ONCE.includes(answer.wants);
  if (answer.options.length === 0 || (nothingTyped && !wanted)) return null;
  const characters = [...query];
  const index = (place: number) => characters.slice(0, place).join('').length;
  return {
    query,
    from: index(answer.from),
    to: index(answer.to),
    typed: answer.typed,
    options: answer.options.map(optionOf),
  };
}

function optionOf(choice: Choice): Option {
  const { text, insert, kind } = choice;
  const known = choice.type === 'unknown' ? '' : (choice.type ?? '');
  return {
    text,
    insert,
    kind,
    note: noteOf(choice, known),
    about: choice.arguments ?? [known, choice.unit].filter(Boolean).join(', '),
    help: choice.help ?? '',
    caveat: choice.caveat ?? '',
  };
}

function noteOf({ kind, unit, series, values }: Choice, known: string): string {
  if (kind === 'metric')
    return [unit || known, formatCount(series ?? 0)].filter((part) => part !== '').join(' · ');
  if (kind === 'label') return `${formatCount(values ?? 0)} ${values === 1 ? 'value' : 'values'}`;
  if (kind === 'value') return formatCount(series ?? 0);
  return kind === 'duration' ? '' : kind;
}

/** `now`, which was typed on since the list was made, with a choice in it, and the cursor behind that. */
export function inserted(now: string, options: Options, insert: string): { text: string; cursor: number } {
  // What was typed since then lies inside what is replaced.
  const to = Math.max(options.from, options.to + now.length - options.query.length);
  return {
    text: now.slice(0, options.from) + insert + now.slice(to),
    cursor: options.from + insert.length,
  };
}
