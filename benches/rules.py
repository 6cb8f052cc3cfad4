"""What one evaluation of all rules costs, over 14,000 series of a fleet, engines and a training.

`python benches/rules.py` writes the same history of five minutes to this project's server and to Prometheus,
goes on at the pace of a scrape, lets both evaluate the same files, and takes what both say of the time that
their groups took: the middle one of many cycles. The times are of the wall: keep the machine otherwise quiet.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import statistics
import struct
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from far_outage import snappy
from fleet import BIN
from peers import ROOT, Ours, Prometheus, Server, ended
from process import peak_mib
from push import field, varint
from table import Row, show

CARDS = 8
BODY_SERIES_MAX = 20_000
SCRAPE_SECONDS = 5
CYCLE_SECONDS = 5
FULL_SECONDS = 310
BOUNDS = ("0.01", "0.025", "0.05", "0.075", "0.1", "0.2", "0.5", "1.0", "2.0", "5.0", "+Inf")
REASONS = ("sw_power", "hw_slowdown", "sw_thermal", "hw_thermal", "thermal", "sync_boost")
LINK_KINDS = ("replay", "recovery")
PAIR = re.compile(r'([a-z_]+)="([^"]*)"')
HEADERS = {
    "content-type": "application/x-protobuf",
    "content-encoding": "snappy",
    "x-prometheus-remote-write-version": "0.1.0",
}
CARD_GAUGES = [
    "busy_ratio",
    "sm_active_ratio",
    "tensor_active_ratio",
    "dram_active_ratio",
    "memory_used_bytes",
    "memory_total_bytes",
    "power_watts",
    "power_limit_watts",
    "sm_clock_hertz",
    "memory_clock_hertz",
    "temperature_celsius",
    "pcie_link_width",
    "pcie_link_width_max",
    "pcie_link_generation",
    "recovery_action",
    "row_remap_pending",
    "row_remap_failed",
]


@dataclass(frozen=True)
class Site:
    """How much of everything there is."""

    nodes: int = 43
    engines: int = 24
    ranks: int = 512

    def times(self, factor: int) -> Site:
        """One that is as many times as large."""
        return Site(self.nodes * factor, self.engines * factor, self.ranks * factor)


def of_card(site: Site, node: int, card: int, seconds: float) -> Iterator[str]:
    """What an agent says of a card."""
    labels = f'host="n{node}",gpu="{card}",uuid="GPU-{node}-{card}"'
    for name in CARD_GAUGES:
        yield f"tg_gpu_{name}{{{labels}}} {0 if 'remap' in name or 'action' in name else 400}"
    yield f'tg_gpu_info{{{labels},gpu_model="NVIDIA H100 80GB HBM3",vendor="nvidia"}} 1'
    owner = f'namespace="serving",pod="chat-{node}"' if node < site.engines else 'run_id="1"'
    yield f"tg_gpu_owner_info{{{labels},{owner}}} 1"
    yield f"tg_gpu_energy_joules_total{{{labels}}} {seconds * 400:.0f}"
    for reason in REASONS:
        yield f'tg_gpu_throttled_seconds_total{{{labels},reason="{reason}"}} {seconds / 100:.2f}'
    for kind in ("corrected", "uncorrected"):
        yield f'tg_gpu_ecc_errors_total{{{labels},kind="{kind}",scope="volatile"}} 3'
    for kind in LINK_KINDS:
        yield f'tg_gpu_nvlink_errors_total{{{labels},kind="{kind}",link="all"}} 5'


def of_engine(number: int, seconds: float) -> Iterator[str]:
    """What an engine says, with its latencies."""
    labels = f'engine="vllm",model="chat-{number % 4}",instance="e{number}"'
    labels += f',namespace="serving",pod="chat-{number}"'
    for metric in ("ttft", "tpot", "itl", "e2e"):
        for place, bound in enumerate(BOUNDS, 1):
            count = int(seconds * 20 * place / len(BOUNDS))
            yield f'tg_engine_{metric}_seconds_bucket{{{labels},le="{bound}"}} {count}'
        yield f"tg_engine_{metric}_seconds_count{{{labels}}} {int(seconds * 20)}"
    for name in ("output_tokens", "prompt_tokens", "preemptions"):
        yield f"tg_engine_{name}_total{{{labels}}} {int(seconds * 50)}"
    for name in ("requests_running", "requests_waiting", "kv_usage_ratio"):
        yield f"tg_engine_{name}{{{labels}}} 0.5"


def of_rank(rank: int) -> Iterator[str]:
    """What a rank logs of its last step."""
    labels = f'project="llm",run="a",run_id="1",rank="{rank}"'
    for name in ("step_seconds", "step_wait_seconds", "step_data_seconds", "step_tokens"):
        yield f"train_{name}{{{labels}}} {1 + rank % 7 / 100 if name == 'step_seconds' else 0.2}"


def page(site: Site, seconds: float) -> str:
    """The whole of it, once."""
    cards = ((node, card) for node in range(site.nodes) for card in range(CARDS))
    lines = [line for node, card in cards for line in of_card(site, node, card, seconds)]
    for node in range(site.nodes):
        lines += [f'tg_node_gpus{{host="n{node}",source="{source}"}} 8' for source in ("pci", "driver")]
        lines.append(f'truegauge_agent_interval_seconds{{host="n{node}"}} {SCRAPE_SECONDS}')
    lines += [line for number in range(site.engines) for line in of_engine(number, seconds)]
    lines += [line for rank in range(site.ranks) for line in of_rank(rank)]
    model = 'gpu_model="NVIDIA H100 80GB HBM3"'
    lines += [
        f'tg_price_usd_per_gpu_hour{{{model},revision="r"}} 2.5',
        f'tg_peak_flops{{{model},dtype="bf16",kind="dense"}} 989e12',
        'tg_run_gpus{run="a",run_id="1",gpu_model="NVIDIA H100 80GB HBM3",dtype="bf16"} 512',
        'tg_run_flops_per_token{run="a",run_id="1"} 42e9',
        f"tg_site_scrape_interval_seconds {SCRAPE_SECONDS}",
        "tg_site_pue 1.3",
        "tg_server_overhead_factor 1.4",
    ]
    for number in range(4):
        for kind, bound in (("ttft", "1.0"), ("tpot", "0.05"), ("itl", "0.1")):
            lines.append(f'tg_slo_seconds{{model="chat-{number}",kind="{kind}",le="{bound}"}} {bound}')
        lines.append(f'tg_slo_goodput_ratio{{model="chat-{number}"}} 0.9')
    return "\n".join(lines) + "\n"


def labels_of(series: str) -> bytes:
    """A series' labels as remote write has them."""
    name, _, rest = series.partition("{")
    pairs = {"instance": "cluster", **dict(PAIR.findall(rest)), "__name__": name, "job": "all"}
    return b"".join(
        field(1, field(1, label.encode()) + field(2, value.encode()))
        for label, value in sorted(pairs.items())
    )


