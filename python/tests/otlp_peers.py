"""What tests with other people's clients share: their environments, processes of them, and what is stored."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pwd
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from conftest import ROOT, Server, clean, free_port
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from receiver import Receiver

SCRIPTS = Path(__file__).parent / "otlp"
ENVIRONMENTS = ROOT / "target/peers"
WAIT_SECONDS = 180
LENS = ("nemo-lens==0.1.0", "opentelemetry-sdk==1.45.2", "opentelemetry-exporter-otlp==1.45.2")
SERVICES = (
    (
        "/v1/metrics",
        metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server,
        metrics_service_pb2_grpc.MetricsServiceServicer,
        metrics_service_pb2.ExportMetricsServiceResponse,
    ),
    (
        "/v1/traces",
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server,
        trace_service_pb2_grpc.TraceServiceServicer,
        trace_service_pb2.ExportTraceServiceResponse,
    ),
    (
        "/v1/logs",
        logs_service_pb2_grpc.add_LogsServiceServicer_to_server,
        logs_service_pb2_grpc.LogsServiceServicer,
        logs_service_pb2.ExportLogsServiceResponse,
    ),
)


def interpreter(version: str) -> str:
    """A Python of this version; without one the test is skipped, which says so."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path(pwd.getpwuid(os.getuid()).pw_dir) / ".pyenv")
    found = [f"python{version}", *sorted(map(str, pyenv.glob(f"versions/{version}.*/bin/python")))]
    for one in found:
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            ask = [one, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
            if subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip() == version:
                return one
    pytest.skip(f"there is no Python {version} on this machine (PATH, pyenv)")


def environment(python: str, name: str, *packages: str) -> str:
    """The Python of an environment that has these packages; made once and kept beside the build."""
    folder = ENVIRONMENTS / name
    mark, wanted = folder / "packages", "\n".join(packages)
    program = folder / "bin/python"
    if not (mark.exists() and mark.read_text() == wanted):
        subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
        # `nemo-lens` 0.1.0 asks for Python 3.13 and works with 3.12.
        install = [program, "-m", "pip", "install", "--quiet", "--ignore-requires-python", *packages]
        done = subprocess.run(install, capture_output=True, text=True)
        assert done.returncode == 0, f"{name} could not be installed: {done.stderr[-2000:]}"
        mark.write_text(wanted)
    return str(program)


class Program:
    """A process that evaluates what it is told and answers."""

    def __init__(self, python: str, script: str, folder: Path, *arguments: str, **variables: str) -> None:
        self.log = folder / f"{script}.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [python, "-W", "ignore", SCRIPTS / script, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**clean(dict(os.environ)), "HOME": str(folder), **variables},
            )

    def start(self, expression: str) -> None:
        """Tells it to do something, without waiting."""
        self.process.stdin.write(expression + "\n")
        self.process.stdin.flush()

    def answer(self):
        """What came of it."""
        line = self.process.stdout.readline()
        assert line, f"it ended: {self.log.read_text()[-2000:]}"
        answer = json.loads(line)
        assert "is" in answer, f"{answer} {self.log.read_text()[-2000:]}"
        return answer["is"]

    def do(self, expression: str):
        self.start(expression)
        return self.answer()

    def end(self) -> None:
        """Has it export what is left, and waits for its end."""
        self.do("end()")
        self.process.communicate(timeout=WAIT_SECONDS)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=WAIT_SECONDS)


