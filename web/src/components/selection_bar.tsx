/** What can be done to the selected runs. */
import { useState } from 'preact/hooks';

/** Floats above the table. */
export function SelectionBar(props: {
  count: number;
  tag: (name: string) => void;
  compare: () => void;
  save: () => void;
  remove: () => void;
  clear: () => void;
}) {
  const [tagging, setTagging] = useState(false);
  const keys = (event: KeyboardEvent) => {
    const input = event.currentTarget as HTMLInputElement;
    event.stopPropagation();
    if (event.key === 'Enter' && input.value.trim()) props.tag(input.value.trim());
    if (event.key === 'Enter' || event.key === 'Escape') setTagging(false);
  };
  return (
    <div class="selection-bar" role="toolbar" aria-label="Selected runs">
      <b>{props.count} selected</b>
      <button type="button" onClick={props.compare}>
        Compare <kbd>c</kbd>
      </button>
      {tagging ? (
        <input
          aria-label="Tag for the selected runs"
          autofocus
          maxLength={64}
          placeholder="tag, Enter"
          onKeyDown={keys}
          onBlur={() => setTagging(false)}
        />
      ) : (
        <button type="button" onClick={() => setTagging(true)}>
          Add tag
        </button>
      )}
      <button type="button" onClick={props.save}>
        Export <kbd>e</kbd>
      </button>
      <button type="button" onClick={props.remove}>
        Delete <kbd>⌫</kbd>
      </button>
      <button type="button" class="quiet" onClick={props.clear}>
        Esc
      </button>
    </div>
  );
}
