"""Measures the OTLP receiver: points per CPU second, against Prometheus' and VictoriaMetrics'.

One machine, one run, one server after another, the same bytes to each: requests of about 1,000 data
points over HTTP, as protobuf and not packed, of four senders at once that know no other's series.
`gauges` are one process with 10 metrics of 100 attribute sets each; `eight` are the instruments of a
training job as 64 ranks send them. CPU time is compared, over the whole server process.
"""

from __future__ import annotations

import argparse
import http.client
import random
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from engine import say
from peers import ROOT, Prometheus, Server, ended, servers
from push import field, integer
from table import Row, show

BIN = ROOT / "target/release/truegauge"
SENDERS = 4
COUNT = 300
INTERVAL_SECONDS = 10
BOUNDS = (0, 5, 10, 25, 50, 75, 100, 250, 500, 750, 1000, 2500, 5000, 7500, 10000)
"""Those of the SDKs."""
EIGHT = (
    ("loss", ""),
    ("throughput_tflops", ""),
    ("tokens_per_sec", ""),
    ("grad_norm", ""),
    ("learning_rate", ""),
    ("memory_allocated_gb", ""),
)
PATHS = {
    "truegauge": "/v1/metrics",
    "prometheus": "/api/v1/otlp/v1/metrics",
    "victoriametrics": "/opentelemetry/v1/metrics",
}
COUNTERS = {
    "truegauge": 'truegauge_ingest_samples_total{door="otlp_http"}',
    "prometheus": "prometheus_tsdb_head_samples_appended_total",
    "victoriametrics": "vm_rows_inserted_total",
}
"""Counts the samples that each has taken."""
BARS = {"prometheus": 1.0, "victoriametrics": 1.0}

fixed_time, fixed_start, fixed_value = (b"\xa1" * 8, b"\xa2" * 8, b"\xa3" * 8)
"""Stand for what differs between requests."""


def fixed(number: int, eight_bytes: bytes) -> bytes:
    """A field of 64 bits."""
    return bytes([number << 3 | 1]) + eight_bytes


def pair(key: str, value: str | int) -> bytes:
    """A `KeyValue`."""
    any_value = field(1, value) if isinstance(value, str) else integer(3, value)
    return field(1, key) + field(2, any_value)


def number_point(*attributes: bytes, is_int: bool = False) -> bytes:
    """A `NumberDataPoint`."""
    value = fixed(6 if is_int else 4, fixed_value)
    times = fixed(2, fixed_start) + fixed(3, fixed_time)
    return times + value + b"".join(field(7, attribute) for attribute in attributes)


def histogram_point() -> bytes:
    """A `HistogramDataPoint` with all observations between 250 and 750."""
    counts = [0] * (len(BOUNDS) + 1)
    counts[8], counts[9] = 3, 2
    return b"".join(
        [
            fixed(2, fixed_start),
            fixed(3, fixed_time),
            fixed(4, struct.pack("<Q", 5)),
            fixed(5, fixed_value),
            field(6, struct.pack(f"<{len(counts)}Q", *counts)),
            field(7, struct.pack(f"<{len(BOUNDS)}d", *BOUNDS)),
        ]
    )


def metric(name: str, unit: str, data: bytes) -> bytes:
    """A `Metric`."""
    return field(1, name) + (field(3, unit) if unit else b"") + data


def resource_metrics(attributes: list[bytes], scope: str, metrics: list[bytes]) -> bytes:
    """A request with one `ResourceMetrics`."""
    resource = b"".join(field(1, attribute) for attribute in attributes)
    of_scope = field(1, field(1, scope)) + b"".join(field(2, one) for one in metrics)
    return field(1, field(1, resource) + field(2, of_scope))


def gauges(sender: int) -> tuple[bytes, int, int]:
    """10 metrics of 100 GPUs each; how many points and samples it has."""
    attributes = [pair("service.name", "node"), pair("service.instance.id", f"node-{sender}")]
    metrics = []
    for number in range(10):
        points = [number_point(pair("host", f"h{sender}-{gpu // 8}"), pair("gpu", gpu)) for gpu in range(100)]
        data = field(5, b"".join(field(1, point) for point in points))
        metrics.append(metric(f"bench.gauge.{number}", "", data))
    return resource_metrics(attributes, "bench", metrics), 1_000, 1_000


def eight(sender: int) -> tuple[bytes, int, int]:
    """The eight instruments of 64 ranks, twice, as of two models; points and samples."""
    body = b""
    for rank in range(128):
        run = f"run-{sender}-{rank // 64}"
        attributes = [
            pair("service.name", "megatron-lm"),
            pair("service.instance.id", f"{run}-rank{rank}"),
            pair("nemo.run.id", run),
            pair("dl.rank", rank % 64),
            pair("dl.world_size", 64),
            pair("host.name", f"node-{sender}-{rank // 8}"),
            pair("process.pid", 1_000 + rank),
            pair("telemetry.sdk.name", "opentelemetry"),
            pair("telemetry.sdk.language", "python"),
            pair("telemetry.sdk.version", "1.45.2"),
        ]
        prefix = "megatron.training."
        metrics = [metric(prefix + name, unit, field(5, field(1, number_point()))) for name, unit in EIGHT]
        skipped = field(1, number_point()) + integer(2, 2) + integer(3, 1)
        metrics.append(metric(f"{prefix}skipped_iters", "", field(7, skipped)))
        steps = field(1, histogram_point()) + integer(2, 2)
        metrics.append(metric(f"{prefix}step_duration_ms", "ms", field(9, steps)))
        body += resource_metrics(attributes, "nemo.lens", metrics)
    return body, 128 * 8, 128 * (7 + len(BOUNDS) + 3)


