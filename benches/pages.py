"""What the pages of a big fleet cost: 10,000 models and 16,384 GPUs, asked as Inference and Fleet do.

The series come by scraping pages that are made up here, under canonical names, with the labels that engines
and agents give them. Printed is how long each answer takes and how large it is.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from peers import ROOT, Ours
from table import Row, show

BIN = Path(os.environ.get("TRUEGAUGE_BIN", ROOT / "target/release/truegauge"))
TARGETS = 64
"""Pages over which the series are spread."""
SCRAPE_SECONDS = 10
GPUS_OF_HOST = 8
HISTOGRAMS = ("ttft", "itl", "e2e")
BOUNDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
BAR_SECONDS = 2.0
FILL_SECONDS = 300


def engine(number: int, gpus: int, count: float) -> list[str]:
    """Series of one replica that serves a model of its own."""
    card = number % gpus
    host = f"host-{card // GPUS_OF_HOST:04}"
    labels = (
        f'engine="vllm",model="acme/model-{number:05}",job="serving",'
        f'instance="{host}:{8000 + number // gpus}",namespace="inference",pod="replica-{number:05}"'
    )
    lines = [
        f"tg_engine_requests_running{{{labels}}} {number % 17}",
        f"tg_engine_requests_waiting{{{labels}}} {number % 3}",
        f"tg_engine_kv_usage_ratio{{{labels}}} 0.{number % 90 + 10}",
        f"tg_engine_output_tokens_total{{{labels}}} {count * 40}",
        f"tg_engine_prompt_tokens_total{{{labels}}} {count * 90}",
        f"tg_engine_preemptions_total{{{labels}}} 0",
        f'tg_engine_requests_finished_total{{{labels},reason="stop"}} {count}',
    ]
    for name in HISTOGRAMS:
        of = f"tg_engine_{name}_seconds"
        shares = range(1, len(BOUNDS) + 1)
        lines += [
            f'{of}_bucket{{{labels},le="{bound}"}} {count * share // len(BOUNDS)}'
            for bound, share in zip(BOUNDS, shares, strict=True)
        ]
        lines += [
            f'{of}_bucket{{{labels},le="+Inf"}} {count}',
            f"{of}_sum{{{labels}}} {count * 0.2}",
            f"{of}_count{{{labels}}} {count}",
        ]
    return lines


def card(number: int, models: int, seconds: float) -> list[str]:
    """Series of one card, which a replica has where there are as many."""
    host, index = f"host-{number // GPUS_OF_HOST:04}", number % GPUS_OF_HOST
    labels = f'host="{host}",gpu="{index}",uuid="GPU-{number:08x}"'
    model = 'vendor="nvidia",gpu_model="NVIDIA H100 80GB HBM3",driver="580.95.05",mig="false"'
    lines = [
        f"tg_gpu_info{{{labels},{model}}} 1",
        f"tg_gpu_busy_ratio{{{labels}}} 1",
        f"tg_gpu_tensor_active_ratio{{{labels}}} 0.4",
        f"tg_gpu_dram_active_ratio{{{labels}}} 0.5",
        f"tg_gpu_power_watts{{{labels}}} {500 + number % 150}",
        f"tg_gpu_power_limit_watts{{{labels}}} 700",
        f"tg_gpu_energy_joules_total{{{labels}}} {seconds * 600}",
        f"tg_gpu_sm_clock_hertz{{{labels}}} 1.9e9",
        f"tg_gpu_temperature_celsius{{{labels}}} {50 + number % 20}",
    ]
    if number < models:
        owner = f'namespace="inference",pod="replica-{number:05}",confidence="certain"'
        lines.append(f"tg_gpu_owner_info{{{labels},{owner}}} 1")
    return lines


class Pages:
    """Every target's page, served on loopback."""

    def __init__(self, models: int, gpus: int) -> None:
        began = time.monotonic()

        class Page(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                target, seconds = int(self.path.rsplit("/", 1)[1]), time.monotonic() - began
                lines: list[str] = []
                for number in range(target, models, TARGETS):
                    lines += engine(number, gpus, 1_000 + int(seconds * 3))
                for number in range(target, gpus, TARGETS):
                    lines += card(number, models, seconds)
                body = ("\n".join(lines) + "\n").encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"127.0.0.1:{self.server.server_address[1]}"

    def config(self, path: Path) -> Path:
        """The scrape configuration that reads them."""
        jobs = [
            f'{{"job_name": "p{target}", "honor_labels": true, "metrics_path": "/{target}", '
            f'"static_configs": [{{"targets": ["{self.address}"]}}]}}'
            for target in range(TARGETS)
        ]
        path.write_text(
            f'{{"global": {{"scrape_interval": "{SCRAPE_SECONDS}s"}}, "scrape_configs": [{", ".join(jobs)}]}}'
        )
        return path


class Scraping(Ours):
    """The server with these pages as its targets."""

    def __init__(self, folder: Path, config: Path) -> None:
        super().__init__(folder, BIN)
        self.config = config

    def command(self, port: int) -> list[str]:
        """With the scrape configuration."""
        return [*super().command(port), "--scrape-config", str(self.config)]


def measure(server: Ours, what: str, path: str, times: int) -> Row:
    """Asks several times; how long it took, the middle one and the worst, and how large the answer is."""
    took, size = [], 0
    for _ in range(times):
        begin = time.monotonic()
        size = len(server.get(path))
        took.append(time.monotonic() - begin)
    took.sort()
    p50, p99 = took[len(took) // 2], took[min(len(took) - 1, int(len(took) * 0.99))]
    print(f"{what}: p50 {p50:.3f} s, p99 {p99:.3f} s, {size / 2**20:.2f} MiB", file=sys.stderr, flush=True)
    return Row(what, p99, "s", "bar", None, BAR_SECONDS)


def main() -> None:
    """Fills a server and asks it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=10_000)
    parser.add_argument("--gpus", type=int, default=16_384)
    parser.add_argument("--times", type=int, default=20)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        pages = Pages(args.models, args.gpus)
        server = Scraping(Path(folder), pages.config(Path(folder) / "scrape.yml"))
        server.start()
        try:
            fill(server, args.models, args.gpus)
            rows = [
                measure(server, f"GET {path}", f"/api/tg/v1/{path}", args.times)
                for path in (
                    "engines",
                    f"engines?model=acme/model-{args.models // 2:05}",
                    "fleet/gpus?signal=power_ratio",
                    "fleet/gpus?signal=power_ratio&host=host-0001",
                    "fleet/nodes",
                    "incidents",
                )
            ]
        finally:
            server.stop()
    show(rows)


def fill(server: Ours, models: int, gpus: int) -> None:
    """Waits until every target was read three times."""
    begin, found = time.monotonic(), 0.0
    of = ("tg_engine_requests_running", "tg_gpu_power_watts")
    query = " + ".join(f"count(count_over_time({name}[5m]) > 2)" for name in of)
    while found < models + gpus:
        if time.monotonic() - begin > FILL_SECONDS:
            raise SystemExit(f"{found:,.0f} of {models + gpus:,} series after {FILL_SECONDS} s")
        time.sleep(SCRAPE_SECONDS / 2)
        rows = json.loads(server.get("/api/v1/query", query=query))["data"]["result"]
        found = float(rows[0]["value"][1]) if rows else 0.0
    print(f"filled after {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
