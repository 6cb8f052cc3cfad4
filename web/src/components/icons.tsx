/** Shapes that carry meaning: each state and severity differs in shape, not only in colour. */
import type { ComponentChildren } from 'preact';
import type { State } from '../lib/answers';

function Icon({ children, size = 14 }: { children: ComponentChildren; size?: number }) {
  return (
    <svg
      class="icon"
      width={size}
      height={size}
      viewBox="0 0 16 16"
      fill="none"
      stroke="currentColor"
      stroke-width="1.6"
      stroke-linecap="round"
      stroke-linejoin="round"
      aria-hidden="true"
    >
      {children}
    </svg>
  );
}

/** The mark of the product. */
export const Mark = () => (
  <Icon size={18}>
    <path d="M2.6 12.6a6.4 6.4 0 1 1 10.8 0" stroke-width="1.9" />
    <path d="m8 9.6 3-4.4" stroke-width="1.9" />
  </Icon>
);

const STATES: Record<State, () => ComponentChildren> = {
  running: () => (
    <>
      <circle cx="8" cy="8" r="6.2" />
      <path d="M6.6 5.4 10.8 8l-4.2 2.6z" fill="currentColor" stroke="none" />
    </>
  ),
  stale: () => (
    <>
      <circle cx="8" cy="8" r="6.2" stroke-dasharray="2.4 2.5" />
      <path d="M8 4.8V8l2 1.6" />
    </>
  ),
  failed: () => <path d="m3.8 3.8 8.4 8.4m0-8.4-8.4 8.4" stroke-width="2.2" />,
  finished: () => <path d="m3 8.6 3.2 3.2L13 4.6" stroke-width="1.9" />,
  paused: () => <path d="M5.6 4v8m4.8-8v8" stroke-width="2" />,
};

/** The shape of a state. */
export function StateIcon({ state }: { state: State }) {
  const draw = STATES[state];
  return (
    <span class={`state-icon ${state}`}>
      <Icon>{draw ? draw() : <circle cx="8" cy="8" r="4" />}</Icon>
    </span>
  );
}

/** A state as shape and word. */
export function StateMark({ state, pill = false }: { state: State; pill?: boolean }) {
  return (
    <span class={`state ${state}${pill ? ' pill' : ''}`}>
      <StateIcon state={state} />
      {state}
    </span>
  );
}

/** Light, dark or by the system. */
export const ThemeIcon = () => (
  <Icon size={16}>
    <circle cx="8" cy="8" r="6" />
    <path d="M8 2a6 6 0 0 1 0 12z" fill="currentColor" stroke="none" />
  </Icon>
);

/** Outlined triangle: a warning. */
export const WarnIcon = () => (
  <Icon>
    <path d="M8 2.4 14.4 13.4H1.6z" />
    <path d="M8 6.6v3M8 11.6v.1" />
  </Icon>
);

/** An i in a ring: worth knowing, nothing to do. */
export const InfoIcon = () => (
  <Icon>
    <circle cx="8" cy="8" r="6.2" />
    <path d="M8 7.4v3.4M8 5.1v.1" />
  </Icon>
);

/** A check: all is well. */
export const OkIcon = () => (
  <svg class="icon ok" width="14" height="14" viewBox="0 0 16 16" fill="none" aria-hidden="true">
    <path d="m3 8.6 3.2 3.2L13 4.6" stroke="currentColor" stroke-width="1.9" />
  </svg>
);

/** Filled diamond: an error. */
export const CritIcon = () => (
  <svg class="icon" width="14" height="14" viewBox="0 0 16 16" aria-hidden="true">
    <path d="M8 1 15 8l-7 7-7-7z" fill="currentColor" />
    <path d="M8 4.8v3.8M8 10.8v.2" stroke="var(--panel)" stroke-width="1.7" stroke-linecap="round" />
  </svg>
);

/** A disc (A) for what is counted as it is, half a disc (B) for what has a caveat, a ring (C) for what only hints, a struck ring (D) for what misleads alone. */
export function TrustIcon({ level }: { level: 'A' | 'B' | 'C' | 'D' }) {
  return (
    <svg class="icon" width="11" height="11" viewBox="0 0 12 12" aria-hidden="true">
      <circle
        cx="6"
        cy="6"
        r="4.4"
        fill={level === 'A' ? 'currentColor' : 'none'}
        stroke="currentColor"
        stroke-width="1.4"
      />
      {level === 'B' && <path d="M6 1.6a4.4 4.4 0 0 0 0 8.8z" fill="currentColor" />}
      {level === 'D' && <path d="m2.6 9.4 6.8-6.8" stroke="currentColor" stroke-width="1.4" />}
    </svg>
  );
}

/** Three dots. */
export const MoreIcon = () => (
  <svg class="icon" width="14" height="14" viewBox="0 0 16 16" fill="currentColor" aria-hidden="true">
    <circle cx="3" cy="8" r="1.4" />
    <circle cx="8" cy="8" r="1.4" />
    <circle cx="13" cy="8" r="1.4" />
  </svg>
);
