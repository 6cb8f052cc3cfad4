/** Where something is missing, in as few words as its size allows. */
import type { MissingPlace } from '../lib/missing';
import { formatCount } from '../lib/number';

/** What is missing on one host. */
export interface HostPlaces {
  /** Empty when it is not known, or when no host is meant. */
  host: string;
  /** Such as `GPU 0–3, 7` and `rank 4`; empty for the host itself. */
  what: string;
}

const natural = new Intl.Collator('en', { numeric: true });

/** Numbers as ranges, such as `0–3, 7`; what is no number stands as it is. */
export function ranges(names: string[]): string {
  const sorted = [...new Set(names)].sort(natural.compare);
  const pieces: [from: string, to: string][] = [];
  for (const name of sorted) {
    const last = pieces[pieces.length - 1];
    const follows = last && /^\d{1,9}$/.test(name) && Number(name) === Number(last[1]) + 1;
    if (follows) last[1] = name;
    else pieces.push([name, name]);
  }
  return pieces
    .flatMap(([from, to]) => {
      if (from === to) return [from];
      return Number(to) === Number(from) + 1 ? [from, to] : [`${from}–${to}`];
    })
    .join(', ');
}

const KINDS: [field: 'gpu' | 'rank' | 'pid', one: string, many: string][] = [
  ['gpu', 'GPU', 'GPUs'],
  ['rank', 'rank', 'ranks'],
  ['pid', 'process', 'processes'],
];

const having = (places: MissingPlace[], field: 'gpu' | 'rank' | 'pid') =>
  places.flatMap((p) => (p[field] === null ? [] : [p[field]]));

/** Places host by host, in their natural order. */
export function byHost(places: MissingPlace[]): HostPlaces[] {
  const hosts = new Map<string, MissingPlace[]>();
  for (const place of places) {
    const on = hosts.get(place.host ?? '');
    if (on) on.push(place);
    else hosts.set(place.host ?? '', [place]);
  }
  return [...hosts]
    .sort((a, b) => natural.compare(a[0], b[0]))
    .map(([host, on]) => ({
      host,
      what: KINDS.flatMap(([field, one, many]) => {
        // A process is known by its rank where it has one.
        const named = having(field === 'pid' ? on.filter((p) => p.rank === null) : on, field);
        const several = new Set(named).size > 1 && field !== 'gpu';
        return named.length === 0 ? [] : [`${several ? many : one} ${ranges(named)}`];
      }).join(' · '),
    }));
}

/** How much that is: `5 GPUs on 2 hosts`, or empty for a single place. */
export function countText(places: MissingPlace[]): string {
  const hosts = new Set(places.flatMap((p) => p.host ?? [])).size;
  const on = hosts > 1 ? ` on ${formatCount(hosts)} hosts` : '';
  for (const [field, , many] of KINDS) {
    const here = places.filter((p) => p[field] !== null);
    const number = new Set(here.map((p) => JSON.stringify([p.host, p[field]]))).size;
    if (number > 1 && here.length === places.length) return `${formatCount(number)} ${many}${on}`;
  }
  return hosts > 1 ? `${formatCount(hosts)} hosts` : '';
}
