"""The servers that the engine is measured against, each started with an empty folder on loopback."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
import demo  # noqa: E402  the same way of starting a server
from process import cpu_seconds, disk_bytes, peak_mib  # noqa: E402

READY_SECONDS = 120
ANSWER_SECONDS = 600
RAW_CLASSES = (1, 2)
"""Classes of segments that hold samples (`docs/format/segment.md`)."""


class Server:
    """A server with a folder of its own; subclasses say how it is started and asked."""

    name: str
    writing = "/api/v1/write"
    asking = "/api/v1"
    health = "/-/ready"
    durability: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder / self.name
        self.data = self.folder / "data"
        self.log = self.folder / "server.log"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.data.mkdir(parents=True)
        self.process: subprocess.Popen | None = None
        self.address = ""
        self.samples = 0
        """That it was sent."""

    def command(self, port: int) -> list[str]:
        """The command line that listens on `port`."""
        raise NotImplementedError

    def start(self) -> None:
        """Starts it and waits until it is ready."""
        port = demo.free_port()
        self.address = f"127.0.0.1:{port}"
        with self.log.open("ab") as stream:
            self.process = subprocess.Popen(self.command(port), stdout=stream, stderr=stream)
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(OSError):
                self.get(self.health)
                return
            time.sleep(0.05)
        self.kill()
        log = self.log.read_text(errors="replace")
        raise SystemExit(f"{self.name} did not become ready, its log says:\n{log[-2000:]}")

    @property
    def pid(self) -> int:
        """Of the process that runs."""
        if self.process is None:
            raise RuntimeError(f"{self.name} is not started")
        return self.process.pid

    def cpu(self) -> float:
        """CPU seconds of the process that runs."""
        return cpu_seconds(self.pid)

    def peak(self) -> float:
        """Largest resident size of the process that runs, MiB."""
        return peak_mib(self.pid)

    def stop(self) -> float:
        """Ends it in its own way; returns the CPU seconds of its whole life."""
        if self.process is None:
            return 0.0
        self.process.send_signal(signal.SIGTERM)
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.process = None
        return usage.ru_utime + usage.ru_stime

    def kill(self) -> None:
        """Ends it whatever it does."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            self.process.wait()
        self.process = None

    def get(self, path: str, **parameters: str | float) -> bytes:
        """The body behind a path."""
        query = f"?{urllib.parse.urlencode(parameters)}" if parameters else ""
        with urllib.request.urlopen(f"http://{self.address}{path}{query}", timeout=ANSWER_SECONDS) as answer:
            return answer.read()

    def range(self, query: str, start: int, end: int, step: int) -> bytes:
        """The body of an answer over a range."""
        return self.get(f"{self.asking}/query_range", query=query, start=start, end=end, step=step)

    def settle(self) -> None:
        """Waits until what is due after a load is done."""

    def sealed(self) -> tuple[float, str] | None:
        """Bytes a sample of what is sealed, and what that is; none when nothing is."""
        return disk_bytes(self.data) / self.samples, "whole folder"


class Ours(Server):
    """This project's server."""

    name = "truegauge"
    health = "/readyz"
    durability = "fsync before each answer; requests that wait together share one"

    def __init__(self, folder: Path, binary: Path) -> None:
        super().__init__(folder)
        self.binary = binary

    def command(self, port: int) -> list[str]:
        """On ports of its own, also for OTLP."""
        others = [f"127.0.0.1:{demo.free_port()}" for _ in range(2)]
        return [
            *(str(self.binary), "up", "--data-dir", str(self.data), "--listen", f"127.0.0.1:{port}"),
            *("--otlp-grpc-listen", others[0], "--otlp-http-listen", others[1]),
        ]

    def settle(self) -> None:
        """What was sealed last is rolled up and merged after the start: waits until nothing works."""
        deadline = time.monotonic() + 120
        quiet = 0
        while quiet < 3 and time.monotonic() < deadline:
            before = self.cpu()
            time.sleep(1)
            quiet = quiet + 1 if self.cpu() - before < 0.05 else 0

    def sealed(self) -> tuple[float, str] | None:
        """Segments; what lies beside them is named apart."""
        raw = rolled = 0
        for path in (self.data / "segments").glob("*.seg"):
            with path.open("rb") as file:
                is_raw = file.read(16)[12] in RAW_CLASSES
            size = path.stat().st_blocks * 512
            raw, rolled = raw + size * is_raw, rolled + size * (not is_raw)
        log = disk_bytes(self.data) - raw - rolled
        beside = f"roll-ups {rolled / self.samples:.2f}, log and catalogue {log / self.samples:.2f}"
        return raw / self.samples, f"raw and index; beside them {beside}"


