/** A button for who may: others see it, are told what they lack, and can't press it. */
import type { ComponentChildren } from 'preact';
import { useId } from 'preact/hooks';
import { refusedText, who } from '../lib/session';

/** The button; one that is refused can be reached by keys, so that its reason can be read. */
export function Guarded(props: {
  class: string;
  title?: string;
  disabled?: boolean;
  act: () => void;
  children: ComponentChildren;
}) {
  const id = useId();
  const refused = refusedText(who.value);
  if (refused === '')
    return (
      <button
        type="button"
        class={props.class}
        disabled={props.disabled}
        title={props.title}
        onClick={props.act}
      >
        {props.children}
      </button>
    );
  return (
    <>
      <button type="button" class={props.class} aria-disabled="true" aria-describedby={id} title={refused}>
        {props.children}
      </button>
      <span id={id} class="quiet refused">
        {refused}
      </span>
    </>
  );
}
