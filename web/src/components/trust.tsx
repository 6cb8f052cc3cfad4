/** How far a metric is to be trusted: a glyph, and what it measures on hover or focus. */
import { TrustIcon } from './icons';

/** Shown only where the metric is described: a full disc as it is, half a disc with a caveat. */
export function Trust({ help, caveat }: { help: string; caveat: string }) {
  if (!help && !caveat) return null;
  const text = caveat ? `${help} Misleads when: ${caveat}` : help;
  return (
    <span class="trust" role="img" aria-label={text}>
      <TrustIcon half={caveat !== ''} />
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