class Prometheus(Server):
    """Prometheus with its write receiver on."""

    name = "prometheus"
    durability = "write to the log before each answer, fsync when a part of it is full"
    allowed: tuple[str, ...] = ()

    @staticmethod
    def found() -> str | None:
        """The program that `PROM_BIN` names, or the one that is installed."""
        return os.environ.get("PROM_BIN") or shutil.which("prometheus")

    def allow(self, flag: str) -> bool:
        """Starts it with a flag, if its version has it."""
        said = subprocess.run(
            [self.found() or "prometheus", "--help"], capture_output=True, text=True, check=False
        )
        known = flag in said.stdout + said.stderr
        self.allowed = (*self.allowed, flag) if known else self.allowed
        return known

    def command(self, port: int) -> list[str]:
        """With a configuration that scrapes nothing."""
        config = self.folder / "prometheus.yml"
        config.write_text("global:\n  scrape_interval: 1h\n")
        return [
            self.found() or "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={self.data}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--web.enable-remote-write-receiver",
            "--storage.tsdb.retention.time=10y",
            "--query.max-samples=500000000",
            *self.allowed,
        ]

    def settle(self) -> None:
        """Its head becomes blocks once a minute as long as it spans more than three hours."""
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            lines = self.get("/metrics").decode().splitlines()
            values = dict(line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
            name = "prometheus_tsdb_head_{}_time"
            newest, oldest = (float(values[name.format(which)]) for which in ("max", "min"))
            if newest - oldest <= 3.05 * 3_600_000:
                return
            time.sleep(1)

    def sealed(self) -> tuple[float, str] | None:
        """Blocks by the samples that they hold; its head is not sealed."""
        held = size = 0
        for meta in self.data.glob("*/meta.json"):
            held += json.loads(meta.read_text())["stats"].get("numSamples", 0)
            size += disk_bytes(meta.parent)
        return (size / held, "blocks alone") if held else None


class VictoriaMetrics(Server):
    """VictoriaMetrics, single node, with its cache of results off."""

    name = "victoriametrics"
    health = "/health"
    asking = "/prometheus/api/v1"
    durability = "answers from memory, data reaches the disk within seconds"

    def __init__(self, folder: Path, binary: str) -> None:
        super().__init__(folder)
        self.binary = binary

    @staticmethod
    def found() -> str | None:
        """The program that `VM_BIN` names, or the one that is installed."""
        return os.environ.get("VM_BIN") or shutil.which("victoria-metrics")

    def command(self, port: int) -> list[str]:
        """With limits out of the way."""
        return [
            self.binary,
            f"-storageDataPath={self.data}",
            f"-httpListenAddr=127.0.0.1:{port}",
            "-retentionPeriod=10y",
            "-search.disableCache=true",
            "-search.maxUniqueTimeseries=1000000",
            "-search.maxQueryDuration=300s",
            "-search.maxPointsPerTimeseries=100000",
            # It would close the connection of a sender after two minutes.
            "-http.connTimeout=2h",
        ]

    def settle(self) -> None:
        """Makes it merge what it would merge in its own time."""
        self.get("/internal/force_flush")
        self.get("/internal/force_merge")
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            lines = self.get("/metrics").decode().splitlines()
            active = [line for line in lines if line.startswith("vm_active_merges")]
            if active and all(float(line.rsplit(" ", 1)[1]) == 0 for line in active):
                return
            time.sleep(0.5)


@contextlib.contextmanager
def ended(server: Server) -> Iterator[Server]:
    """The server, started, and ended whatever happens."""
    server.start()
    try:
        yield server
    finally:
        server.kill()
        shutil.rmtree(server.folder, ignore_errors=True)


def servers(folder: Path, binary: Path) -> Iterator[Server]:
    """Ours and every peer that is there; says which is not."""
    yield Ours(folder, binary)
    if Prometheus.found():
        yield Prometheus(folder)
    else:
        print("not measured: prometheus is not installed (Debian's package `prometheus`)", file=sys.stderr)
    if found := VictoriaMetrics.found():
        yield VictoriaMetrics(folder, found)
    else:
        text = "not measured: no `victoria-metrics`: name the program in VM_BIN"
        print(text, file=sys.stderr)
