"""The far storage down for minutes under load, this server killed and restarted meanwhile.

Starts Prometheus as the far storage and a server before it. Runs are logged by Python clients, other
series come by remote write; everything that was acknowledged is counted. Then the far storage is
killed, later the server too, and both come back. At the end every sample is asked of the far storage:
nothing may be missing, nothing be there twice.

    python benches/far_outage.py --minutes 10

With `--vm BINARY` the far storage is VictoriaMetrics. It is stopped in order then: killed, it forgets
the last seconds that it has acknowledged.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from pathlib import Path

from push import field, varint

ROOT = Path(__file__).resolve().parents[1]
DEADLINE_SECONDS = 120
ORGANIZATION = "outage"

CLIENT = """
import sys, time
import truegauge as tg

name, until, rate = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
tg.init(organization="outage", project_name="far", run_name=name, capture_system_metrics=False)
count = 0
while time.time() < until:
    tg.log({"loss": float(count), "rate": float(-count)}, step=count)
    count += 1
    # Bursts: several calls within one millisecond.
    if count % 5 == 0:
        time.sleep(5 / rate)
tg.flush(300)
tg.close()
print(count)
"""


def free_port() -> int:
    """A port that stays free while its program is down: the system hands out those above 32,768."""
    for port in random.sample(range(20_000, 32_000), 1_000):
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
    raise SystemExit("no port is free")


def wait_for(condition, what: str, seconds: float = DEADLINE_SECONDS):
    """The condition's first true value; ends the program after the deadline."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError, ValueError):
            if value := condition():
                return value
        time.sleep(0.1)
    raise SystemExit(f"{what}: waited {seconds} s in vain")


def get(url: str, **parameters: str) -> dict:
    body = urllib.parse.urlencode(parameters).encode() if parameters else None
    with urllib.request.urlopen(url, data=body, timeout=60) as answer:
        return json.load(answer)


def is_up(url: str) -> bool:
    with urllib.request.urlopen(url, timeout=2) as answer:
        return answer.status == 200