SHAPES: dict[str, Callable[[int], tuple[bytes, int, int]]] = {"gauges": gauges, "eight": eight}


def places(body: bytes, mark: bytes) -> list[int]:
    """Where a mark stands."""
    found, at = [], body.find(mark)
    while at >= 0:
        found.append(at)
        at = body.find(mark, at + 8)
    return found


def requests(template: bytes, seed: int, count: int, begin_ns: int) -> Iterator[bytes]:
    """Requests of one sender, whose values go up as counters do."""
    rng = random.Random(seed)
    at_values, base = places(template, fixed_value), begin_ns - INTERVAL_SECONDS * 1_000_000_000
    values = [rng.uniform(0, 100) for _ in at_values]
    for number in range(count):
        now = struct.pack("<Q", begin_ns + number * INTERVAL_SECONDS * 1_000_000_000)
        body = bytearray(
            template.replace(fixed_time, now).replace(fixed_start, struct.pack("<Q", base)),
        )
        for index, place in enumerate(at_values):
            values[index] += rng.random()
            struct.pack_into("<d", body, place, round(values[index], 3))
        yield bytes(body)


@dataclass
class Figures:
    """What was measured of one server."""

    server: str
    points: int
    samples: int
    counted: int
    cpu: float
    wall: float
    peak: float

    @property
    def cpu_per_million(self) -> float:
        """CPU seconds for a million points."""
        return self.cpu / self.points * 1e6


def send(server: Server, bodies: Iterator[bytes], failures: list[str]) -> None:
    """Posts requests over one connection; notes what is not taken."""
    connection = http.client.HTTPConnection(server.address, timeout=60)
    headers = {"content-type": "application/x-protobuf"}
    for body in bodies:
        connection.request("POST", PATHS[server.name], body, headers)
        answer = connection.getresponse()
        said = answer.read()
        # A body of an answer tells of points that were refused.
        if answer.status not in (200, 204) or said:
            failures.append(f"{answer.status} {said[:200]!r}")
            return


def counted(server: Server) -> int:
    """Samples that it says it has taken."""
    lines = server.get("/metrics").decode().splitlines()
    name = COUNTERS[server.name]
    return int(sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name)))


def measure(server: Server, shape: str, count: int) -> Figures:
    """Sends all requests of a shape to an empty server."""
    begin_ns = (int(time.time()) - count * INTERVAL_SECONDS - 60) * 1_000_000_000
    templates = [SHAPES[shape](sender) for sender in range(SENDERS)]
    # Made before, so that the senders do nothing else while the server is measured.
    made = [list(requests(body, at, count, begin_ns)) for at, (body, _, _) in enumerate(templates)]
    points = sum(points for _, points, _ in templates) * count
    samples = sum(samples for _, _, samples in templates) * count
    with ended(server):
        failures: list[str] = []
        before, known, begin = server.cpu(), counted(server), time.perf_counter()
        threads = [threading.Thread(target=send, args=(server, iter(bodies), failures)) for bodies in made]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wall = time.perf_counter() - begin
        cpu = server.cpu() - before
        if failures:
            raise SystemExit(f"{server.name} did not take the load: {failures[0]}")
        if server.name == "victoriametrics":
            time.sleep(2)  # Its counters lag behind what it took.
        return Figures(server.name, points, samples, counted(server) - known, cpu, wall, server.peak())


def describe(one: Figures, durability: str) -> None:
    """Prints what was measured of one server, beside the table."""
    say(
        f"  {one.points:,} points, {one.samples:,} samples sent, {one.counted:,} counted;"
        f" {one.points / one.cpu:,.0f} points and {one.samples / one.cpu:,.0f} samples a CPU second,"
        f" {one.points / one.wall:,.0f} points/s, peak {one.peak:.0f} MiB; durability: {durability}"
    )


def takes_otlp(server: Server) -> bool:
    """Whether this version has a receiver."""
    return not isinstance(server, Prometheus) or server.allow("--web.enable-otlp-receiver")


def run(count: int, shapes: list[str], binary: Path = BIN) -> list[Row]:
    """Measures every server that is there; the rows."""
    table = []
    with tempfile.TemporaryDirectory(prefix="truegauge-bench-", dir=ROOT / "target") as folder:
        for shape in shapes:
            figures = []
            for server in servers(Path(folder), binary):
                if not takes_otlp(server):
                    say(f"not measured: this {server.name} has no OTLP receiver: name one in PROM_BIN")
                    continue
                say(f"measuring: {server.name}, {shape}")
                one = measure(server, shape, count)
                figures.append(one)
                describe(one, server.durability)
            ours, *others = figures
            what = f"OTLP, {shape}, CPU per M points"
            table.extend(
                Row(what, ours.cpu_per_million, "s", peer.server, peer.cpu_per_million, BARS[peer.server])
                for peer in others
            )
            if not others:
                table.append(Row(what, ours.cpu_per_million, "s", "bar", None, 4.0))
    return table


def rows() -> list[Row]:
    """All that is measured."""
    return run(COUNT, list(SHAPES))


def main() -> int:
    """Runs what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--count", type=int, default=COUNT, help=f"requests of each sender (default: {COUNT})"
    )
    parser.add_argument("--shape", choices=[*SHAPES], action="append", help="all unless given")
    parser.add_argument("--binary", type=Path, default=BIN, help="our server's program")
    args = parser.parse_args()
    table = run(args.count, args.shape or list(SHAPES), args.binary)
    print()
    show(table)
    return 0 if all(row.holds for row in table) else 1


if __name__ == "__main__":
    sys.exit(main())
