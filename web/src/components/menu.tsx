/** A button that opens a list of actions. */
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';

/** One action. */
export interface MenuItem {
  text: string;
  key?: string;
  checked?: boolean;
  run: () => void;
}

/** Opens on click; arrows move, `Escape` leaves, a click outside closes. */
export function Menu({
  label,
  named = false,
  items,
  children,
  class: className,
}: {
  label: string;
  /** Whether the button's own text is its name; else `label` is. */
  named?: boolean;
  items: () => MenuItem[];
  children: ComponentChildren;
  class?: string;
}) {
  const [open, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const close = () => {
    setOpen(false);
    button.current?.focus();
  };
  useEffect(() => {
    if (!open) return;
    root.current?.querySelector<HTMLElement>('[role^=menuitem]')?.focus();
    const outside = (event: Event) => {
      if (!root.current?.contains(event.target as Node)) setOpen(false);
    };
    document.addEventListener('pointerdown', outside);
    return () => document.removeEventListener('pointerdown', outside);
  }, [open]);
  const keys = (event: KeyboardEvent) => {
    if (!open) return;
    const all = [...root.current!.querySelectorAll<HTMLElement>('[role^=menuitem]')];
    const at = all.indexOf(document.activeElement as HTMLElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 }[event.key];
    if (event.key === 'Escape') close();
    else if (to !== undefined) all.at(to % all.length)?.focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div class={`menu ${className ?? ''}`} ref={root} onKeyDown={keys}>
      <button
        type="button"
        ref={button}
        aria-haspopup="menu"
        aria-expanded={open}
        aria-label={named ? undefined : label}
        title={named ? undefined : label}
        onClick={() => setOpen(!open)}
      >
        {children}
      </button>
      {open && (
        <div class="popover" role="menu" aria-label={label}>
          {items().map((item) => (
            <button
              type="button"
              key={item.text}
              role={item.checked === undefined ? 'menuitem' : 'menuitemcheckbox'}
              aria-checked={item.checked}
              tabIndex={-1}
              onClick={() => {
                close();
                item.run();
              }}
            >
              {item.checked !== undefined && <span class="tick">{item.checked ? '✓' : ''}</span>}
              <span>{item.text}</span>
              {item.key && <kbd>{item.key}</kbd>}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}
