"""What the agent costs a node with 8 GPUs, beside Debian's `prometheus-node-exporter` on the same machine.

The GPUs are those of the fake driver (`cargo build --release -p fake-nvml`), with every family of readings
and next to no cost of their own. Everything runs at once, so that other work on the cores hits all the same:
an agent whose page is asked for each second, as the exporter's is, and an agent that sends each second to a
server. CPU is read thread by thread, in nanoseconds, from the kernel's scheduler.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from ranks import BIN, DRIVER, ROOT, machine
from table import Row, show

sys.path.insert(0, str(ROOT / "scripts"))
import demo

WARM_SECONDS = 8
READY_SECONDS = 30


@dataclass
class Figures:
    """What one process used."""

    name: str
    share: float
    """Of one core."""
    rss: float
    """Resident, median, MiB."""
    anonymous: float
    """Of that, what is not mapped from files."""
    series: int
    parts: dict[str, float]
    """Share of one core by the name of the thread."""


def cpu_by_thread(pid: int) -> dict[str, float]:
    """CPU seconds so far by the name of the thread, digits at its end left out."""
    found: dict[str, float] = defaultdict(float)
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name = (task / "comm").read_text().strip().rstrip("0123456789-")
            found[name] += int((task / "schedstat").read_text().split()[0]) / 1e9
        except FileNotFoundError:
            continue  # Threads come and go.
    return found


def memory(pid: int) -> tuple[float, float]:
    """Resident memory and the anonymous part of it, MiB."""
    lines = dict(line.split(":") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(lines["VmRSS"].split()[0]) / 1024, int(lines["RssAnon"].split()[0]) / 1024


def page(port: int) -> str:
    """The page `/metrics`."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return answer.read().decode()


def series(text: str) -> int:
    """Samples of a page."""
    return sum(1 for line in text.splitlines() if line and not line.startswith("#"))


@dataclass
class Peer:
    """A process that is measured."""

    name: str
    command: list[str]
    environment: dict[str, str]
    port: int
    is_scraped: bool
    process: subprocess.Popen | None = None

    def start(self, folder: Path) -> None:
        """Starts it and waits until its page is there."""
        with (folder / f"{self.name.replace(' ', '-')}.log").open("wb") as log:
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=log, env={**os.environ, **self.environment}
            )
        until = time.monotonic() + READY_SECONDS
        while True:
            try:
                page(self.port)
                return
            except OSError as error:
                if time.monotonic() > until or self.process.poll() is not None:
                    raise SystemExit(f"{self.name} shows no page: {error}; see {log.name}") from error
                time.sleep(0.05)

    def stop(self) -> None:
        """Ends it."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait()


def agent(name: str, folder: Path, drivers: dict[str, str], *options: str) -> Peer:
    """An agent of ours that looks each second."""
    port = demo.free_port()
    kernel_log = folder / "kernel.log"
    kernel_log.touch()
    named = name.replace(" ", "-")
    command = [BIN, "agent", "--listen", f"127.0.0.1:{port}", "--interval", "1s", "--kmsg", kernel_log]
    command += ["--state-dir", folder / f"{named}-state", "--host", named, *options]
    return Peer(name, [str(part) for part in command], drivers, port, not options)


def peers(folder: Path, url: str, gpus: int) -> list[Peer]:
    """All that are measured; the exporter only where it is installed."""
    drivers = machine(folder / "driver", gpus)
    found = [
        agent("agent, asked each second", folder, drivers),
        agent("agent, sends each second", folder, drivers, "--server", url),
    ]
    program = shutil.which("prometheus-node-exporter")
    if program:
        port = demo.free_port()
        command = [program, f"--web.listen-address=127.0.0.1:{port}"]
        found.append(Peer("node-exporter", command, {}, port, True))
    else:
        print("prometheus-node-exporter is not installed: its rows are left out", file=sys.stderr)
    return found


def ask(all_peers: list[Peer], seconds: float) -> dict[str, list[tuple[float, float]]]:
    """Asks for the pages once a second; what memory each process had."""
    seen: dict[str, list[tuple[float, float]]] = defaultdict(list)
    begin = time.monotonic()
    for second in range(round(seconds)):
        for peer in all_peers:
            if peer.is_scraped:
                page(peer.port)
            seen[peer.name].append(memory(peer.process.pid))
        time.sleep(max(0.0, begin + second + 1 - time.monotonic()))
    return seen


def measure(gpus: int, seconds: float) -> list[Figures]:
    """Starts all of them, and reads what they used within the same seconds."""
    if not DRIVER.exists():
        raise SystemExit(f"there is no `{DRIVER}`: `cargo build --release -p fake-nvml`")
    with tempfile.TemporaryDirectory(prefix="truegauge-agent-", dir=ROOT / "target") as name:
        folder = Path(name)
        server, url = demo.start_server(BIN, folder / "data", folder / "server.log")
        started: list[Peer] = []
        try:
            for peer in peers(folder, url, gpus):
                started.append(peer)
                peer.start(folder)
            ask(started, WARM_SECONDS)
            before = [cpu_by_thread(peer.process.pid) for peer in started]
            begin = time.monotonic()
            seen = ask(started, seconds)
            took = time.monotonic() - begin
            figures = []
            for peer, earlier in zip(started, before, strict=True):
                now = cpu_by_thread(peer.process.pid)
                parts = {part: (now[part] - earlier.get(part, 0.0)) / took for part in now}
                rss, anonymous = (statistics.median(column) for column in zip(*seen[peer.name], strict=True))
                count = series(page(peer.port))
                figures.append(Figures(peer.name, sum(parts.values()), rss, anonymous, count, parts))
            return figures
        finally:
            for peer in started:
                peer.stop()
            demo.stop(server)


def describe(figures: list[Figures]) -> None:
    """Prints what each process used, beside the table."""
    for one in figures:
        parts = ", ".join(f"{part} {share:.3%}" for part, share in sorted(one.parts.items()) if share > 2e-5)
        print(
            f"{one.name:<26} {one.share:.2%} of a core, {one.rss:.1f} MiB ({one.anonymous:.1f} of its own),"
            f" {one.series} series: {parts}",
            file=sys.stderr,
        )


def rows(gpus: int = 8, seconds: float = 60) -> list[Row]:
    """Every figure of ours beside the exporter's."""
    figures = measure(gpus, seconds)
    describe(figures)
    *ours, last = figures
    if last.name != "node-exporter":
        ours, last = figures, None
    table = []
    for one in ours:
        peer = ("node-exporter", last.share * 100) if last else ("bar", None)
        table.append(Row(f"{one.name}, CPU of a core", one.share * 100, "%", *peer, 1 if last else 2))
        peer = ("node-exporter", last.rss) if last else ("bar", None)
        table.append(Row(f"{one.name}, resident", one.rss, "MiB", *peer, 1.5 if last else 40))
    return table


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=8, help="GPUs (default: 8)")
    parser.add_argument("--seconds", type=float, default=60, help="how long (default: 60)")
    args = parser.parse_args()
    show(rows(args.gpus, args.seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
