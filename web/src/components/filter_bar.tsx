/** The filter as tokens, with completion. */
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { parseToken, quoteOpen, splitTokens } from '../lib/filter';
import { bind } from '../lib/keys';
import { visible } from '../lib/text';

/** A completion and how many runs it would keep, if known. */
export interface Completion {
  text: string;
  count: number | null;
}

/** What the bar needs. */
export interface FilterBarProps {
  value: string;
  change: (value: string) => void;
  /** Completions of what is typed. */
  complete: (typed: string) => Completion[];
  /** Keys that the server does not know, with the nearest it does. */
  unknown: Map<string, string>;
}

/** The bar. */
export function FilterBar({ value, change, complete, unknown }: FilterBarProps) {
  const [typed, setTyped] = useState('');
  const [open, setOpen] = useState(false);
  const [at, setAt] = useState(-1);
  const field = useRef<HTMLInputElement>(null);
  useLayoutEffect(
    () => bind({ keys: '/', does: 'Filter', group: 'Everywhere', run: () => field.current?.focus() }),
    [],
  );
  const tokens = splitTokens(value);
  const options = open ? complete(typed).slice(0, 10) : [];
  const set = (next: string[]) => change(next.join(' '));
  const commit = (text: string) => {
    if (text.trim()) set([...tokens, ...splitTokens(text)]);
    setTyped('');
    setAt(-1);
  };
  const take = (option: Completion) => {
    if (option.text.endsWith(':')) setTyped(option.text);
    else commit(option.text);
    setAt(-1);
    field.current?.focus();
  };
  const edit = (index: number) => {
    setTyped(tokens[index]);
    set(tokens.filter((_, other) => other !== index));
    field.current?.focus();
  };
  const keys = (event: KeyboardEvent) => {
    if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      setOpen(true);
      const step = event.key === 'ArrowDown' ? 1 : -1;
      setAt((now) => (options.length ? (now + step + options.length) % options.length : -1));
    } else if ((event.key === 'Enter' || event.key === 'Tab') && at >= 0 && options[at]) take(options[at]);
    else if (event.key === 'Enter') commit(typed);
    else if (event.key === ' ' && typed.trim() && !quoteOpen(typed)) commit(typed);
    else if (event.key === 'Backspace' && typed === '' && tokens.length > 0) edit(tokens.length - 1);
    else if (event.key === 'Escape') {
      if (typed) setTyped('');
      else field.current?.blur();
      setOpen(false);
    } else return;
    event.preventDefault();
  };
  return (
    <div class="filter-bar" onClick={(e) => e.target === e.currentTarget && field.current?.focus()}>
      <span class="label" id="filter-label">
        Filter
      </span>
      {tokens.map((raw, index) => {
        const { key } = parseToken(raw);
        const nearest = unknown.get(key);
        return (
          <span
            class={nearest === undefined ? 'token' : 'token unknown'}
            key={`${index} ${raw}`}
            title={
              nearest === undefined ? undefined : `unknown key ${key}${nearest ? `, nearest ${nearest}` : ''}`
            }
          >
            <button type="button" aria-label={`Edit ${visible(raw)}`} onClick={() => edit(index)}>
              <TokenText raw={raw} />
            </button>
            <button
              type="button"
              class="remove"
              aria-label={`Remove ${visible(raw)}`}
              onClick={() => set(tokens.filter((_, other) => other !== index))}
            >
              ×
            </button>
          </span>
        );
      })}
      <input
        ref={field}
        value={typed}
        role="combobox"
        aria-labelledby="filter-label"
        aria-expanded={options.length > 0}
        aria-controls="filter-options"
        aria-activedescendant={at >= 0 ? `filter-option-${at}` : undefined}
        autocomplete="off"
        spellcheck={false}
        onInput={(e) => {
          setTyped(e.currentTarget.value);
          setOpen(true);
          setAt(-1);
        }}
        onFocus={() => setOpen(true)}
        onBlur={() => {
          setOpen(false);
          commit(typed);
        }}
        onKeyDown={keys}
      />
      <kbd>/</kbd>
      {options.length > 0 && (
        <div class="popover" id="filter-options" role="listbox" aria-label="Completions">
          {options.map((option, index) => (
            <div
              key={option.text}
              id={`filter-option-${index}`}
              role="option"
              tabIndex={-1}
              aria-selected={index === at}
              onPointerDown={(e) => {
                e.preventDefault();
                take(option);
              }}
            >
              <span>{visible(option.text)}</span>
              {option.count !== null && <span class="count">{option.count}</span>}
            </div>
          ))}
        </div>
      )}
    </div>
  );
}

function TokenText({ raw }: { raw: string }) {
  const colon = raw.indexOf(':');
  if (colon < 0 || raw.startsWith('"')) return <>{visible(raw)}</>;
  return (
    <>
      <span class="key">{visible(raw.slice(0, colon + 1))}</span>
      {visible(raw.slice(colon + 1))}
    </>
  );
}
