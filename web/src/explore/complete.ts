/** What a half-typed query may become: names, labels and values of this server. */
import { isAbort } from '../lib/api';
import { getProm } from './answer';
import { type Described, selectorOf } from './catalogue';
import { type Context, contextAt } from './words';

/** One completion. */
export interface Option {
  text: string;
  /** What replaces the word. */
  insert: string;
  /** Unit, kind or number beside it. */
  note: string;
  help: string;
}

/** Completions and what they replace. */
export interface Options {
  context: Context;
  options: Option[];
}

const OPTIONS_MAX = 50;
const VALUES_MAX = 2000;

/** Those that begin with what is typed, then those that contain it. */
export function matching(options: Option[], typed: string): Option[] {
  const wanted = typed.toLowerCase();
  const place = (o: Option) => o.text.toLowerCase().indexOf(wanted);
  return options
    .filter((o) => place(o) >= 0 && o.text !== typed)
    .sort((a, b) => Number(place(a) > 0) - Number(place(b) > 0))
    .slice(0, OPTIONS_MAX);
}

/** A text between the quotes of `query` at `from`. */
function quoted(value: string, quote: string): string {
  if (quote === '`') return value.replaceAll('`', '');
  return JSON.stringify(value)
    .slice(1, -1)
    .replaceAll('\\"', quote === '"' ? '\\"' : '"')
    .replaceAll("'", quote === "'" ? "\\'" : "'");
}

/** Finds completions; what the server is asked is remembered while the page is open. */
export class Completer {
  private readonly lists = new Map<string, Promise<string[]>>();

  constructor(private readonly metrics: () => Described[]) {}

  /** What may stand at `at`; `null` for nothing. */
  async at(query: string, at: number): Promise<Options | null> {
    const context = contextAt(query, at);
    if (!context) return null;
    const all = await this.all(context, query).catch((error: unknown) => {
      if (isAbort(error)) throw error;
      return [];
    });
    const options = matching(all, context.typed);
    return options.length > 0 ? { context, options } : null;
  }

  private async all(context: Context, query: string): Promise<Option[]> {
    if (context.wants === 'metric') {
      if (context.typed === '') return [];
      return this.metrics().map((m) => ({
        text: m.name,
        insert: selectorOf(m.name),
        note: [m.unit || m.kind, m.series ?? ''].filter((t) => t !== '').join(' · '),
        help: m.help,
      }));
    }
    const selector: Record<string, string> = context.metric ? { 'match[]': selectorOf(context.metric) } : {};
    if (context.wants === 'label') {
      const names = await this.list('labels', selector);
      return names
        .filter((n) => n !== '__name__')
        .map((text) => ({ text, insert: text, note: '', help: '' }));
    }
    const path = `label/${encodeURIComponent(context.label)}/values`;
    const values = await this.list(path, { ...selector, limit: String(VALUES_MAX) });
    const quote = query[context.from - 1];
    return values.map((text) => ({ text, insert: quoted(text, quote), note: '', help: '' }));
  }

  private list(path: string, query: Record<string, string>): Promise<string[]> {
    const key = JSON.stringify([path, query]);
    const known = this.lists.get(key);
    if (known) return known;
    const asked = getProm<string[]>(path, query);
    this.lists.set(key, asked);
    asked.catch(() => this.lists.delete(key));
    return asked;
  }
}
