"""Measures the engine: remote write, disk, memory and six queries, against Prometheus and VictoriaMetrics.

One machine, one run, one server after another. The data are made anew each time, the same for each:
14 metrics of every GPU each 30 s, a latency histogram per host, and training runs that log each second
(`crates/wire/examples/fleet_load`). CPU time is compared, over the whole server process.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from peers import ROOT, Server, ended, servers
from process import written_bytes
from table import Row, show

BIN = ROOT / "target/release/truegauge"
LOADER = ROOT / "target/release/examples/fleet_load"
STEP_SECONDS = 60
MIB_MEMORY = 1.5
"""Peak memory allowed, as a part of VictoriaMetrics'."""

QUERIES = {
    "sum by host": "sum by (host) (gpu_power_watts)",
    "sum of rate": "sum by (host) (rate(gpu_nvlink_bytes_total[5m]))",
    "quantile of histogram": (
        "histogram_quantile(0.99, sum by (le) (rate(inference_latency_seconds_bucket[5m])))"
    ),
    "topk": "topk(5, gpu_temperature_celsius)",
    "avg_over_time": "avg_over_time(gpu_utilization[10m])",
    "join": "gpu_power_watts / on (host, gpu) group_left () gpu_tensor_active_ratio",
}
TIES = {"topk"}
"""Queries that may choose among equal series: their values are compared without labels."""


@dataclass
class Answer:
    """What a query cost and said."""

    cpu: float
    wall: float
    size: int
    points: dict[str, dict[float, float]] = field(repr=False)


@dataclass
class Figures:
    """What was measured of one server."""

    server: str
    durability: str
    samples: int
    series: int
    wall: float
    load_cpu: float
    life_cpu: float
    written: float
    request_ms: dict[str, float]
    peak_load: float
    peak_queries: float = 0.0
    sealed: tuple[float, str] | None = None
    answers: dict[str, Answer] = field(default_factory=dict)

    @property
    def load_cpu_per_million(self) -> float:
        """CPU seconds for a million samples until the last was acknowledged."""
        return self.load_cpu / self.samples * 1e6

    @property
    def life_cpu_per_million(self) -> float:
        """CPU seconds for a million samples from the start of the server to its ordinary end."""
        return self.life_cpu / self.samples * 1e6


