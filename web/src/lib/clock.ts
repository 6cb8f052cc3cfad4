/** Now, once a second while the tab is seen, and the zone that times are written in. */
import { computed, signal } from '@preact/signals';
import { param, setParams } from './address';
import type { Zone } from './time';

/** Milliseconds since the epoch, fresh to a second. */
export const now = signal(Date.now());

/** Keeps [`now`] fresh. The page calls it once: a module that is only imported leaves no timer behind. */
export function startClock(): void {
  const look = () => {
    if (!document.hidden) now.value = Date.now();
  };
  setInterval(look, 1000);
  document.addEventListener('visibilitychange', look);
}

/** UTC unless the address says `tz=local`. */
export const zone = computed<Zone>(() => (param('tz') === 'local' ? 'local' : 'utc'));

/** Switches between UTC and local time. */
export function switchZone(): void {
  setParams({ tz: zone.value === 'utc' ? 'local' : null });
}
