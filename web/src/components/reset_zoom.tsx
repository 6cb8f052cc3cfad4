/** The button that shows all of an axis again; its key is on it. */

/** Enabled while there is a zoom to take back. */
export function ResetZoom({ zoomed, reset }: { zoomed: boolean; reset: () => void }) {
  return (
    <button type="button" class="plain" disabled={!zoomed} title="Reset the zoom (0)" onClick={reset}>
      <kbd>0</kbd> reset
    </button>
  );
}
