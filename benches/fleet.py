"""What a fleet costs the server: series that come in at their own pace, on one core.

`python benches/fleet.py scrape` asks 1,000 engines every 15 s, once under names that the vocabulary knows, so
that each has canonical series beside it, and once under names that nobody knows; VictoriaMetrics asks the
same pages in the same seconds. `pace` sends what 16,384 GPUs say every 10 s, by remote write and as agents
push it. The server is kept to one core, who sends to the other ones.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from peers import ROOT, Ours, Server, VictoriaMetrics, ended
from process import cpu_seconds
from table import Row, show

BIN = Path(os.environ.get("TRUEGAUGE_BIN", ROOT / "target/release/truegauge"))
SENDER = ROOT / "target/release/examples/fleet_pace"
PAGES = ROOT / "benches/engine_pages.py"
KNOWN = "vllm:"
UNKNOWN = "plain_vllm_"
SCRAPE_SECONDS = 15
LOOK_SECONDS = 5
LEARN_SECONDS = 60
"""Within which a server has seen all series of a fleet."""
TAKEN = "truegauge_ingest_samples_total"
MADE = "truegauge_canonical_samples_total"


@dataclass
class Figures:
    """What a server used while it took a load."""

    what: str
    share: float
    """Of one core."""
    rss: list[float] = field(default_factory=list)
    """Resident, MiB, over time."""
    samples: float = 0.0
    """A second, those that were sent."""
    stored: float = 0.0
    """A second, with what was made of them."""
    said: dict = field(default_factory=dict)

    def describe(self) -> None:
        """Prints it, beside the table."""
        at = self.rss[:: max(1, len(self.rss) // 8)]
        over = ", ".join(f"{mib:.0f}" for mib in [*at, self.rss[-1]])
        cost = self.share / self.samples * 1e6 if self.samples else 0
        print(
            f"{self.what}: {self.share:.1%} of a core at {self.samples:,.0f} samples/s, {self.stored:,.0f}"
            f" made beside them ({cost:.2f} CPU s per M sent); own MiB over time {over}; {self.said}",
            file=sys.stderr,
        )


def resident(pid: int) -> float:
    """Resident memory without what is mapped from files, MiB."""
    lines = dict(line.split(":") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return (int(lines["RssAnon"].split()[0])) / 1024


def cores() -> tuple[str, str]:
    """The core of the server, and those of everybody else."""
    own, *others = sorted(os.sched_getaffinity(0))
    return str(own), ",".join(map(str, others or [own]))


def counter(server: Server, name: str) -> float:
    """The sum of a counter on the server's own page."""
    lines = server.get("/metrics").decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((name + " ", name + "{")))


class OnOneCore(Ours):
    """This project's server on one core."""

    def __init__(self, folder: Path, *options: str | Path) -> None:
        super().__init__(folder, BIN)
        self.options = [str(option) for option in options]

    def command(self, port: int) -> list[str]:
        """With what was asked for."""
        return ["taskset", "-c", cores()[0], *super().command(port), *self.options]


class PeerOnOneCore(VictoriaMetrics):
    """VictoriaMetrics on one core, which scrapes."""

    def __init__(self, folder: Path, binary: str, config: Path) -> None:
        super().__init__(folder, binary)
        self.config = config

    def command(self, port: int) -> list[str]:
        """With the same configuration."""
        scraping = [f"-promscrape.config={self.config}", "-promscrape.maxScrapeSize=64MB"]
        return ["taskset", "-c", cores()[0], *super().command(port), *scraping]


def watch(server: Server, what: str, until: Callable[[], bool]) -> Figures:
    """What a server uses until something is over."""
    figures = Figures(what, 0.0)
    before, begin = cpu_seconds(server.pid), time.monotonic()
    while not until():
        figures.rss.append(resident(server.pid))
        time.sleep(LOOK_SECONDS)
    figures.share = (cpu_seconds(server.pid) - before) / (time.monotonic() - begin)
    figures.rss.append(resident(server.pid))
    return figures


def seconds_from_now(seconds: float) -> Callable[[], bool]:
    """Whether they have gone by."""
    until = time.monotonic() + seconds
    return lambda: time.monotonic() >= until


def scrape_one(folder: Path, count: int, prefix: str, seconds: float) -> tuple[Figures, Figures | None]:
    """Both servers ask the same pages in the same seconds."""
    command = ["taskset", "-c", cores()[1], sys.executable, str(PAGES), str(count), prefix]
    pages = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        told = json.loads(pages.stdout.readline())
        targets = json.dumps([f"127.0.0.1:{port}" for port in told["ports"]])
        config = folder / "scrape.yml"
        config.write_text(
            f"global:\n  scrape_interval: {SCRAPE_SECONDS}s\nscrape_configs:\n"
            f"  - job_name: engines\n    static_configs:\n      - targets: {targets}\n"
        )
        ours = OnOneCore(folder, "--scrape-config", config)
        program = VictoriaMetrics.found()
        with ended(ours):
            if program is None:
                return scraped(ours, told, count, seconds), None
            with ended(PeerOnOneCore(folder, program, config)) as peer:
                time.sleep(2.5 * SCRAPE_SECONDS)
                begun = cpu_seconds(peer.pid), time.monotonic()
                mine = scraped(ours, told, count, seconds)
                share = (cpu_seconds(peer.pid) - begun[0]) / (time.monotonic() - begun[1])
                theirs = Figures("victoriametrics", share, [resident(peer.pid)], mine.samples)
                return mine, theirs
    finally:
        pages.stdin.close()
        pages.wait()


