"""How long `truegauge calc` takes to answer, from its start to its end, for each tool."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from fleet import BIN
from table import Row, show

RUNS = 50
MOST_MS = 20
ROOFLINE = "--params 8.03e9 --layers 32 --kv-heads 8 --head-dim 128 --context 2048 --gpu h100-sxm"
TOOLS = {
    "economics": "--tokens-per-second 2426 --watts 597 --price 2.50 --peak-to-average 3",
    "roofline": ROOFLINE,
    "stream": "times.txt",
    "mfu": "--params 70e9 --tokens-per-second 782446 --gpus 1024 --gpu h100-sxm",
    "goodput": "--ttft-ratio 0.95 --tpot-ratio 0.90",
    "ettr": "--interruptions 419 --days 54 --gpus 16384 --checkpoint-seconds 30 --restart-seconds 600",
    "capacity": "--peak-to-average 3",
}


def once(tool: str, options: str, folder: str) -> tuple[float, float]:
    """Milliseconds of the wall and of the CPU that one answer takes."""
    arguments = [str(BIN), "calc", tool, *options.split(), "--explain"]
    begun = time.perf_counter()
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        os.execv(arguments[0], arguments)
    _, status, usage = os.wait4(child, 0)
    took = time.perf_counter() - begun
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"{' '.join(arguments)} failed")
    return took * 1e3, (usage.ru_utime + usage.ru_stime) * 1e3


def rows() -> list[Row]:
    """Each tool against the bar: nine of ten answers are to be faster."""
    table = []
    with tempfile.TemporaryDirectory(prefix="truegauge-calc-") as folder:
        times = "\n".join(str(0.4 + 0.02 * token) for token in range(500))
        (Path(folder) / "times.txt").write_text(f"{times}\n")
        for tool, options in TOOLS.items():
            taken = [once(tool, options, folder) for _ in range(RUNS)]
            wall, cpu = (sorted(part) for part in zip(*taken, strict=True))
            slow = statistics.quantiles(wall, n=10)[-1]
            middle = f"middle {statistics.median(wall):.1f} ms, CPU {statistics.median(cpu):.1f} ms"
            print(f"calc {tool}: {middle}, p90 {slow:.1f} ms", file=sys.stderr)
            table.append(Row(f"calc {tool}, p90 of {RUNS}", slow, "ms", "bar", None, MOST_MS))
    return table


if __name__ == "__main__":
    show(rows())
