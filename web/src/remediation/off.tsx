/** How remediation is begun where it is off. */
import { Sentence } from '../components/sentence';
import { copy } from '../lib/download';

const SETTINGS = '[remediation]\nmode = "dry_run"\npolicy_file = "remediation.toml"';

/** The sentence and the setting; `reason` is the server's own word. */
export function Off({ reason }: { reason: string | null }) {
  return (
    <div class="off">
      <p>
        Remediation is off: faults are shown, nothing is asked and nothing runs. A dry run plays a policy
        through, with every edge in the audit, and runs no command.
      </p>
      {reason && (
        <p class="quiet">
          <Sentence text={reason} />
        </p>
      )}
      <figure class="snippet">
        <figcaption>
          In the server’s settings
          <button type="button" onClick={() => void copy(SETTINGS, 'the setting')}>
            Copy
          </button>
        </figcaption>
        <pre tabIndex={0}>{SETTINGS}</pre>
      </figure>
    </div>
  );
}
