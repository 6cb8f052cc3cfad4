/** The observed share of what a value is of, as a badge. */

/** Shares from which on nothing needs saying, and from which on it is a warning no more. */
const WHOLE = 0.99;
const MOST = 0.9;

/** The badge. */
export function CoverageBadge({ share }: { share: number }) {
  const tone = share >= WHOLE ? 'badge' : share >= MOST ? 'badge outlined' : 'badge warn';
  return (
    <span class={tone} title="Observed share of what this is reckoned of; what was not observed is unknown">
      coverage {share.toFixed(2)}
    </span>
  );
}
