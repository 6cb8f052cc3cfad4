/** A run's tags, and their editor in place. */
import { useEffect, useRef } from 'preact/hooks';
import type { RunRow } from '../lib/answers';
import { visible } from '../lib/text';
import { Name } from './name';

const SHOWN = 4;

/** Shows the tags; while edited, each can be taken away and new ones typed. */
export function Tags(props: {
  row: RunRow;
  editing: boolean;
  edit: (runId: string | null) => void;
  change: (add: string[], remove: string[]) => void;
}) {
  const { row, editing } = props;
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (editing) field.current?.focus();
  }, [editing]);
  const keys = (event: KeyboardEvent) => {
    event.stopPropagation();
    const input = field.current!;
    if (event.key === 'Enter' && input.value.trim()) {
      props.change([input.value.trim()], []);
      input.value = '';
    } else if (event.key === 'Escape' || event.key === 'Enter') props.edit(null);
    else if (event.key === 'Backspace' && input.value === '' && row.tags.length > 0)
      props.change([], [row.tags[row.tags.length - 1]]);
    else return;
    event.preventDefault();
  };
  const shown = editing ? row.tags : row.tags.slice(0, SHOWN);
  return (
    <span class={editing ? 'tags editing' : 'tags'}>
      {shown.map((tag) => (
        <span class="tag" key={tag}>
          <Name text={tag} limit={20} />
          {editing && (
            <button
              type="button"
              aria-label={`Remove tag ${tag}`}
              onPointerDown={(e) => e.preventDefault()}
              onClick={() => props.change([], [tag])}
            >
              ×
            </button>
          )}
        </span>
      ))}
      {!editing && row.tags.length > SHOWN && (
        <span class="tag" title={visible(row.tags.join(', '))}>
          +{row.tags.length - SHOWN}
        </span>
      )}
      {editing && (
        <input
          ref={field}
          aria-label={`Add a tag to ${row.run}`}
          placeholder="tag, Enter"
          maxLength={64}
          onKeyDown={keys}
          onBlur={() => props.edit(null)}
        />
      )}
    </span>
  );
}
