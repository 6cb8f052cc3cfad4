/** Now, once a second while the tab is seen, and the zone that times are written in. */
import { computed, signal } from '@preact/signals';
import { param, setParams } from './address';
import type { Zone } from './time';

/** Milliseconds since the epoch, fresh to a second. */
export const now = signal(Date.now());

setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1000);

document.addEventListener('visibilitychange', () => {
  if (!document.hidden) now.value = Date.now();
});

/** UTC unless the address says `tz=local`. */
export const zone = computed<Zone>(() => (param('tz') === 'local' ? 'local' : 'utc'));

/** Switches between UTC and local time. */
export function switchZone(): void {
  setParams({ tz: zone.value === 'utc' ? 'local' : null });
}
