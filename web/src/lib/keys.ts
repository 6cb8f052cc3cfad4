/** The one registry of keys: what it binds is what the sheet shows. */
import { signal } from '@preact/signals';

/** A key and what it does. */
export interface Binding {
  /** As `KeyboardEvent.key`, with `Ctrl+` and `Shift+` (such with `Ctrl+` act in text, too); two keys of a sequence with a space, such as `g r`. */
  keys: string;
  /** What it does, for the sheet. */
  does: string;
  /** Where it belongs on the sheet. */
  group: string;
  /** Does it; `false` lets the key go on to the browser. */
  run: (event: KeyboardEvent) => unknown;
}

const SWITCH = 'truegauge.keys';
const bindings = signal<Binding[]>([]);

/** Whether single letters act; switched in the sheet (WCAG 2.1.4). */
export const lettersOn = signal(readSwitch());
/** Whether the sheet is open. */
export const sheetOpen = signal(false);

function readSwitch(): boolean {
  try {
    return window.localStorage.getItem(SWITCH) !== 'off';
  } catch {
    return true;
  }
}

/** Lets single letters act, or not. */
export function switchLetters(on: boolean): void {
  lettersOn.value = on;
  try {
    window.localStorage.setItem(SWITCH, on ? 'on' : 'off');
  } catch {
    // Storage is off: the choice lasts until the tab is closed.
  }
}

/** What is bound now; a later binding shadows an earlier one of the same keys. */
export function bound(): Binding[] {
  const seen = new Map<string, Binding>();
  for (const binding of bindings.value) {
    seen.delete(binding.keys);
    seen.set(binding.keys, binding);
  }
  return [...seen.values()];
}

/** Binds keys until the returned function is called. */
export function bind(...more: Binding[]): () => void {
  bindings.value = [...bindings.value, ...more];
  return () => {
    bindings.value = bindings.value.filter((b) => !more.includes(b));
  };
}

/** Whether typing at this element is text. */
export function takesText(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target instanceof HTMLInputElement)
    return !['checkbox', 'radio', 'range', 'button'].includes(target.type);
  return (
    target.isContentEditable || target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement
  );
}

let prefix = '';

function nameOf(event: KeyboardEvent): string {
  const shifted = event.shiftKey && (event.key.length > 1 || event.key === ' ');
  const key = event.key === ' ' ? 'Space' : event.key;
  const command = event.ctrlKey || event.metaKey ? 'Ctrl+' : '';
  return command + (shifted ? `Shift+${key}` : key);
}

/** Whether the element itself acts on this key, so that a binding must not take it away. */
function actsItself(target: EventTarget | null, key: string): boolean {
  if (!(target instanceof HTMLElement) || (key !== 'Enter' && key !== 'Space')) return false;
  return target.closest('button, a[href], summary, input, [role=menuitem]') !== null;
}

/** Hands a key press to its binding. */
export function press(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.altKey) return;
  const key = nameOf(event);
  if (!key.startsWith('Ctrl+') && (takesText(event.target) || actsItself(event.target, key))) return;
  if (document.querySelector('dialog[open]') && key !== 'Escape' && key !== '?') return;
  if (key.length === 1 && key !== '?' && !lettersOn.value) return;
  const active = bound();
  const full = prefix ? `${prefix} ${key}` : key;
  const found = active.find((b) => b.keys === full) ?? active.find((b) => b.keys === key);
  prefix = !prefix && active.some((b) => b.keys.startsWith(`${key} `)) ? key : '';
  if (prefix || !found) return;
  if (found.run(event) !== false) event.preventDefault();
}
