/** Views of the list of runs that were given a name: what the address holds, kept in this browser. */
import { signal } from '@preact/signals';

/** What of the address makes up a view. */
export const VIEW_PARAMS = ['f', 'state', 'sort', 'cols', 'metric'] as const;

/** A named view. */
export interface View {
  name: string;
  params: Record<string, string>;
}

const STORED = 'truegauge.views';
const VIEWS_MAX = 50;
const NAME_MAX = 60;

/** Reads what was stored; what is no list of views is none. */
export function parseViews(text: string | null): View[] {
  try {
    const found: unknown = JSON.parse(text ?? '[]');
    if (!Array.isArray(found)) return [];
    return found.flatMap((one: unknown) => {
      if (typeof one !== 'object' || one === null || !('name' in one) || typeof one.name !== 'string')
        return [];
      const given = 'params' in one && typeof one.params === 'object' ? { ...one.params } : {};
      const params = VIEW_PARAMS.flatMap((key) => {
        const value = (given as Record<string, unknown>)[key];
        return typeof value === 'string' && value !== '' ? [[key, value] as const] : [];
      });
      return [{ name: one.name.slice(0, NAME_MAX), params: Object.fromEntries(params) }];
    });
  } catch {
    return [];
  }
}

function read(): View[] {
  try {
    return parseViews(window.localStorage.getItem(STORED));
  } catch {
    // Storage is off: views last as long as the page.
    return [];
  }
}

/** The views, in order of name. */
export const views = signal(read());

function keep(next: View[]): void {
  views.value = next.toSorted((a, b) => a.name.localeCompare(b.name)).slice(0, VIEWS_MAX);
  try {
    window.localStorage.setItem(STORED, JSON.stringify(views.value));
  } catch {
    // As above.
  }
}

/** Keeps a view, in place of one of that name. */
export function saveView(view: View): void {
  keep([
    ...views.peek().filter((v) => v.name !== view.name),
    { ...view, name: view.name.slice(0, NAME_MAX) },
  ]);
}

/** Forgets a view. */
export function forgetView(name: string): void {
  keep(views.peek().filter((v) => v.name !== name));
}

/** Whether two views show the same. */
export function sameView(a: Record<string, string>, b: Record<string, string>): boolean {
  return VIEW_PARAMS.every((key) => (a[key] ?? '') === (b[key] ?? ''));
}
