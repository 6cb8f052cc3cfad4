/** How far a metric is to be trusted: a glyph, and what it measures on hover or focus. */
import { TrustIcon } from './icons';

/** Shown only where the metric is described: by its level, else a full disc as it is and half a disc with a caveat. */
export function Trust(props: { help: string; caveat: string; level?: 'A' | 'B' | 'C' | 'D' }) {
  const { help, caveat, level = caveat ? 'B' : 'A' } = props;
  if (!help && !caveat) return null;
  const text = caveat ? `${help} Misleads when: ${caveat}` : help;
  return (
    <span class="trust" role="img" aria-label={text}>
      <TrustIcon level={level} />
      <span class="popover hint" aria-hidden="true">
        <b>Measures</b> {help || 'not described'}
        {caveat && (
          <>
            <br />
            <b>Misleads when</b> {caveat}
          </>
        )}
      </span>
    </span>
  );
}
