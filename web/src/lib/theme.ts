/** Light, dark, or as the system says; in the address and remembered. */
import { computed, effect, signal } from '@preact/signals';
import { param, setParams } from './address';

/** A choice of theme. */
export type Theme = 'system' | 'light' | 'dark';

const STORED = 'truegauge.theme';
const CHOICES: Theme[] = ['system', 'light', 'dark'];
const osDark = window.matchMedia('(prefers-color-scheme: dark)');
const systemDark = signal(osDark.matches);
osDark.addEventListener('change', () => {
  systemDark.value = osDark.matches;
});

function stored(): string {
  try {
    return window.localStorage.getItem(STORED) ?? '';
  } catch {
    return '';
  }
}

const remembered = signal(stored());

/** What was chosen. */
export const theme = computed<Theme>(() => {
  const wanted = param('theme') || remembered.value;
  return CHOICES.find((choice) => choice === wanted) ?? 'system';
});

/** Whether the page is dark now. */
export const dark = computed(() => theme.value === 'dark' || (theme.value === 'system' && systemDark.value));

/** Chooses the next theme: system, light, dark. */
export function nextTheme(): void {
  const next = CHOICES[(CHOICES.indexOf(theme.value) + 1) % CHOICES.length];
  remembered.value = next;
  try {
    window.localStorage.setItem(STORED, next);
  } catch {
    // Storage is off: the address still holds it.
  }
  setParams({ theme: next === 'system' ? null : next });
}

/** Goes up after the document has taken another theme: canvases read their colours again. */
export const themePainted = signal(0);

effect(() => {
  document.documentElement.dataset.theme = dark.value ? 'dark' : 'light';
  themePainted.value = themePainted.peek() + 1;
});

/** The value of a token now. A built style sheet writes `#fff` for `#ffffff`: a colour has its six digits again. */
export function token(name: string): string {
  const value = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return /^#[0-9a-f]{3}$/i.test(value) ? value.replace(/[0-9a-f]/gi, '$&$&') : value;
}
