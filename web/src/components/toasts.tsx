/** The message at the bottom left. */
import { closeToast, toast } from '../lib/toast';
import { CritIcon } from './icons';

/** Shows one message at a time. */
export function Toasts() {
  const now = toast.value;
  return (
    <div class="toasts" role="status" aria-live="polite">
      {now && (
        <div class={now.error ? 'toast error' : 'toast'}>
          {now.error && <CritIcon />}
          <span>{now.text}</span>
          {now.requestId && <code>request {now.requestId}</code>}
          {now.undo && (
            <button
              type="button"
              onClick={() => {
                const undo = now.undo!;
                closeToast();
                undo();
              }}
            >
              Undo
            </button>
          )}
          <button type="button" aria-label="Close the message" onClick={closeToast}>
            ×
          </button>
        </div>
      )}
    </div>
  );
}
