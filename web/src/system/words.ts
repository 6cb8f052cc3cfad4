/** Words of the System tab. */
import { formatCount } from '../lib/number';

/** So many of a thing: `1 host`, `64 GPUs`. */
export const counted = (count: number, thing: string, many = `${thing}s`) =>
  `${formatCount(count)} ${count === 1 ? thing : many}`;
