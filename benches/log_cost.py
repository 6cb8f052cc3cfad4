"""Cost of one `log` call of one library, back to back, as JSON on stdout.

CPU of the calling thread per call with the cost of an empty loop taken off (best and median of
several rounds), and the wall-clock distribution of single calls. Run by `benches/bench.py` in the
library's own environment; nothing is reachable, so every library keeps the run on this disk.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time

CALLS = {"truegauge": 100_000, "metrana": 20_000, "wandb": 2_000, "trackio": 500}
ROUNDS = 7


def open_run(library: str, folder: str):
    """Starts an offline run; returns `(scalar, five, close)`."""
    five = {
        "loss": 0.5,
        "accuracy": 0.9,
        "grad_norm": 1.5,
        "lr": 3e-4,
        "tokens": 4096.0,
    }
    if library == "truegauge":
        os.environ.update(TRUEGAUGE_SPOOL_DIR=folder, TRUEGAUGE_URL="http://127.0.0.1:9")
        import truegauge as tg

        tg.init(project_name="bench", run_name="log", capture_system_metrics=False)
        return (lambda: tg.log("loss", 0.5)), (lambda: tg.log(five)), tg.close
    if library == "metrana":
        import metrana

        metrana.init(
            api_key="k",
            workspace_name="w",
            project_name="p",
            run_name="r",
            init_mode="offline",
            disk=folder,
            capture_system_metrics=False,
            log_level="OFF",
        )
        return (
            (lambda: metrana.log("loss", 0.5)),
            (lambda: metrana.log(five)),
            metrana.close,
        )
    if library == "wandb":
        os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_DIR=folder)
        import wandb

        run = wandb.init(project="bench", dir=folder)
        return (lambda: run.log({"loss": 0.5})), (lambda: run.log(five)), run.finish
    if library == "trackio":
        os.environ.update(TRACKIO_DIR=folder, HF_HUB_OFFLINE="1", GRADIO_ANALYTICS_ENABLED="False")
        import trackio

        trackio.init(project="bench", embed=False)
        return (
            (lambda: trackio.log({"loss": 0.5})),
            (lambda: trackio.log(five)),
            trackio.finish,
        )
    raise SystemExit(f"no such library: {library}")


def cpu_ns(call, calls: int) -> int:
    """CPU nanoseconds of this thread for `calls` calls."""
    begin = time.thread_time_ns()
    for _ in range(calls):
        call()
    return time.thread_time_ns() - begin


def measure(call, calls: int) -> dict[str, float]:
    """Cost per call over several rounds, an empty call's cost taken off."""
    cpu_ns(call, max(calls // 10, 1))
    rounds = []
    for _ in range(ROUNDS):
        empty = cpu_ns(lambda: None, calls)
        rounds.append(max(cpu_ns(call, calls) - empty, 0) / calls)
        time.sleep(0.3)  # lets each library's own thread catch up: back to back, not overrun
    return {"best_ns": min(rounds), "median_ns": statistics.median(rounds)}


def latency(call, calls: int) -> dict[str, float]:
    """Wall-clock nanoseconds of single calls."""
    took = []
    clock = time.perf_counter_ns
    for _ in range(calls):
        begin = clock()
        call()
        took.append(clock() - begin)
    took.sort()
    at = lambda share: took[min(int(len(took) * share), len(took) - 1)]
    return {
        "p50_ns": at(0.5),
        "p99_ns": at(0.99),
        "p999_ns": at(0.999),
        "max_ns": took[-1],
    }


def main() -> None:
    """Measures the library named on the command line."""
    library = sys.argv[1]
    calls = CALLS[library]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        scalar, five, close = open_run(library, folder)
        result = {
            "scalar": measure(scalar, calls),
            "five": measure(five, calls // 2),
            "latency": latency(scalar, calls),
        }
        close()
    print("RESULT " + json.dumps(result))


if __name__ == "__main__":
    main()
