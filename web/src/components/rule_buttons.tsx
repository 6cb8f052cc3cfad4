/** What is done with a rule's text: downloaded or copied. */
import { copy, save } from '../lib/download';

/** The foot of a window that shows `yaml`, which a download calls `file`. */
export function RuleButtons(props: { yaml: string; file: string; disabled: boolean; label: string }) {
  const { yaml, file, disabled, label } = props;
  return (
    <footer>
      <button
        type="button"
        class="control"
        onClick={() => save(new Blob([yaml], { type: 'application/yaml' }), file)}
      >
        Download
      </button>
      <button type="button" class="primary" disabled={disabled} onClick={() => void copy(yaml, 'the rule')}>
        {label}
      </button>
    </footer>
  );
}
