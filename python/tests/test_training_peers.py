"""Our exporter received by other people's backends, beside nemo-lens doing the same."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import clean, free_port, wait_for
from otlp.values import KEYS, NAME, step
from otlp_peers import LENS, GrpcReceiver, Program, doors, environment, interpreter
from receiver import Receiver, plain, value_of

STEPS = range(1, 6)
# What tells of the library itself and of the process.
OWN = {
    "telemetry.sdk.name",
    "telemetry.sdk.language",
    "telemetry.sdk.version",
    "service.version",
    "process.pid",
}


@pytest.fixture(scope="module")
def lens() -> str:
    """A Python that has nemo-lens."""
    for version in ("3.13", "3.12"):
        with contextlib.suppress(pytest.skip.Exception):
            return environment(interpreter(version), f"nemo-lens-{version}", *LENS)
    pytest.skip("there is no Python 3.12 or 3.13 on this machine (PATH, pyenv), which nemo-lens needs")


@pytest.fixture(params=["http", "grpc"])
def receiver(request):
    receiver = Receiver() if request.param == "http" else GrpcReceiver()
    yield receiver
    receiver.close()


def train(python: str, library: str, folder: Path, **variables: str) -> None:
    """The same training by either library, on the last of eight ranks."""
    switches = {
        "MEGATRON_OTEL_ENABLED": "1",
        "MEGATRON_OTEL_USER_ID": "ann",
        "MEGATRON_OTEL_SPAN_GROUPS": "per_step",
        "DEPLOYMENT_ENV": "night",
        "SLURM_JOB_ID": "4711",
        "SLURM_JOB_NAME": "llama",
        "SLURM_NNODES": "2",
        "CUDA_VISIBLE_DEVICES": "0,1",
    }
    trainer = Program(python, "trainer.py", folder, library, "7", "8", **switches, **variables)
    try:
        if variables.get("MEGATRON_OTEL_LOGS_ENABLED"):
            trainer.do("bridge()")
        trainer.do(f"train(1, {STEPS[-1]})")
        trainer.end()
    finally:
        trainer.kill()


def to(receiver: Receiver) -> dict[str, str]:
    """Has a library export there."""
    there = {"MEGATRON_OTEL_RUN_ID": "run-a", "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url}
    if isinstance(receiver, GrpcReceiver):
        # The peer sends log records over gRPC only.
        return {**there, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "MEGATRON_OTEL_LOGS_ENABLED": "1"}
    return {**there, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}


RESOURCES = {"/v1/metrics": "resource_metrics", "/v1/traces": "resource_spans", "/v1/logs": "resource_logs"}


def told(point) -> tuple:
    """What a point tells, and of what; a histogram how many lie below each bound."""
    attributes = json.dumps(plain(point.attributes), sort_keys=True)
    if not hasattr(point, "bucket_counts"):
        return attributes, value_of(point)
    below = itertools.accumulate(point.bucket_counts)
    buckets = dict(zip([*point.explicit_bounds, math.inf], below, strict=True))
    return attributes, point.count, point.sum, point.min, point.max, buckets


def same_bounds(ours: list, theirs: list) -> list:
    """Ours without the bounds that only ours has: it has finer ones, and some beyond the peer's last."""
    is_histogram = len(ours[0]) > 2
    if not is_histogram:
        return ours
    of_peer = theirs[0][-1]
    return [(*rest, {le: count for le, count in buckets.items() if le in of_peer}) for *rest, buckets in ours]


def changes(values: list) -> list:
    """Without those that say the same as the one before: the end of a process exports once more, or twice."""
    return [value for at, value in enumerate(values) if at == 0 or value != values[at - 1]]


