/** Reads a card's history when the card, the range or the lanes change. */
import { effect, type ReadonlySignal, type Signal, useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { autoStep } from '../explore/span';
import { isAbort } from '../lib/api';
import { type History, type LaneSpec, readHistory, type Subject } from './lanes';
import { gpuKey } from './names';

/** A card that keys run over is asked for once they rest, ms. */
const REST_MS = 150;

/** The history and why it could not be read. */
export interface Read {
  history: Signal<History | null>;
  error: Signal<unknown>;
}

/** Steps between two samples of a lane, at most so many in the range. */
export function laneStep(range: { from: number; to: number }, most: number): number {
  return Math.max(autoStep(range), Math.ceil((range.to - range.from) / most / 5000) * 5000);
}

/** Follows the card and the range; the old picture of one card stays until the new one is there. */
export function useHistory(
  subject: ReadonlySignal<Subject | null>,
  range: ReadonlySignal<{ from: number; to: number }>,
  lanes: LaneSpec[],
  steps: number,
): Read {
  const history = useSignal<History | null>(null);
  const error = useSignal<unknown>(null);
  useEffect(() => {
    let controller = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let shown = '';
    const stop = effect(() => {
      const card = subject.value;
      const now = range.value;
      clearTimeout(timer);
      controller.abort();
      controller = new AbortController();
      const { signal } = controller;
      const key = card ? gpuKey(card.gpu) : '';
      if (key !== shown) history.value = null;
      const first = shown === '';
      shown = key;
      if (!card) return;
      const read = () =>
        readHistory(card, lanes, now, laneStep(now, steps), signal).then(
          (found) => {
            history.value = found;
            error.value = null;
          },
          (reason: unknown) => {
            if (!isAbort(reason)) error.value = reason;
          },
        );
      timer = setTimeout(() => void read(), first ? 0 : REST_MS);
    });
    return () => {
      stop();
      clearTimeout(timer);
      controller.abort();
    };
  }, [lanes]);
  return { history, error };
}
