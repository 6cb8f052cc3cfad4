/** One message at a time about what the user's act did. */
import { signal } from '@preact/signals';
import { ApiError, errorLine } from './api';

/** A message. */
export interface Toast {
  text: string;
  /** An error stays until it is closed. */
  error: boolean;
  /** For the server's log; may be empty. */
  requestId: string;
  /** A way back. */
  undo: (() => void) | null;
}

const PLAIN_MS = 6000;

/** The message that is shown. */
export const toast = signal<Toast | null>(null);
let timer: ReturnType<typeof setTimeout> | undefined;

function show(next: Toast, forMs: number): void {
  clearTimeout(timer);
  toast.value = next;
  if (forMs > 0) {
    timer = setTimeout(() => {
      if (toast.value === next) toast.value = null;
    }, forMs);
  }
}

/** Tells what was done; with `undo`, it stays for `undoMs`. */
export function tell(text: string, undo: (() => void) | null = null, undoMs = 30_000): void {
  show({ text, error: false, requestId: '', undo }, undo ? undoMs : PLAIN_MS);
}

/** Tells what could not be done. */
export function tellError(what: string, error: unknown): void {
  const requestId = error instanceof ApiError ? error.requestId : '';
  show({ text: `${what}: ${errorLine(error)}`, error: true, requestId, undo: null }, 0);
}

/** Takes the message away. */
export function closeToast(): void {
  clearTimeout(timer);
  toast.value = null;
}