class Picture:
    """What a backend was sent, without times and ids."""

    def __init__(self, receiver: Receiver) -> None:
        resources = [
            plain(one.resource.attributes)
            for path, message in receiver.requests
            for one in getattr(message, RESOURCES[path])
        ]
        self.resources = [{key: value for key, value in one.items() if key not in OWN} for one in resources]
        self.metrics: dict[str, tuple] = {}
        self.points: dict[str, list] = {}
        for message in receiver.of("/v1/metrics"):
            for resource in message.resource_metrics:
                for scope in resource.scope_metrics:
                    for metric in scope.metrics:
                        self._metric(scope.scope.name, metric)
        names = {span.span_id: span.name for span in receiver.spans()}
        self.spans = [
            (
                span.name,
                names.get(span.parent_span_id),
                span.kind,
                plain(span.attributes),
                (span.status.code, span.status.message.removeprefix("OSError: ")),
                [(event.name, plain(event.attributes)["exception.message"]) for event in span.events],
            )
            for span in receiver.spans()
        ]
        self.records = [
            (scope, one.body.string_value, one.severity_number, one.severity_text, names.get(one.span_id))
            for scope, one in receiver.records()
        ]

    def _metric(self, scope: str, metric) -> None:
        kind = metric.WhichOneof("data")
        data = getattr(metric, kind)
        temporality = getattr(data, "aggregation_temporality", None)
        self.metrics[metric.name] = (
            scope,
            kind,
            metric.unit,
            temporality,
            getattr(data, "is_monotonic", None),
        )
        self.points.setdefault(metric.name, []).extend(told(point) for point in data.data_points)


def test_our_export_is_that_of_nemo_lens(receiver, lens, tmp_path):
    train(sys.executable, "ours", tmp_path, **to(receiver))
    ours, count = Picture(receiver), len(receiver.requests)
    del receiver.requests[:]
    train(lens, "lens", tmp_path, **to(receiver))
    theirs = Picture(receiver)
    assert count >= 3
    assert ours.metrics == theirs.metrics
    assert {NAME + key for key in KEYS} < set(ours.metrics)
    for name in ours.metrics:
        found = changes(ours.points[name])
        if name == NAME + "skipped_iters":
            # Ours begins with the zero that the peer never sends.
            assert found.pop(0) == ("{}", 0)
        wanted = changes(theirs.points[name])
        assert same_bounds(found, wanted) == same_bounds(wanted, found), name
        # What dashboards ask of the step time is there.
        assert name != NAME + "step_duration_ms" or same_bounds(found, wanted) == wanted
    for one in ours.resources:
        # Of Slurm's job and how often it started: which incarnation this is.
        assert one.pop("nv.dl.run.uuid")
        assert one == theirs.resources[0]
    assert ours.spans == theirs.spans
    assert ours.records == theirs.records
    assert bool(ours.records) == isinstance(receiver, GrpcReceiver)


