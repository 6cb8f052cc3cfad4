/** Shapes of alerts beside those that every page has. */
import { CritIcon, InfoIcon, WarnIcon } from '../components/icons';
import type { Section } from './words';
import { tone } from './words';

/** Outlined diamond: pending. */
export const PendingIcon = () => (
  <svg class="icon" width="14" height="14" viewBox="0 0 16 16" fill="none" aria-hidden="true">
    <path d="M8 1.8 14.2 8 8 14.2 1.8 8z" stroke="currentColor" stroke-width="1.6" />
  </svg>
);

/** Struck speaker: silenced. */
export const SilencedIcon = () => (
  <svg
    class="icon"
    width="14"
    height="14"
    viewBox="0 0 16 16"
    fill="none"
    stroke="currentColor"
    stroke-width="1.4"
    aria-hidden="true"
  >
    <path d="M2 6v4h2.6L8 13V3L4.6 6z" stroke-linejoin="round" />
    <path d="m10.6 5.8 4 4.4m0-4.4-4 4.4" stroke-linecap="round" />
  </svg>
);

/** The shape of an alert's state, and of its severity while it fires; the word for those who hear it. */
export function AlertIcon({ section, severity }: { section: Section; severity: string }) {
  const kind = tone(severity);
  return (
    <span class={`alert-icon ${section} ${kind}`}>
      {section === 'pending' ? (
        <PendingIcon />
      ) : section === 'silenced' ? (
        <SilencedIcon />
      ) : kind === 'crit' ? (
        <CritIcon />
      ) : kind === 'warn' ? (
        <WarnIcon />
      ) : (
        <InfoIcon />
      )}
      <span class="unseen">{section}</span>
    </span>
  );
}

/** A page with a column at its right. */
export const SideIcon = () => (
  <svg
    class="icon"
    width="14"
    height="14"
    viewBox="0 0 16 16"
    fill="none"
    stroke="currentColor"
    aria-hidden="true"
  >
    <rect x="1.5" y="2.5" width="13" height="11" rx="1.5" stroke-width="1.4" />
    <path d="M10 3v10" stroke-width="1.4" />
  </svg>
);
