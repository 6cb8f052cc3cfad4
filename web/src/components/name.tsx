/** A name from outside: escapes made visible, the middle cut, the whole text on hover. */
import { shown, visible } from '../lib/text';

/** Shows a name safely. */
export function Name({
  text,
  limit = 48,
  class: className,
}: {
  text: string;
  limit?: number;
  class?: string;
}) {
  const short = shown(text, limit);
  const whole = visible(text);
  const other = text === '__other__';
  return (
    <bdi
      class={`name ${other ? 'other ' : ''}${className ?? ''}`}
      title={other ? 'everything beyond the limit of this label' : short === whole ? undefined : whole}
    >
      {short}
    </bdi>
  );
}
