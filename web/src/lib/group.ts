/** Sorts things into heaps; `Map.groupBy`, for the oldest Node that runs the tests. */
export function groupBy<K, T>(all: Iterable<T>, key: (one: T) => K): Map<K, T[]> {
  const heaps = new Map<K, T[]>();
  for (const one of all) {
    const own = key(one);
    const heap = heaps.get(own);
    if (heap) heap.push(one);
    else heaps.set(own, [one]);
  }
  return heaps;
}
