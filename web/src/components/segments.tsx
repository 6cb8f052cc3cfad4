/** A row of buttons of which one, or any, is pressed. */
import type { ComponentChildren } from 'preact';

/** One choice. */
export interface Segment<T> {
  value: T;
  content: ComponentChildren;
  title?: string;
}

/** One of several. */
export function Segments<T extends string>(props: {
  label: string;
  choices: Segment<T>[];
  value: T;
  choose: (value: T) => void;
}) {
  return (
    <fieldset class="segments" aria-label={props.label}>
      {props.choices.map((choice) => (
        <button
          type="button"
          key={choice.value}
          aria-pressed={choice.value === props.value}
          title={choice.title}
          onClick={() => props.choose(choice.value)}
        >
          {choice.content}
        </button>
      ))}
    </fieldset>
  );
}

/** The same behind its label, from which it never parts where a row wraps. */
export function LabelledSegments<T extends string>(props: Parameters<typeof Segments<T>>[0]) {
  return (
    <span class="labelled">
      <span class="label" aria-hidden="true">
        {props.label}
      </span>
      <Segments {...props} />
    </span>
  );
}

/** A switch that looks like one segment. */
export function Toggle(props: {
  on: boolean;
  set: (on: boolean) => void;
  title?: string;
  children: ComponentChildren;
}) {
  return (
    <button type="button" aria-pressed={props.on} title={props.title} onClick={() => props.set(!props.on)}>
      {props.children}
    </button>
  );
}
