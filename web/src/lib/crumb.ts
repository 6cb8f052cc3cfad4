/** The name of the run that is open, for the breadcrumb and the window's title. */
import { signal } from '@preact/signals';

/** Empty until the run is read. */
export const runName = signal('');
