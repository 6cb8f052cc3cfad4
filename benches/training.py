"""Cost of training telemetry in one library, as JSON on stdout: a record of eight values, spans, the end.

    python training.py truegauge|nemo-lens|opentelemetry record|shutdown
    python training.py sink PORT-FILE

`record` is CPU of the calling thread per call and the wall-clock distribution of single calls, while the
library's own sender is busy: metrics leave every 100 ms, spans as they come, to a backend in a process
of its own. `shutdown` is how long the end takes when the backend refuses, and when it never answers. Run
by `benches/bench.py` in the library's own environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from log_cost import latency, measure

CALLS = {"truegauge": 20_000, "nemo-lens": 3_000, "opentelemetry": 3_000}
EIGHT = {
    "step_duration_ms": 437.0,
    "loss": 2.5,
    "throughput_tflops": 381.5,
    "grad_norm": 1.25,
    "skipped_iters": 1,
    "learning_rate": 3e-4,
    "tokens_per_sec": 100_010.0,
    "memory_allocated_gb": 41.5,
}
KINDS = {"step_duration_ms": "histogram", "skipped_iters": "counter"}
PUT = {"histogram": "record", "counter": "add", "gauge": "set"}
SPAN = ("step", "megatron.train.iteration")
AT = {"megatron.iteration": 5}


class Recorder:
    """The eight instruments through a meter of OpenTelemetry's, as the trainer's own function does it."""

    def __init__(self, meter) -> None:
        self.put = {}
        for key in EIGHT:
            kind = KINDS.get(key, "gauge")
            make = getattr(meter, f"create_{kind}")
            unit = "ms" if kind == "histogram" else ""
            self.put[key] = getattr(make(f"megatron.training.{key}", unit=unit, description=key), PUT[kind])

    def __call__(self, **values) -> None:
        """Records what is not None."""
        for key, value in values.items():
            if value is not None:
                self.put[key](value)


def switches(url: str, groups: str) -> None:
    """Tells any of the libraries to export there."""
    os.environ.update(
        MEGATRON_OTEL_ENABLED="1",
        MEGATRON_OTEL_RUN_ID="bench",
        MEGATRON_OTEL_SPAN_GROUPS=groups,
        OTEL_EXPORTER_OTLP_ENDPOINT=url,
        OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
        OTEL_METRIC_EXPORT_INTERVAL="100",
        OTEL_BSP_SCHEDULE_DELAY="100",
    )


def truegauge(url: str, folder: str, groups: str = "per_step"):
    """Ours, both ways at once: a run with its server away, and OTLP."""
    switches(url, groups)
    os.environ.update(TRUEGAUGE_SPOOL_DIR=folder, TRUEGAUGE_URL="http://127.0.0.1:9", HOME=folder)
    import truegauge as tg
    from truegauge import training

    tg.init(project_name="bench", run_name="training", capture_system_metrics=False)
    telemetry = training.setup(rank=0, world_size=1)

    def end(timeout_ms: float) -> None:
        telemetry.shutdown(timeout_ms=timeout_ms)
        tg.close(0.0)

    return training, telemetry.record, end


def nemo_lens(url: str, _folder: str, groups: str = "per_step"):
    """The reference: its set-up and spans over OpenTelemetry."""
    switches(url, groups)
    from nemo import lens

    config = lens.NemoLensConfig.from_env(prefix="MEGATRON_OTEL", fallback_prefix="NEMO_LENS")
    handle = lens.setup_telemetry(config, rank=0, world_size=1)
    return lens, Recorder(handle.meter), lambda timeout_ms: handle.shutdown(timeout_ms=timeout_ms)


def opentelemetry(url: str, _folder: str, _groups: str = ""):
    """OpenTelemetry's own library."""
    switches(url, "default")
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    provider = MeterProvider(metric_readers=[PeriodicExportingMetricReader(OTLPMetricExporter())])
    return None, Recorder(provider.get_meter("nemo.lens")), lambda timeout_ms: provider.shutdown(timeout_ms)


LIBRARIES = {"truegauge": truegauge, "nemo-lens": nemo_lens, "opentelemetry": opentelemetry}


