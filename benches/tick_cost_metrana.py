"""CPU of one tick of the `metrana` sampler into a null sink, as JSON: back to back and in place."""

from __future__ import annotations

import json
import logging
import statistics
import threading
import time

from metrana.system import sampler as module


class Sink:
    """Takes everything and keeps nothing."""

    def __getattr__(self, _name):
        return lambda *_args, **_kwargs: None


def main() -> None:
    """Measures on a thread of its own, as the product runs it."""
    logging.disable(logging.CRITICAL)
    sampler = module.SystemMetricsSampler(Sink(), 1.0, "bench")
    sampler._is_node_reporter = True
    result = {}

    def tick() -> int:
        begin = time.thread_time_ns()
        sampler._sample_once()
        return time.thread_time_ns() - begin

    def run() -> None:
        for _ in range(50):
            tick()
        close = [tick() for _ in range(1000)]
        paced = []
        for _ in range(15):
            time.sleep(0.7)
            paced.append(tick())
        result.update(
            best_ns=min(close),
            median_ns=statistics.median(close),
            paced_median_ns=statistics.median(paced),
        )

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    print("RESULT " + json.dumps(result))


if __name__ == "__main__":
    main()
