/** What could not be read, where it would have been. */
import { ApiError, errorLine } from '../lib/api';
import { CritIcon } from './icons';

/** The line, the hint, the request and a way to try again. */
export function Failure({ error, retry }: { error: unknown; retry: () => void }) {
  const hint = error instanceof ApiError ? error.hint : '';
  const request = error instanceof ApiError ? error.requestId : '';
  return (
    <div class="failure" role="alert">
      <p>
        <CritIcon /> cannot read: {errorLine(error)}
      </p>
      {hint && <p class="hint">{hint}</p>}
      <p class="hint">
        <button type="button" onClick={retry}>
          Try again
        </button>
        {request && <code>request {request}</code>}
      </p>
    </div>
  );
}
