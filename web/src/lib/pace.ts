/** Runs an action at most once in a while, and once more when it was asked for meanwhile. */
export function paced(
  action: () => Promise<void> | void,
  everyMs: number,
): { ask: () => void; end: () => void } {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let busy = false;
  let wanted = false;
  let last = -Infinity;
  let ended = false;
  const start = async () => {
    timer = undefined;
    busy = true;
    wanted = false;
    last = performance.now();
    try {
      await action();
    } finally {
      busy = false;
      if (wanted && !ended) plan();
    }
  };
  const plan = () => {
    timer ??= setTimeout(start, Math.max(0, everyMs - (performance.now() - last)));
  };
  return {
    ask: () => {
      wanted = true;
      if (!busy && !ended) plan();
    },
    end: () => {
      ended = true;
      clearTimeout(timer);
    },
  };
}
