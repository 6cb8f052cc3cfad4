/** The address bar as state: path and parameters are signals; unknown parameters are kept. */
import { computed, signal } from '@preact/signals';

const place = signal(read());

function read() {
  return { path: window.location.pathname, query: window.location.search };
}

window.addEventListener('popstate', () => {
  place.value = read();
});

/** The path now. */
export const path = computed(() => place.value.path);
/** The parameters now. */
export const params = computed(() => new URLSearchParams(place.value.query));

/** How deep in zooms this history entry is; 0 at the page's start. */
export function zoomDepth(): number {
  const state: unknown = window.history.state;
  return typeof state === 'object' && state !== null && 'zoom' in state ? Number(state.zoom) : 0;
}

/** Opens another page of this server. */
export function open(href: string, replace = false): void {
  if (replace) window.history.replaceState(null, '', href);
  else window.history.pushState(null, '', href);
  place.value = read();
}

/** One parameter of the address, or `fallback` when it is left out. */
export function param(name: string, fallback = ''): string {
  return params.value.get(name) ?? fallback;
}

/** A parameter that may be given several times. */
export function paramList(name: string): string[] {
  return params.value.getAll(name);
}

/** Sets parameters; `null` or nothing takes one out, a list repeats it. A zoom makes a history entry. */
export function setParams(changes: Record<string, string | string[] | null>, zoom = false): void {
  const next = new URLSearchParams(window.location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === '' || Array.isArray(value)) next.delete(name);
    else next.set(name, value);
    if (Array.isArray(value)) for (const one of value) next.append(name, one);
  }
  const query = next.toString();
  const href = window.location.pathname + (query ? `?${query}` : '');
  if (href === window.location.pathname + window.location.search) return;
  if (zoom) window.history.pushState({ zoom: zoomDepth() + 1 }, '', href);
  else window.history.replaceState(window.history.state, '', href);
  place.value = read();
}