def span_costs(api, calls: int, is_on: bool) -> dict:
    """Costs of spans while their group is on, or off."""
    group, name = SPAN

    def managed() -> None:
        with api.managed_span(group, name):
            pass

    def managed_with() -> None:
        with api.managed_span(group, name, **AT):
            pass

    @api.trace_fn(group, "traced")
    def traced() -> None:
        pass

    asks = getattr(api, "is_span_group_enabled", None)
    calls = calls // 4 if is_on else calls
    costs = {
        "managed_span": measure(managed, calls),
        "managed_span, one attribute": measure(managed_with, calls),
        "trace_fn": measure(traced, calls),
    }
    if not is_on and asks is not None:
        costs["is_span_group_enabled"] = measure(lambda: asks(group), calls)
    return {f"{what}, {'on' if is_on else 'off'}": cost for what, cost in costs.items()}


def record(library: str) -> dict:
    """Costs of calls with the sender busy."""
    calls = CALLS[library]
    with sink() as url, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        api, take, end = LIBRARIES[library](url, folder)
        result = {
            "record": measure(lambda: take(**EIGHT), calls),
            "latency": latency(lambda: take(**EIGHT), 20_000),
        }
        if api is not None:
            with api.managed_span(*SPAN):
                result["record within a span"] = measure(lambda: take(**EIGHT), calls)
            result |= span_costs(api, calls, is_on=True)
        end(5000)
    return result


def disabled(library: str) -> dict:
    """Costs of spans whose group is off, on a rank that exports."""
    with sink() as url, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        api, _, end = LIBRARIES[library](url, folder, "default")
        result = span_costs(api, CALLS["truegauge"], is_on=False)
        end(5000)
    return result


def shutdown(library: str, url: str, folder: str) -> float:
    """Seconds that the end takes."""
    api, take, end = LIBRARIES[library](url, folder)
    take(**EIGHT)
    if api is not None:
        with api.managed_span(*SPAN):
            pass
    begin = time.perf_counter()
    end(1000)
    return time.perf_counter() - begin


def shutdowns(library: str) -> dict:
    """How long the end takes, a process each."""
    found = {}
    with socket.socket() as silent, socket.socket() as refused:
        silent.bind(("127.0.0.1", 0))
        silent.listen(64)
        # Bound and not listening: nobody else takes the port, and it refuses.
        refused.bind(("127.0.0.1", 0))
        for what, listener in (("refused", refused), ("silent", silent)):
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            command = [sys.executable, "-W", "ignore", __file__, library, "end", url]
            begin = time.perf_counter()
            done = subprocess.run(command, capture_output=True, text=True, timeout=280)
            line = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")][-1]
            found[what] = {
                "shutdown_s": json.loads(line.removeprefix("RESULT ")),
                "process_s": time.perf_counter() - begin,
            }
    return found


class Handler(BaseHTTPRequestHandler):
    """Takes everything."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Reads a request and is content with it."""
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_of_a_request: object) -> None:
        """Says nothing."""


def serve(port_file: str) -> None:
    """Is the backend until its standard input ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Path(port_file).write_text(str(server.server_port))
    import threading

    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


@contextlib.contextmanager
def sink():
    """A backend in a process of its own, which keeps off this one's interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        port_file = Path(folder) / "port"
        command = [sys.executable, __file__, "sink", str(port_file)]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
            while not (port_file.exists() and port_file.read_text()):
                if process.poll() is not None:
                    raise SystemExit("the backend did not start")
                time.sleep(0.02)
            yield f"http://127.0.0.1:{port_file.read_text()}"
            process.stdin.close()


def main() -> None:
    """Measures what the command line names."""
    library, what = sys.argv[1], sys.argv[2]
    warnings.simplefilter("ignore")
    if library == "sink":
        serve(what)
        return
    if what == "end":
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            print("RESULT " + json.dumps(shutdown(library, sys.argv[3], folder)), flush=True)
        return
    measures = {"record": record, "disabled": disabled, "shutdown": shutdowns}
    print("RESULT " + json.dumps(measures[what](library)))


if __name__ == "__main__":
    main()
