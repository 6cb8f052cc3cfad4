"""Serves pages of many vLLM-like engines, each on a port of its own on loopback, from one process.

`python benches/engine_pages.py COUNT PREFIX` prints the ports as one line of JSON and serves until its input
ends. Counters rise by the seconds that went by, so that two servers that ask see the same.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

BOUNDS = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
    20,
    40,
    80,
    160,
)
GAUGES = {
    "num_requests_running": 40,
    "num_requests_waiting": 12,
    "kv_cache_usage_perc": 0.7,
    "lora_requests_info": 1,
}
COUNTERS = {
    "num_preemptions_total": 0.2,
    "prefix_cache_queries_total": 9_000,
    "prefix_cache_hits_total": 4_000,
    "prompt_tokens_total": 12_000,
    "generation_tokens_total": 5_000,
    "spec_decode_num_drafts_total": 100,
    "spec_decode_num_draft_tokens_total": 400,
    "spec_decode_num_accepted_tokens_total": 250,
}
HISTOGRAMS = (
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_inference_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
    "request_time_per_output_token_seconds",
    "request_prompt_tokens",
    "request_generation_tokens",
    "iteration_tokens_total",
    "request_max_num_generation_tokens",
    "request_params_n",
    "request_params_max_tokens",
)
FINISHED = {"stop": 20, "length": 3, "abort": 0.1}
PROCESS = {
    "process_virtual_memory_bytes": "gauge",
    "process_resident_memory_bytes": "gauge",
    "process_cpu_seconds_total": "counter",
    "process_open_fds": "gauge",
    "http_requests_inprogress": "gauge",
}
BEGUN = time.time() - 3_600


def template(prefix: str, number: int) -> tuple[str, list[tuple[float, float]]]:
    """A page with holes for its values, and for each value where it is and by how much it rises a second."""
    lines: list[str] = []
    values: list[tuple[float, float]] = []
    labels = f'engine="0",model_name="model-{number % 20}"'

    def head(name: str, kind: str) -> None:
        lines.append(f"# HELP {name} What an engine says of itself.")
        lines.append(f"# TYPE {name} {kind}")

    def sample(text: str, at: float, rise: float) -> None:
        lines.append(f"{text} %r")
        values.append((at, rise))

    for name, at in GAUGES.items():
        head(prefix + name, "gauge")
        sample(f"{prefix}{name}{{{labels}}}", at, 0.0)
    for name, rise in COUNTERS.items():
        head(prefix + name, "counter")
        sample(f"{prefix}{name}{{{labels}}}", 0.0, rise)
    head(f"{prefix}request_success_total", "counter")
    for reason, rise in FINISHED.items():
        sample(f'{prefix}request_success_total{{{labels},finished_reason="{reason}"}}', 0.0, rise)
    for name in HISTOGRAMS:
        head(prefix + name, "histogram")
        for place, bound in enumerate(BOUNDS):
            bucket = f'{prefix}{name}_bucket{{{labels},le="{bound}"}}'
            sample(bucket, 0.0, 23.0 * (place + 1) / (len(BOUNDS) + 1))
        sample(f'{prefix}{name}_bucket{{{labels},le="+Inf"}}', 0.0, 23.1)
        sample(f"{prefix}{name}_sum{{{labels}}}", 0.0, 30.0)
        sample(f"{prefix}{name}_count{{{labels}}}", 0.0, 23.1)
    for name, kind in PROCESS.items():
        head(name, kind)
        sample(name, 1e6 + number, 0.5 if kind == "counter" else 0.0)
    return "\n".join(lines) + "\n", values


class Page(asyncio.Protocol):
    """Answers every request with the page of one engine."""

    def __init__(self, text: str, values: list[tuple[float, float]], number: int) -> None:
        self.text, self.values, self.number = text, values, number
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Remembers where to answer."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """A request has come, whole: they are short."""
        if b"\r\n\r\n" not in data or self.transport is None:
            return
        seconds = time.time() - BEGUN + self.number
        wave = 1 + seconds % 7 / 100
        found = tuple(float(int(seconds * rise)) if rise else at * wave for at, rise in self.values)
        body = (self.text % found).encode()
        kind = "Content-Type: text/plain; version=0.0.4"
        head = f"HTTP/1.1 200 OK\r\n{kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        self.transport.write(head.encode() + body)


async def serve(count: int, prefix: str) -> None:
    """Serves until the input ends."""
    loop = asyncio.get_running_loop()
    ports = []
    for number in range(count):
        text, values = template(prefix, number)

        def page(text: str = text, values: list[tuple[float, float]] = values, number: int = number) -> Page:
            return Page(text, values, number)

        server = await loop.create_server(page, "127.0.0.1", 0)
        ports.append(server.sockets[0].getsockname()[1])
    print(json.dumps({"ports": ports, "series": len(template(prefix, 0)[1])}), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2]))
