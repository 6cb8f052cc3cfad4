"""Our own OTLP against the real server: the quick start as users type it, over both transports."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from conftest import Server, clean, free_port

import truegauge as tg
from truegauge import training

LOSSES = [10.0, 9.5, 9.25, 8.0, 7.75]


class OtlpServer(Server):
    """A server whose doors of OTLP have ports of their own."""

    def __init__(self, binary: Path, folder: Path) -> None:
        super().__init__(binary, folder)
        self.grpc, self.http = free_port(), free_port()
        self.environment["TRUEGAUGE_OTLP_GRPC_LISTEN"] = f"127.0.0.1:{self.grpc}"
        self.environment["TRUEGAUGE_OTLP_HTTP_LISTEN"] = f"127.0.0.1:{self.http}"

    def query(self, text: str) -> list[dict]:
        parameters = urllib.parse.urlencode({"query": text})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{parameters}", timeout=30) as answer:
            return json.load(answer)["data"]["result"]

    def stored(self, metric: str, run: str) -> list[float]:
        """Every value of a metric's only series of a run, oldest first."""
        found = self.query(f'{metric}{{nemo_run_id="{run}"}}[1h]')
        assert len(found) == 1, (metric, found)
        return [float(value) for _, value in found[0]["values"]]


@pytest.fixture
def doors(binary, tmp_path):
    folder = tmp_path / "server"
    folder.mkdir()
    server = OtlpServer(binary, folder)
    server.start()
    yield server
    server.kill()


def switches(doors: OtlpServer, transport: str, folder: Path) -> dict[str, str]:
    """The exports of the quick start."""
    common = {
        **clean(dict(os.environ)),
        "HOME": str(folder),
        "MEGATRON_OTEL_ENABLED": "1",
        "MEGATRON_OTEL_RUN_ID": "run-a",
        "MEGATRON_OTEL_SPAN_GROUPS": "per_step",
    }
    if transport == "grpc":
        return {**common, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://localhost:{doors.grpc}"}
    endpoint = f"http://localhost:{doors.http}"
    return {
        **common,
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
    }


def check_run(doors: OtlpServer, losses: list[float]) -> None:
    """Whether the run of the quick start is there, with its losses, its skip and its spans."""
    (row,) = doors.runs()
    assert (row["project"], row["run"]) == ("megatron-lm", "run-a")
    stored = doors.stored("megatron_training_loss", "run-a")
    # The end exports once more, which repeats the last value.
    assert stored[: len(losses)] == losses
    assert set(stored[len(losses) :]) <= {losses[-1]}
    assert doors.stored("megatron_training_skipped_iters_total", "run-a")[-1] == 1
    spans = doors.get(f"runs/{row['run_id']}/timeline", part="spans", step=3)
    assert "megatron.train.iteration" in spans["names"]
    # As the dashboards and the guide ask.
    assert doors.query('{__name__=~"megatron_training_loss.*"}')
    assert doors.query('{nemo_run_id=~"run-a|run-b",__name__="megatron_training_loss"}')
    assert doors.query('{nemo_run_id="run-a",__name__=~"megatron_training_.*"}')


OURS = """
import json, sys
from truegauge import training
telemetry = training.setup(rank=7, world_size=8, service_name="megatron-lm")
with training.managed_span("job", "megatron.train"):
    for step, loss in enumerate(json.loads(sys.argv[1])):
        with training.managed_span("step", "megatron.train.iteration", **{"megatron.iteration": step + 1}):
            telemetry.record(loss=loss, skipped_iters=int(step == 2))
        assert telemetry.force_flush()
info = telemetry.shutdown()
assert (info.lost_points, info.lost_spans) == (0, 0), info
"""


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_the_quick_start(doors, transport, tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    (site / "truegauge").symlink_to(Path(tg.__file__).parent)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", OURS, json.dumps(LOSSES)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**switches(doors, transport, tmp_path), "PYTHONPATH": str(site)},
    )
    assert done.returncode == 0, done.stderr
    check_run(doors, LOSSES)


def test_losses_that_are_no_finite_numbers_are_stored(doors, monkeypatch):
    """By ours: OpenTelemetry's library leaves them out and repeats the last finite one."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{doors.http}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    with training.setup(rank=0, world_size=1, run_id="run-a", enabled=True) as telemetry:
        for loss in (1.0, math.nan, math.inf, -math.inf):
            telemetry.record(loss=loss)
            assert telemetry.force_flush()
        info = telemetry.shutdown()
    assert info.lost_points == 0
    stored = doors.stored("megatron_training_loss", "run-a")
    assert stored[0] == 1.0
    assert math.isnan(stored[1])
    assert stored[2:4] == [math.inf, -math.inf]