class Program:
    """A program that is started, killed and started again."""

    def __init__(self, command: list[str], ready: str, log: Path, env: dict[str, str] | None = None):
        self.command, self.ready, self.log, self.env = command, ready, log, env
        self.process: subprocess.Popen | None = None

    def start(self) -> None:
        """Starts it and waits until it is ready."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, env=self.env)
        wait_for(lambda: is_up(self.ready), f"{self.command[0]} is ready")

    def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Ends it, unless it has ended."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(60)
            self.process = None


def snappy(plain: bytes) -> bytes:
    """A block of literals: valid, and not smaller."""
    out = bytearray(varint(len(plain)))
    for start in range(0, len(plain), 65536):
        part = plain[start : start + 65536]
        out += bytes([61 << 2]) + struct.pack("<H", len(part) - 1) + part
    return bytes(out)


def remote_write(series: int, time_ms: int, value: float) -> bytes:
    """One sample for each of `series` series."""
    sample = b"\x09" + struct.pack("<d", value) + b"\x10" + varint(time_ms)
    plain = bytearray()
    for number in range(series):
        labels = field(1, field(1, b"__name__") + field(2, b"outage_written"))
        labels += field(1, field(1, b"number") + field(2, str(number).encode()))
        plain += field(1, labels + field(2, sample))
    return snappy(bytes(plain))


class Writer(threading.Thread):
    """Sends remote write, and each request until it is acknowledged."""

    def __init__(self, url: str, series: int, interval: float, until: float):
        super().__init__(daemon=True)
        self.url, self.series, self.interval, self.until = url, series, interval, until
        self.acknowledged = 0

    def run(self) -> None:
        """Sends until the time is over."""
        headers = {
            "content-type": "application/x-protobuf",
            "content-encoding": "snappy",
            "x-prometheus-remote-write-version": "0.1.0",
        }
        while time.time() < self.until:
            time_ms = time.time_ns() // 1_000_000
            body = remote_write(self.series, time_ms, float(self.acknowledged))
            while True:
                request = urllib.request.Request(f"{self.url}/api/v1/write", body, headers)
                try:
                    with urllib.request.urlopen(request, timeout=20):
                        break
                except (OSError, urllib.error.URLError):
                    time.sleep(0.2)
            self.acknowledged += 1
            time.sleep(self.interval)


def values(far: str, selector: str, seconds: float) -> list[list[float]]:
    """The values of every series that fits, in order of time."""
    query = f"{selector}[{int(seconds)}s]"
    answer = get(f"{far}/api/v1/query", query=query, time=str(time.time() + 5), latency_offset="1ms")
    return [[float(value) for _, value in row["values"]] for row in answer["data"]["result"]]


def check(what: str, found: list[list[float]], wanted: int, sign: float, series: int = 1) -> dict:
    """Every value from 0 on is there once, in each series."""
    everything = {sign * number for number in range(wanted)}
    missing = sum(len(everything - set(row)) for row in found) + (series - len(found)) * wanted
    doubled = sum(len(row) - len(set(row)) for row in found)
    foreign = sum(len(set(row) - everything) for row in found)
    samples = sum(len(row) for row in found)
    odd = sorted({value for row in found for value, count in Counter(row).items() if count > 1})
    odd += sorted({value for row in found for value in everything - set(row)}, key=abs)
    return {
        "what": what,
        "samples": samples,
        "missing": missing,
        "doubled": doubled,
        "foreign": foreign,
        "odd": odd[:5],
    }


def is_whole(row: dict) -> bool:
    return row["missing"] == row["doubled"] == row["foreign"] == 0


def found_rows(far: str, counts: list[int], written: tuple[int, int], seconds: float) -> list[dict]:
    """What the far storage has of everything that was acknowledged."""
    rows = []
    for number, count in enumerate(counts):
        run = f'run="run-{number}",organization="{ORGANIZATION}"'
        for metric, sign in (("loss", 1.0), ("rate", -1.0), ("truegauge_step", 1.0)):
            found = values(far, f"{metric}{{{run}}}", seconds)
            rows.append(check(f"{metric} of run-{number}", found, count, sign))
    acknowledged, series = written
    found = values(far, "outage_written", seconds)
    rows.append(check("remote write", found, acknowledged, 1.0, series))
    return rows


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="how long the far storage is down")
    parser.add_argument("--bin", type=Path, default=ROOT / "target/release/truegauge")
    parser.add_argument("--vm", type=Path, help="a VictoriaMetrics to use in place of Prometheus")
    parser.add_argument("--clients", type=int, default=3, help="runs that are logged")
    parser.add_argument("--rate", type=float, default=200.0, help="log calls of each a second")
    parser.add_argument("--series", type=int, default=200, help="series that come by remote write")
    return parser.parse_args()


def main() -> int:
    asked = arguments()
    prometheus = shutil.which("prometheus")
    if prometheus is None and asked.vm is None:
        raise SystemExit("`prometheus` is missing: apt-get install prometheus")
    with tempfile.TemporaryDirectory(prefix="far-outage-") as folder:
        return outage(asked, prometheus, Path(folder))


def prometheus_of(binary: str, port: int, home: Path) -> Program:
    config = home / "prometheus.yml"
    config.write_text("storage: {tsdb: {out_of_order_time_window: 2h}}\n")
    command = [
        binary,
        f"--config.file={config}",
        f"--storage.tsdb.path={home / 'far'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--web.enable-remote-write-receiver",
        "--query.max-samples=500000000",
    ]
    return Program(command, f"http://127.0.0.1:{port}/-/ready", home / "far.log")


def victoria(binary: Path, port: int, home: Path) -> Program:
    command = [
        str(binary),
        f"-storageDataPath={home / 'far'}",
        f"-httpListenAddr=127.0.0.1:{port}",
        "-retentionPeriod=10y",
        "-search.latencyOffset=0s",
        "-search.disableCache",
        "-search.maxPointsPerTimeseries=100000000",
    ]
    return Program(command, f"http://127.0.0.1:{port}/health", home / "far.log")


def outage(asked: argparse.Namespace, prometheus: str | None, home: Path) -> int:
    far_port, port = free_port(), free_port()
    far_url, url = f"http://127.0.0.1:{far_port}", f"http://127.0.0.1:{port}"
    far = victoria(asked.vm, far_port, home) if asked.vm else prometheus_of(prometheus, far_port, home)
    settings = home / "truegauge.toml"
    settings.write_text(
        f'[storage]\nkind = "prometheus"\nwrite_url = "{far_url}/api/v1/write"\nquery_url = "{far_url}"\n'
    )
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TRUEGAUGE_")}
    clean |= {"HOME": str(home), "TRUEGAUGE_SPOOL_DIR": str(home / "spool")}
    server = Program(
        [
            str(asked.bin),
            "up",
            *("--data-dir", str(home / "data"), "--listen", f"127.0.0.1:{port}"),
            *("--otlp-grpc-listen", f"127.0.0.1:{free_port()}"),
            *("--otlp-http-listen", f"127.0.0.1:{free_port()}"),
            *("--config", str(settings)),
        ],
        f"{url}/readyz",
        home / "truegauge.log",
        clean,
    )
    far.start()
    server.start()
    try:
        return measure(asked, far, server, far_url, url, clean)
    except BaseException:
        print((home / "truegauge.log").read_text()[-4000:], file=sys.stderr)
        raise
    finally:
        server.end()
        far.end()


def measure(
    asked: argparse.Namespace, far: Program, server: Program, far_url: str, url: str, clean: dict
) -> int:
    down = asked.minutes * 60
    margin = max(2.0, down / 10)
    started = time.time()
    until = started + margin + down + margin
    env = clean | {"TRUEGAUGE_URL": url}
    clients = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", CLIENT, f"run-{number}", str(until), str(asked.rate)],
            stdout=subprocess.PIPE,
            env=env,
            text=True,
        )
        for number in range(asked.clients)
    ]
    writer = Writer(url, asked.series, 0.25, until)
    writer.start()
    time.sleep(margin)
    say("the far storage is killed")
    far.end(signal.SIGTERM if asked.vm else signal.SIGKILL)
    time.sleep(down / 3)
    waiting = get(f"{url}/api/tg/v1/storage")["far"]
    say(f"{waiting['queue']['bytes']} bytes wait; the server is killed and started again")
    server.end()
    server.start()
    time.sleep(down / 3)
    say("the server is stopped in order and started again")
    server.end(signal.SIGTERM)
    server.start()
    time.sleep(down / 3)
    waiting = get(f"{url}/api/tg/v1/storage")["far"]
    say(f"{waiting['queue']['bytes']} bytes wait; the far storage comes back")
    back = time.time()
    far.start()
    wait_for(lambda: drained(url), "the queue is empty", 60 + down)
    drained_seconds = time.time() - back
    say(f"the queue is empty {drained_seconds:.1f} s later; the server is killed and started again")
    server.end()
    server.start()
    counts = [int(client.communicate(timeout=down + 600)[0].split()[-1]) for client in clients]
    writer.join(60)
    wait_for(lambda: drained(url), "the queue is empty at the end", 60)
    status = get(f"{url}/api/tg/v1/storage")["far"]
    seconds = time.time() - started + 60
    # VictoriaMetrics shows new samples some seconds late.
    end = time.monotonic() + 20
    rows = found_rows(far_url, counts, (writer.acknowledged, asked.series), seconds)
    while time.monotonic() < end and not all(is_whole(row) for row in rows):
        time.sleep(1)
        rows = found_rows(far_url, counts, (writer.acknowledged, asked.series), seconds)
    for row in rows:
        say("{what:<24} {samples:>9} samples, {missing} missing, {doubled} doubled".format(**row))
        if row["odd"]:
            say(f"  the first of them: {row['odd']}")
    refused = status["refused"]["samples"]
    whole = refused == 0 and all(is_whole(row) for row in rows)
    result = {
        "minutes": asked.minutes,
        "samples": sum(row["samples"] for row in rows),
        "missing": sum(row["missing"] for row in rows),
        "doubled": sum(row["doubled"] for row in rows),
        "refused": refused,
        "left_out": status["left_out"],
        "waiting_bytes": waiting["queue"]["bytes"],
        "drained_seconds": round(drained_seconds, 1),
        "whole": whole,
    }
    print("RESULT " + json.dumps(result))
    return 0 if whole else 1


def drained(url: str) -> bool:
    far = get(f"{url}/api/tg/v1/storage")["far"]
    return far["queue"]["bytes"] < 100_000 and far["queue"]["lag_seconds"] < 2 and far["failing"] is None


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
