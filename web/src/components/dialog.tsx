/** A modal window on the browser's own dialog: focus stays inside, `Escape` leaves. */
import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';

/** Shows its content until it is closed. */
export function Dialog({
  title,
  close,
  children,
  class: className,
}: {
  title: string;
  close: () => void;
  children: ComponentChildren;
  class?: string;
}) {
  const root = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    root.current?.showModal();
    // What has to be filled in comes before the button that leaves.
    root.current?.querySelector<HTMLInputElement>('input[required]')?.focus();
    return () => before?.focus?.();
  }, []);
  const click = (event: MouseEvent) => {
    if (event.target === root.current) close();
  };
  // The browser tells `close` a moment later, and until then keys would go to a button that is no longer seen.
  const leave = (event: Event) => {
    event.preventDefault();
    close();
  };
  return (
    <dialog
      ref={root}
      class={className}
      aria-label={title}
      onCancel={leave}
      onClose={close}
      onClick={click}
      onKeyDown={(e) => e.key === 'Escape' && e.stopPropagation()}
    >
      <header>
        <h2>{title}</h2>
        <button type="button" class="plain" aria-label="Close" onClick={close}>
          ×
        </button>
      </header>
      {children}
    </dialog>
  );
}