class Doors:
    """A server with all its doors, where they are, and clients of it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.addresses = {door: f"127.0.0.1:{free_port()}" for door in ("grpc", "http")}
        for door, address in self.addresses.items():
            server.environment[f"TRUEGAUGE_OTLP_{door.upper()}_LISTEN"] = address
        self.programs: list[Program] = []
        self.token = ""

    def client(self, python: str, script: str, *arguments: str, **variables: str) -> Program:
        program = Program(python, script, self.server.folder, *arguments, **variables)
        self.programs.append(program)
        return program

    def sdk(
        self, door: str, run: str = "run-a", rank: int = 0, python: str = sys.executable, **variables: str
    ) -> Program:
        """OpenTelemetry's own library, as a rank of a run."""
        resource = {
            "service.name": "megatron-lm",
            "service.instance.id": f"{run}-rank{rank}",
            "nemo.run.id": run,
            "dl.rank": rank,
            "dl.world_size": 8,
        }
        variables.setdefault("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{self.addresses[door]}")
        # Time enough for a server that is away.
        variables.setdefault("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
        return self.client(python, "sdk.py", door, json.dumps(resource), **variables)

    # --- what is stored ---------------------------------------------------------------------------

    def query(self, query: str, **asked: object) -> list[dict]:
        """The rows of an instant query."""
        answer = self.ask("query", query=query, **asked)
        return answer["data"]["result"]

    def ask(self, what: str, **asked: object) -> dict:
        """Prometheus' API."""
        parameters = urllib.parse.urlencode(asked, doseq=True)
        headers = {"authorization": f"Bearer {self.token}"} if self.token else {}
        request = urllib.request.Request(f"{self.server.url}/api/v1/{what}?{parameters}", headers=headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def samples(self, selector: str) -> list[tuple[float, float]]:
        """Times in milliseconds and values of the only series that is meant."""
        (row,) = self.query(f"{selector}[1d]")
        return [(round(seconds * 1e3), float(value)) for seconds, value in row["values"]]

    def increase(self, selector: str) -> float:
        """What a counter counted over all of its samples, resets and all."""
        values = [value for _, value in self.samples(selector)]
        pairs = itertools.pairwise(values)
        return sum(now if now < before else now - before for before, now in pairs)

    def run_id(self, run: str = "run-a") -> str:
        (row,) = [row for row in self.server.runs() if row["run"] == run]
        return row["run_id"]

    def drawn(self, run: str = "run-a", **asked: object) -> list[dict]:
        """Spans of a run's timeline, by start."""
        answer = self.server.get(f"runs/{self.run_id(run)}/timeline", part="spans", **asked)
        columns, found = answer["spans"], []
        for row in range(len(columns["name"])):
            one = {key: column[row] for key, column in columns.items()}
            lane = answer["lanes"][one["lane"]]
            start_ns = int(answer["origin_ns"]) + one["start_us"] * 1e3
            found.append(
                {
                    **one,
                    "name": answer["names"][one["name"]],
                    "trace": answer["traces"][one["trace"]],
                    "rank": lane["rank"],
                    "instance": lane["instance"],
                    "start_ns": start_ns,
                    "end_ns": start_ns + one["length_us"] * 1e3,
                }
            )
        return found


class AnyServer(Server):
    """One that is waited for until it answers, though it may say that it is not ready."""

    def _is_ready(self) -> bool:
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(f"{self.url}/healthz", timeout=5).status == 200
        return False


@contextlib.contextmanager
def doors(binary: Path, folder: Path, server: type[Server] = Server, **variables: str) -> Iterator[Doors]:
    """A server, started, and ended with its clients."""
    home = folder / "server"
    home.mkdir()
    opened = Doors(server(binary, home))
    opened.server.environment.update(variables)
    try:
        opened.server.start()
        yield opened
    finally:
        for program in opened.programs:
            program.kill()
        opened.server.kill()


class GrpcReceiver(Receiver):
    """The same backend over gRPC, made of OpenTelemetry's own service classes."""

    def __init__(self) -> None:
        self.requests, self.headers = [], []
        self.server = grpc.server(ThreadPoolExecutor(4))
        for path, add, servicer, answer in SERVICES:
            add(type("Service", (servicer,), {"Export": self._keep(path, answer)})(), self.server)
        self.url = f"http://127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def _keep(self, path: str, answer):
        def export(_service, request, context):
            self.headers.append(dict(context.invocation_metadata()))
            self.requests.append((path, request))
            return answer()

        return export

    def close(self) -> None:
        self.server.stop(None).wait()
