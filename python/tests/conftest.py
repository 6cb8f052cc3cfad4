"""What tests share: a clean environment, the real server, and scripts in processes of their own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

import truegauge as tg

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_SECONDS = 60
PREFIXES = (
    *("TRUEGAUGE_", "METRANA_", "OTEL_", "MEGATRON_OTEL_", "NEMO_LENS_", "CUDA_", "NVIDIA_"),
    *("K8S_", "KUBERNETES_", "MASTER_"),
    *("SLURM_", "OMPI_", "PMI", "TORCHELASTIC_", "RAY_", "MPI_", "MV2_", "MVP_", "PALS_", "JSM_", "FLUX_"),
)
NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LSB_JOBID", "PBS_JOBID", "XDG_STATE_HOME")

# A shell that runs the tests in the background has them ignore Ctrl-C, and so would every script here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def wait_for(condition, what: str):
    """The condition's first true value; fails after the deadline."""
    end = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.02)
    pytest.fail(f"{what} within {DEADLINE_SECONDS} s")
    return None


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def clean(environment: dict[str, str]) -> dict[str, str]:
    """An environment that says nothing of runs, servers and launchers."""
    return {k: v for k, v in environment.items() if not k.startswith(PREFIXES) and k not in NAMES}


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch, tmp_path):
    for name in set(os.environ) - set(clean(dict(os.environ))):
        monkeypatch.delenv(name)
    monkeypatch.setenv("TRUEGAUGE_SPOOL_DIR", str(tmp_path / "spool"))
    monkeypatch.setenv("TRUEGAUGE_CAPTURE_SYSTEM_METRICS", "false")
    monkeypatch.setenv("HOME", str(tmp_path))
    # Restored at the end: `init` adds to it.
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "")
    yield
    from truegauge import _lifecycle

    for telemetry in list(_lifecycle.open_telemetry):
        telemetry.shutdown(0.0)
    for run in list(_lifecycle.open_runs):
        run.close(0.0)


@pytest.fixture(scope="session")
def binary() -> Path:
    """The program under test: `TRUEGAUGE_BIN`, else the newest build."""
    given = os.environ.get("TRUEGAUGE_BIN")
    built = [ROOT / "target" / profile / "truegauge" for profile in ("release", "debug")]
    found = [Path(given)] if given else [path for path in built if path.exists()]
    if not found:
        pytest.fail("there is no program to test: `make build`, or set TRUEGAUGE_BIN")
    return max(found, key=lambda path: path.stat().st_mtime)


class Server:
    """A server of its own: data directory, port, process."""

    def __init__(self, binary: Path, folder: Path) -> None:
        self.binary = binary
        self.folder = folder
        self.url = f"http://127.0.0.1:{free_port()}"
        self.environment = {
            **clean(dict(os.environ)),
            "HOME": str(folder),
            "TRUEGAUGE_SPOOL_DIR": str(folder / "spool"),
            # A test sees what it sends and nothing else.
            "TRUEGAUGE_OWN_METRICS": "false",
            "TRUEGAUGE_STARTER_RULES": "false",
        }
        self.process: subprocess.Popen | None = None

    def start(self) -> None:
        listen = self.url.removeprefix("http://")
        command = [self.binary, "up", "--data-dir", self.folder / "data", "--listen", listen]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=self.environment)
        wait_for(self._is_ready, "the server was ready")

    def _is_ready(self) -> bool:
        if self.process.poll() is not None:
            pytest.fail(f"the server ended: {(self.folder / 'server.log').read_text()[-2000:]}")
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(f"{self.url}/readyz", timeout=5).status == 200
        return False

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(DEADLINE_SECONDS)

    def get(self, path: str, **query):
        parameters = "?" + urllib.parse.urlencode(query, doseq=True) if query else ""
        with urllib.request.urlopen(f"{self.url}/api/tg/v1/{path}{parameters}", timeout=30) as answer:
            return json.load(answer)

    def runs(self) -> list[dict]:
        return self.get("runs")["runs"]

    def the_run(self) -> dict:
        """The only run, with all its facts."""
        (row,) = self.runs()
        return self.get(f"runs/{row['run_id']}")

    def series(self, run_id: str, name: str) -> list[dict]:
        """Series of a metric, by its logged name."""
        return [m for m in self.get(f"runs/{run_id}/metrics")["metrics"] if m["display"] == name]

    def points(self, run_id: str, name: str, **labels) -> list[tuple[float, float]]:
        """Steps and values of a metric's few points; a NaN comes as the text `NaN`."""
        chosen = {f"label.{key}": value for key, value in labels.items()}
        found = self.get(f"runs/{run_id}/points", metric=name, axis="step", buckets=2000, **chosen)
        return [pair for s in found["series"] for pair in zip(s["x"], s["last"], strict=True)]

    def environment_of_client(self) -> dict[str, str]:
        return {"TRUEGAUGE_URL": self.url, "TRUEGAUGE_SPOOL_DIR": str(self.folder / "clients")}


@pytest.fixture
def server(binary, tmp_path):
    folder = tmp_path / "server"
    folder.mkdir()
    server = Server(binary, folder)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def online(server, monkeypatch):
    """Has runs of this process go to a server, and returns it."""
    for name, value in server.environment_of_client().items():
        monkeypatch.setenv(name, value)
    return server


@pytest.fixture
def run():
    """A run of this process that stays on disk."""
    with tg.init(project_name="p", run_name="r", offline=True) as run:
        yield run


class Scripts:
    """Runs Python code in processes of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            **clean(dict(os.environ)),
            "HOME": str(folder),
            "TRUEGAUGE_SPOOL_DIR": str(folder / "spool"),
            "TRUEGAUGE_CAPTURE_SYSTEM_METRICS": "false",
            "PYTHONUNBUFFERED": "1",
        }
        self.count = 0

    def start(self, code: str, *flags: str, **environment: str) -> subprocess.Popen:
        self.count += 1
        path = self.folder / f"script_{self.count}.py"
        path.write_text(textwrap.dedent(code))
        return subprocess.Popen(
            [sys.executable, *flags, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**self.environment, **environment},
        )

    def run(self, code: str, *flags: str, code_wanted: int = 0, **environment: str):
        """Waits for the script; returns standard output and error."""
        process = self.start(code, *flags, **environment)
        out, err = process.communicate(timeout=DEADLINE_SECONDS * 2)
        assert process.returncode == code_wanted, err
        return out, err


@pytest.fixture
def scripts(tmp_path):
    return Scripts(tmp_path)