class Feeder(threading.Thread):
    """Writes the same history to all servers, and goes on at the pace of a scrape."""

    def __init__(self, servers: list[Server], site: Site) -> None:
        super().__init__(daemon=True)
        self.servers = servers
        self.site = site
        self.labels: dict[str, bytes] = {}
        self.begun_ms = time.time_ns() // 1_000_000 - FULL_SECONDS * 1000
        self.over = threading.Event()

    def body(self, lines: list[str], time_ms: int) -> bytes:
        """Lines of the page as remote write has them."""
        stamp = b"\x10" + varint(time_ms)
        plain = bytearray()
        for line in lines:
            series, value = line.rsplit(" ", 1)
            if series not in self.labels:
                self.labels[series] = labels_of(series)
            sample = field(2, b"\x09" + struct.pack("<d", float(value)) + stamp)
            plain += field(1, self.labels[series] + sample)
        return snappy(bytes(plain))

    def write(self, time_ms: int) -> None:
        """To all."""
        lines = page(self.site, 1e6 + (time_ms - self.begun_ms) / 1e3).splitlines()
        for start in range(0, len(lines), BODY_SERIES_MAX):
            body = self.body(lines[start : start + BODY_SERIES_MAX], time_ms)
            for server in self.servers:
                request = urllib.request.Request(f"http://{server.address}{server.writing}", body, HEADERS)
                urllib.request.urlopen(request, timeout=60).close()

    def fill(self) -> None:
        """Full windows, before anything else is done."""
        for seconds in range(0, FULL_SECONDS + 1, SCRAPE_SECONDS):
            self.write(self.begun_ms + seconds * 1000)

    def run(self) -> None:
        """Until it is told to end."""
        while not self.over.wait(SCRAPE_SECONDS):
            self.write(time.time_ns() // 1_000_000)


class Evaluating(Ours):
    """This project's server with all rules."""

    def __init__(self, folder: Path, rules: list[Path]) -> None:
        super().__init__(folder, BIN)
        files = [option for file in rules for option in ("--rule-files", str(file))]
        self.options = ["--starter-rules=false", *files]
        self.options += ["--rule-interval", f"{CYCLE_SECONDS}s", "--own-metrics=false"]

    def command(self, port: int) -> list[str]:
        """With them."""
        return [*super().command(port), *self.options]

    def evaluating_seconds(self) -> float:
        """CPU seconds of the threads that evaluate rules, but for those that they start for one query."""
        ticks = 0
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            name, _, rest = (task / "stat").read_text().partition("(")[2].rpartition(")")
            if name.startswith("truegauge-rules"):
                ticks += sum(int(part) for part in rest.split()[11:13])
        return ticks / os.sysconf("SC_CLK_TCK")


class PeerEvaluating(Prometheus):
    """Prometheus with the same."""

    def __init__(self, folder: Path, rules: list[Path]) -> None:
        super().__init__(folder)
        self.rules = rules

    def command(self, port: int) -> list[str]:
        """With the same rules."""
        command = super().command(port)
        files = json.dumps([str(file) for file in self.rules])
        (self.folder / "prometheus.yml").write_text(
            f"global: {{evaluation_interval: {CYCLE_SECONDS}s}}\nrule_files: {files}\n"
        )
        return command


def cycle(server: Server) -> tuple[float, list[str]]:
    """Milliseconds of the last evaluation of all groups, and what failed."""
    groups = json.loads(server.get("/api/v1/rules"))["data"]["groups"]
    failed = [
        f"{rule['name']}: {rule['lastError']}"
        for group in groups
        for rule in group["rules"]
        if rule["health"] == "err"
    ]
    return sum(group["evaluationTime"] for group in groups) * 1e3, failed


def watch(servers: list[Server], seconds: float) -> dict[str, float]:
    """The middle cycle of each."""
    times: dict[str, list[float]] = {server.name: [] for server in servers}
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(CYCLE_SECONDS)
        for server in servers:
            took, failed = cycle(server)
            if failed:
                raise SystemExit(f"{server.name} can't evaluate {failed}")
            times[server.name].append(took)
    print({who: sorted(round(took) for took in taken) for who, taken in times.items()}, file=sys.stderr)
    return {who: statistics.median(taken) for who, taken in times.items()}


def rows(seconds: float = 60, factor: int = 1, with_peer: bool = True) -> list[Row]:
    """Ours against the bar and against Prometheus; of a larger site what it costs, without a bar."""
    site = Site().times(factor)
    rules = sorted(file for file in (ROOT / "rules").glob("*.yml") if not file.name.startswith("mapping-"))
    with contextlib.ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="truegauge-rules-", dir=ROOT / "target"))
        )
        ours = Evaluating(folder, rules)
        servers: list[Server] = [ours]
        if with_peer and Prometheus.found() is not None:
            servers.append(PeerEvaluating(folder, rules))
        for server in servers:
            stack.enter_context(ended(server))
        feeder = Feeder(servers, site)
        feeder.fill()
        feeder.start()
        stack.callback(feeder.over.set)
        # The first cycles write series that nobody has written before.
        watch(servers, 2 * CYCLE_SECONDS)
        before, begun = ours.evaluating_seconds(), time.monotonic()
        middle = watch(servers, seconds)
        cycles = (time.monotonic() - begun) / CYCLE_SECONDS
        cpu = (ours.evaluating_seconds() - before) / cycles * 1e3
        peaks = {server.name: round(peak_mib(server.pid)) for server in servers}
    series = page(site, 0).count("\n")
    print(
        f"{series} series, {len(rules)} files: {middle} ms; CPU a cycle {cpu:.0f} ms; at most {peaks} MiB",
        file=sys.stderr,
    )
    title = f"all rules once, over {series:,} series"
    bar = 200 if factor == 1 else CYCLE_SECONDS * 1e3
    table = [Row(title, middle["truegauge"], "ms", "bar", None, bar)]
    if "prometheus" in middle:
        table.append(Row(title, middle["truegauge"], "ms", "prometheus", middle["prometheus"], 1.0))
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long both are watched (default: 60)")
    parser.add_argument("--times", type=int, default=1, help="how much larger the site is (default: 1)")
    parser.add_argument("--alone", action="store_true", help="without Prometheus")
    asked = parser.parse_args()
    show(rows(asked.seconds, asked.times, not asked.alone))