class VictoriaMetrics:
    """VictoriaMetrics with names as Prometheus has them: `VM_BIN`, else `victoria-metrics`."""

    def __init__(self, program: str, folder: Path) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        command = [
            program,
            f"-storageDataPath={folder / 'vm'}",
            f"-httpListenAddr={self.url.removeprefix('http://')}",
            "-opentelemetry.usePrometheusNaming",
        ]
        with (folder / "vm.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=clean(dict(os.environ)))
        try:
            wait_for(self._is_ready, "VictoriaMetrics was ready")
        except BaseException:
            self.close()
            raise

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, "VictoriaMetrics ended"
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(f"{self.url}/health", timeout=5).status == 200
        return False

    def series(self, run: str) -> dict[str, list[float]]:
        """Values of all series of a run, by their labels but for the run's and the library's own."""
        # What came is found a second later.
        last = "gen_ai_server_request_duration_seconds_count"
        wait_for(lambda: last in {row["metric"]["__name__"] for row in self._export(run)}, "all was found")
        own = {"nemo_run_id", "service_instance_id", "instance", "nv_dl_run_uuid"}
        own |= {name.replace(".", "_") for name in OWN}
        found = {}
        for row in self._export(run):
            labels = {name: value for name, value in row["metric"].items() if name not in own}
            points = sorted(zip(row["timestamps"], row["values"], strict=True))
            found[json.dumps(labels, sort_keys=True)] = changes([value for _, value in points])
        return found

    def _export(self, run: str) -> list[dict]:
        urllib.request.urlopen(f"{self.url}/internal/force_flush", timeout=30).read()
        asked = urllib.parse.urlencode({"match[]": f'{{nemo_run_id="{run}"}}'})
        with urllib.request.urlopen(f"{self.url}/api/v1/export?{asked}", timeout=30) as answer:
            return [json.loads(line) for line in answer]

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(60)


@pytest.fixture
def victoria(tmp_path) -> Iterator[VictoriaMetrics]:
    program = os.environ.get("VM_BIN") or shutil.which("victoria-metrics")
    if program is None:
        pytest.skip("there is no VictoriaMetrics: name the program in VM_BIN")
    server = VictoriaMetrics(program, tmp_path)
    yield server
    server.close()


def test_victoriametrics_stores_ours_as_it_stores_nemo_lens(victoria, lens, tmp_path):
    found = {}
    for library, python in (("ours", sys.executable), ("lens", lens)):
        switches = {
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"{victoria.url}/opentelemetry/v1/metrics",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "MEGATRON_OTEL_TRACES_ENABLED": "0",
            "MEGATRON_OTEL_RUN_ID": f"run-{library}",
        }
        train(python, library, tmp_path, **switches)
        found[library] = victoria.series(f"run-{library}")
    ours, theirs = found["ours"], found["lens"]
    for labels in set(ours) ^ set(theirs):
        # Ours has finer bounds, and some beyond the peer's last.
        assert "_bucket" in json.loads(labels)["__name__"]
    assert not [labels for labels in set(theirs) - set(ours) if "megatron_" in json.loads(labels)["__name__"]]
    for labels in set(ours) & set(theirs):
        name, values = json.loads(labels)["__name__"], ours[labels]
        # Ours begins with the zero that the peer never sends.
        skipped = values.pop(0) if name == "megatron_training_skipped_iters_total" else 0
        assert (skipped, values) == (0, theirs[labels]), labels
    (losses,) = [values for labels, values in ours.items() if '"megatron_training_loss"' in labels]
    # It keeps twelve digits of a value.
    assert losses == pytest.approx([step(number)["loss"] for number in STEPS], rel=1e-11)


@pytest.mark.parametrize("door", ["http", "grpc"])
def test_a_server_that_is_killed_misses_nothing_of_ours(binary, tmp_path, door):
    with doors(binary, tmp_path) as served:
        switches = {
            "MEGATRON_OTEL_ENABLED": "1",
            "MEGATRON_OTEL_RUN_ID": "run-a",
            "MEGATRON_OTEL_SPAN_GROUPS": "per_step",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{served.addresses[door]}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": {"http": "http/protobuf"}.get(door, door),
        }
        trainer = served.client(sys.executable, "trainer.py", "ours", "7", "8", **switches)
        for number in range(1, 13):
            trainer.do(f"iterate({number})")
            if number % 3 == 0:
                # It is away for an iteration, or dies while it is sent to.
                served.server.kill()
                trainer.do(f"iterate({number + 100})")
                served.server.start()
            if number % 3 == 1:
                trainer.start("handle.force_flush()")
                served.server.kill()
                served.server.start()
                trainer.answer()
        told = trainer.do("[handle.shutdown(timeout_ms=60_000).lost_points, handle.totals()['lost_spans']]")
        assert told == [0, 0]
        recorded = [*range(1, 13), *range(103, 113, 3)]
        skipped = sum(step(number)["skipped_iters"] for number in recorded)
        assert served.increase("megatron_training_skipped_iters_total") == skipped
        histogram = "megatron_training_step_duration_ms_milliseconds"
        assert served.increase(f"{histogram}_count") == len(recorded)
        total = sum(step(number)["step_duration_ms"] for number in recorded)
        assert served.increase(f"{histogram}_sum") == total
        drawn = served.drawn(**{"from": 0, "to": 4_000_000_000_000})
        assert sorted(one["iteration"] for one in drawn) == recorded