@dataclass
class Load:
    """What is sent."""

    gpus: int = 1000
    hours: float = 24
    interval: int = 30
    trainings: int = 20
    start: int = 1_795_824_000
    """Seconds since the epoch, as the loader has it."""

    def send(self, server: Server) -> dict:
        """Sends all of it; what the loader says."""
        numbers = (self.gpus, self.hours, self.interval, self.trainings)
        command = [str(LOADER), server.address, server.writing, *map(str, numbers)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{server.name} did not take the load: {done.stderr.strip()}")
        return json.loads(done.stdout.removeprefix("RESULT "))

    def queried(self) -> tuple[int, int, int]:
        """Start, end and step of the queries, seconds."""
        seconds = int(self.hours * 3600)
        return (
            self.start + min(3600, seconds // 8),
            self.start + seconds,
            max(STEP_SECONDS, seconds // 10_000),
        )


def points(body: bytes) -> dict[str, dict[float, float]]:
    """The values of an answer by labels and time."""
    data = json.loads(body)["data"]["result"]
    return {
        json.dumps(series["metric"], sort_keys=True): {
            float(time): float(value) for time, value in series["values"]
        }
        for series in data
    }


def ask(server: Server, query: str, span: tuple[int, int, int], seconds: float) -> Answer:
    """Asks until `seconds` of CPU were used, once before that and three times at least."""
    body = server.range(query, *span)
    walls = []
    before = server.cpu()
    while len(walls) < 3 or (server.cpu() - before < seconds and len(walls) < 50):
        begin = time.perf_counter()
        body = server.range(query, *span)
        walls.append(time.perf_counter() - begin)
    return Answer((server.cpu() - before) / len(walls), min(walls), len(body), points(body))


def measure(server: Server, load: Load, seconds: float) -> Figures:
    """Loads an empty server, ends it, starts it again and asks it."""
    with ended(server):
        idle = server.cpu()
        said = load.send(server)
        server.samples = said["samples"]
        cpu, peak, written = server.cpu() - idle, server.peak(), written_bytes(server.pid)
        figures = Figures(
            server.name,
            server.durability,
            said["samples"],
            said["series"],
            said["wall_seconds"],
            cpu,
            server.stop(),
            written / said["samples"],
            said["request_ms"],
            peak,
        )
        server.start()
        server.settle()
        figures.sealed = server.sealed()
        for name, query in QUERIES.items():
            figures.answers[name] = ask(server, query, load.queried(), seconds)
        figures.peak_queries = server.peak()
        return figures


def difference(ours: Answer, theirs: Answer, ties: bool) -> str:
    """How two answers differ; empty when they do not."""

    def bag(answer: Answer) -> dict[str, dict[float, list[float]]]:
        if not ties:
            return {key: {t: [v] for t, v in row.items()} for key, row in answer.points.items()}
        steps: dict[float, list[float]] = {}
        for row in answer.points.values():
            for at, value in row.items():
                steps.setdefault(at, []).append(value)
        return {"": {at: sorted(values) for at, values in steps.items()}}

    mine, other = bag(ours), bag(theirs)
    if mine.keys() != other.keys():
        return f"{len(mine)} series, {len(other)} at the peer"
    count, worst = 0, 0.0
    for key, row in mine.items():
        if row.keys() != other[key].keys():
            return f"{len(row)} points of {key}, {len(other[key])} at the peer"
        for at, values in row.items():
            for a, b in zip(values, other[key][at], strict=True):
                gap = 0.0 if a == b or (a != a and b != b) else abs(a - b) / max(abs(a), abs(b))
                count, worst = count + (gap > 1e-9), max(worst, gap)
    return f"{count} values, {worst:.1e} at most" if count else ""


def mean(values: list[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values))


def rows(all_figures: list[Figures]) -> list[Row]:
    """Every figure beside its bar."""
    ours, *others = all_figures
    table = []
    if not others:
        table.append(Row("remote write, CPU per M samples", ours.load_cpu_per_million, "s", "bar", None, 1.2))
        if ours.sealed:
            table.append(Row("disk per sample, sealed", ours.sealed[0], "B", "bar", None, 1.9))
    bars = {"prometheus": (1 / 4, 0.5, 1 / 3), "victoriametrics": (1 / 1.2, 1.0, 1.0)}
    for peer in others:
        ingest, disk, query = bars[peer.server]
        per_million = ("remote write, CPU per M samples", ours.load_cpu_per_million, "s", peer.server)
        table.append(Row(*per_million, peer.load_cpu_per_million, ingest))
        whole = ("the same with start, settling and stop", ours.life_cpu_per_million, "s", peer.server)
        table.append(Row(*whole, peer.life_cpu_per_million, ingest))
        if ours.sealed and peer.sealed:
            table.append(
                Row("disk per sample, sealed", ours.sealed[0], "B", peer.server, peer.sealed[0], disk)
            )
        if peer.server == "victoriametrics":
            peaks = [max(f.peak_load, f.peak_queries) for f in (ours, peer)]
            table.append(Row("peak memory", peaks[0], "MiB", peer.server, peaks[1], MIB_MEMORY))
        single = math.inf if peer.server == "victoriametrics" else 1.0
        for name in QUERIES:
            cpu = [f.answers[name].cpu for f in (ours, peer)]
            table.append(Row(f"query {name}, CPU", cpu[0] * 1e3, "ms", peer.server, cpu[1] * 1e3, single))
        means = [mean([answer.cpu for answer in f.answers.values()]) for f in (ours, peer)]
        table.append(
            Row("six queries, CPU, geometric mean", means[0] * 1e3, "ms", peer.server, means[1] * 1e3, query)
        )
    if ours.sealed:
        table.append(Row("disk per sample, sealed", ours.sealed[0], "B", "bar", None, 1.9))
    return table


def say(text: str = "") -> None:
    """Prints a detail: beside the table and its JSON, so on the other stream."""
    print(text, file=sys.stderr)


def describe(figures: Figures) -> None:
    """Prints what was measured of one server, beside the table."""
    f = figures
    sealed = f"{f.sealed[0]:.3f} B ({f.sealed[1]})" if f.sealed else "nothing sealed"
    say(f"\n{f.server}: {f.samples:,} samples of {f.series:,} series; durability: {f.durability}")
    say(
        f"  load: {f.load_cpu_per_million:.3f} CPU s per M samples ({f.life_cpu_per_million:.3f} over its"
        f" life), {f.samples / f.wall:,.0f} samples/s, request {f.request_ms}, written {f.written:.2f} B"
        f" per sample, peak {f.peak_load:.0f} MiB"
    )
    say(f"  disk per sample, sealed: {sealed}; peak of start and queries {f.peak_queries:.0f} MiB")
    for name, answer in f.answers.items():
        held = sum(map(len, answer.points.values()))
        say(
            f"  {name:<22} CPU {answer.cpu * 1e3:8.1f} ms  wall {answer.wall * 1e3:8.1f} ms"
            f"  {len(answer.points):>6,} series {held:>10,} points {answer.size / 1e6:7.2f} MB"
        )


def compare(all_figures: list[Figures]) -> bool:
    """Says where answers differ from Prometheus'; true when none does."""
    by_name = {figures.server: figures for figures in all_figures}
    truth = by_name.get("prometheus")
    equal = True
    for figures in all_figures:
        if truth is None or figures is truth:
            continue
        say()
        for name, answer in figures.answers.items():
            differs = difference(answer, truth.answers[name], name in TIES)
            equal = equal and not (differs and figures.server == "truegauge")
            say(f"  {figures.server}, {name}: {differs or 'equal to prometheus within 1e-9'}")
    return equal


def run(load: Load, seconds: float, binary: Path = BIN) -> tuple[list[Row], bool]:
    """Measures every server that is there, prints details; the rows, and whether answers are right."""
    with tempfile.TemporaryDirectory(prefix="truegauge-bench-", dir=ROOT / "target") as folder:
        figures = []
        for server in servers(Path(folder), binary):
            print(f"measuring: {server.name}", file=sys.stderr)
            figures.append(measure(server, load, seconds))
            describe(figures[-1])
    return rows(figures), compare(figures)


def main() -> int:
    """Runs what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=1000, help="GPUs, 15.7 series each (default: 1000)")
    parser.add_argument("--hours", type=float, default=2, help="hours of data (default: 2)")
    parser.add_argument("--interval", type=int, default=30, help="seconds between scrapes (default: 30)")
    parser.add_argument("--trainings", type=int, default=20, help="runs that log each second (default: 20)")
    parser.add_argument("--binary", type=Path, default=BIN, help="our server's program")
    parser.add_argument(
        "--seconds", type=float, default=0.5, help="least CPU seconds per query (default: 0.5)"
    )
    args = parser.parse_args()
    load = Load(args.gpus, args.hours, args.interval, args.trainings)
    table, equal = run(load, args.seconds, args.binary)
    print()
    show(table)
    return 0 if equal and all(row.holds for row in table) else 1


if __name__ == "__main__":
    sys.exit(main())
