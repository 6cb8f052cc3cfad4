"""Measures how the engine's figures grow: with the number of series, and with the length of the past.

Prints one table, each row a server of its own that was loaded, ended, started again and asked. Longer
pasts are scraped less often, so that a row takes about a minute.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from engine import BIN, Figures, Load, mean, measure
from peers import ROOT, Ours

ROWS = {
    "1,000 series, 1 h": Load(gpus=64, hours=1, trainings=0),
    "10,000 series, 1 h": Load(gpus=640, hours=1, trainings=0),
    "100,000 series, 1 h": Load(gpus=6_400, hours=1, trainings=0),
    "10,000 series, 24 h": Load(gpus=640, hours=24, interval=120, trainings=0),
    "1,000 series, 24 h": Load(gpus=64, hours=24, trainings=0),
    "1,000 series, 30 days": Load(gpus=64, hours=720, interval=300, trainings=0),
}


def line(name: str, load: Load, figures: Figures) -> str:
    """A row of the table."""
    cpu = mean([answer.cpu for answer in figures.answers.values()]) * 1e3
    wall = max(answer.wall for answer in figures.answers.values()) * 1e3
    cells = [
        name,
        f"{load.interval} s",
        f"{figures.samples / 1e6:.2f} M",
        f"{figures.load_cpu_per_million:.2f}",
        f"{figures.sealed[0]:.2f}" if figures.sealed else "",
        f"{figures.peak_load:.0f}",
        f"{figures.peak_queries:.0f}",
        f"{cpu:.1f}",
        f"{wall:.0f}",
    ]
    return "| " + " | ".join(cells) + " |"


HEAD = [
    "data",
    "each",
    "samples",
    "ingest, CPU s per M",
    "disk, B per sample",
    "peak MiB, load",
    "peak MiB, start and queries",
    "six queries, CPU ms, mean",
    "slowest, wall ms",
]


def main() -> int:
    """Prints the table, a row as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("row", nargs="*", help=f"beginnings of rows: {', '.join(ROWS)} (default: all)")
    parser.add_argument("--binary", type=Path, default=BIN, help="our server's program")
    args = parser.parse_args()
    print("| " + " | ".join(HEAD) + " |")
    print("|" + "---|" * len(HEAD), flush=True)
    for name, load in ROWS.items():
        if args.row and not any(name.startswith(wanted) for wanted in args.row):
            continue
        begin = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="truegauge-bench-", dir=ROOT / "target") as folder:
            figures = measure(Ours(Path(folder), args.binary), load, 0.2)
        print(line(name, load, figures), flush=True)
        print(f"{name}: {time.monotonic() - begin:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