def scraped(ours: Server, told: dict, count: int, seconds: float) -> Figures:
    """What scraping costs once every page was seen."""
    names = (TAKEN, MADE)
    if VictoriaMetrics.found() is None:
        time.sleep(2.5 * SCRAPE_SECONDS)
    before = [counter(ours, name) for name in names]
    begin = time.monotonic()
    figures = watch(ours, f"{count} pages of {told['series']} series", seconds_from_now(seconds))
    took = time.monotonic() - begin
    after = [counter(ours, name) for name in names]
    figures.samples, figures.stored = ((b - a) / took for a, b in zip(before, after, strict=True))
    return figures


def scrape_rows(count: int = 1_000, seconds: float = 60) -> list[Row]:
    """Scraping, with and without canonical series."""
    table = []
    with tempfile.TemporaryDirectory(prefix="truegauge-fleet-", dir=ROOT / "target") as name:
        for prefix, what in ((KNOWN, "mapped"), (UNKNOWN, "not mapped")):
            mine, theirs = scrape_one(Path(name), count, prefix, seconds)
            mine.what += f", {what}"
            for one in (mine, theirs):
                if one is not None:
                    one.describe()
            title = f"scrape of {count:,} engines a {SCRAPE_SECONDS} s, {what}"
            table.append(Row(f"{title}, CPU of a core", mine.share * 100, "%", "bar", None, 50))
            if theirs is not None:
                peer = ("victoriametrics", theirs.share * 100)
                table.append(Row(f"{title}, CPU of a core", mine.share * 100, "%", *peer, 1.5))
                peer = ("victoriametrics", max(theirs.rss))
                table.append(Row(f"{title}, memory", max(mine.rss), "MiB", *peer, 1.0))
    return table


def pace_one(folder: Path, kind: str, gpus: int, series: int, seconds: float) -> Figures:
    """Sends a fleet's present to an empty server."""
    with ended(OnOneCore(folder, "--limits-fleet-series", 3_000_000)) as server:
        command = ["taskset", "-c", cores()[1], str(SENDER), server.address, kind]
        command += [str(number) for number in (gpus, series, 10, LEARN_SECONDS + seconds)]
        sender = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            # Series are new in the first intervals, which is another cost.
            first = watch(server, f"{kind}, while series are new", seconds_from_now(LEARN_SECONDS))
            first.samples = counter(server, TAKEN) / LEARN_SECONDS
            first.stored = counter(server, MADE) / LEARN_SECONDS
            first.describe()
            before, begin = [counter(server, name) for name in (TAKEN, MADE)], time.monotonic()
            figures = watch(server, kind, seconds_from_now(seconds))
            took, after = time.monotonic() - begin, [counter(server, name) for name in (TAKEN, MADE)]
            figures.samples, figures.stored = ((b - a) / took for a, b in zip(before, after, strict=True))
            out, error = sender.communicate()
            if sender.returncode:
                raise SystemExit(f"the server did not take the load: {error.strip()}")
            figures.said = json.loads(out.removeprefix("RESULT "))
            return figures
        finally:
            sender.kill()
            sender.wait()


def pace_rows(
    gpus: int = 16_384,
    series: int = 40,
    seconds: float = 60,
    kinds: tuple[str, ...] = ("push", "dcgm", "plain"),
) -> list[Row]:
    """65,000 samples a second, by each door."""
    names = {"push": "agents' pushes", "dcgm": "remote write, mapped", "plain": "remote write, not mapped"}
    table = []
    with tempfile.TemporaryDirectory(prefix="truegauge-fleet-", dir=ROOT / "target") as folder:
        for kind in kinds:
            figures = pace_one(Path(folder), kind, gpus, series, seconds)
            figures.describe()
            title = f"{figures.samples:,.0f} samples/s, {names[kind]}"
            table.append(Row(f"{title}, CPU of a core", figures.share * 100, "%", "bar", None, 100))
            rate = gpus * series / 10
            table.append(
                Row(f"{title}, of those that are due", rate / figures.samples, "", "bar", None, 1.01)
            )
    return table


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("scrape", "pace"))
    parser.add_argument(
        "--targets", type=int, default=1_000, help="engines that are scraped (default: 1,000)"
    )
    parser.add_argument("--gpus", type=int, default=16_384, help="GPUs of the fleet (default: 16,384)")
    parser.add_argument("--series", type=int, default=40, help="series of a GPU, at most 40 (default: 40)")
    parser.add_argument("--seconds", type=float, default=60, help="how long each load lasts (default: 60)")
    parser.add_argument("--kinds", nargs="+", default=["push", "dcgm", "plain"], help="doors of `pace`")
    args = parser.parse_args()
    if args.part == "scrape":
        show(scrape_rows(args.targets, args.seconds))
    else:
        show(pace_rows(args.gpus, args.series, args.seconds, tuple(args.kinds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
