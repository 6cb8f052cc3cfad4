"""Requests of real clients, where they are at hand, over HTTP and gRPC: each is answered as it deserves.

What becomes of the metrics in them is told by the server's own tests; here are all captures, and what becomes
of spans and log records.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from conftest import ROOT
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces
from otlp_peers import Doors, doors
from receiver import plain

CAPTURES = ROOT.parent / "shared/data/real-clients/captures"
FORMS = {".pb": "application/x-protobuf", ".json": "application/json"}
SERVICES = {
    "metrics": ("metrics.v1.MetricsService", metrics.ExportMetricsServiceResponse),
    "traces": ("trace.v1.TraceService", traces.ExportTraceServiceResponse),
    "logs": ("logs.v1.LogsService", logs.ExportLogsServiceResponse),
}
ALWAYS = {"from": 0, "to": 4_000_000_000_000, "limit": 1000}


@pytest.fixture
def captures() -> Path:
    if not CAPTURES.is_dir():
        pytest.skip(f"there are no captures of real clients in {CAPTURES}")
    return CAPTURES


@pytest.fixture
def served(binary, tmp_path) -> Iterator[Doors]:
    with doors(binary, tmp_path) as opened:
        yield opened


def signal_of(capture: Path) -> str | None:
    """What a capture tells, which the last word of its name or the one before a number says."""
    words = capture.stem.split("-")
    found = [word for word in words if word in SERVICES]
    return found[-1] if found and capture.suffix in FORMS else None


def send(served: Doors, door: str, capture: Path) -> tuple[object, object]:
    """Sends a capture; the status, and the answer as the service's own class reads it."""
    signal, body = signal_of(capture), capture.read_bytes()
    service, answer = SERVICES[signal]
    if door == "grpc" and capture.suffix == ".pb":
        with grpc.insecure_channel(served.addresses["grpc"]) as channel:
            call = channel.unary_unary(f"/opentelemetry.proto.collector.{service}/Export")
            try:
                return grpc.StatusCode.OK, answer.FromString(call(body, timeout=60))
            except grpc.RpcError as error:
                return error.code(), None
    url = f"http://{served.addresses['http']}/v1/{signal}"
    request = urllib.request.Request(url, body, {"content-type": FORMS[capture.suffix]})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            told = response.read()
            assert response.headers["content-type"] == FORMS[capture.suffix]
            return response.status, answer() if told == b"{}" else answer.FromString(told)
    except urllib.error.HTTPError as error:
        return error.code, None


@pytest.mark.parametrize("door", ["http", "grpc"])
def test_every_capture_is_answered_as_it_deserves(served, captures, door):
    seen = 0
    # In the order of their numbers: what is cumulative goes on.
    for capture in sorted(path for path in captures.iterdir() if signal_of(path)):
        status, answer = send(served, door, capture)
        seen += 1
        if "garbage" in capture.name:
            assert status in (400, grpc.StatusCode.INVALID_ARGUMENT), capture.name
            continue
        assert status in (200, grpc.StatusCode.OK), capture.name
        if "partial" in capture.name:
            assert answer.partial_success.rejected_data_points == 4
            assert "bad.temporality" in answer.partial_success.error_message
    assert seen > 50


def spans_of(capture: Path) -> list[tuple]:
    """Spans in a capture, as OpenTelemetry's own classes read them."""
    request = traces.ExportTraceServiceRequest.FromString(capture.read_bytes())
    (resource,) = request.resource_spans
    spans = [span for scope in resource.scope_spans for span in scope.spans]
    return sorted(
        (
            span.span_id.hex(),
            span.trace_id.hex(),
            span.name,
            span.start_time_unix_nano,
            len(span.links),
            [event.name for event in span.events],
            {key: value for key, value in plain(span.attributes).items() if key != "prompt"},
        )
        for span in spans
    )


@pytest.mark.parametrize("door", ["http", "grpc"])
@pytest.mark.parametrize(
    "name",
    [
        "lens010-http",
        "lens010-grpc",
        "lens020dev-truncated",
        "sdk-exemplars",
        "synth-json",
        "synth-json-twin",
    ],
)
def test_spans_of_captures_are_told_whole(served, captures, name, door):
    sent = captures / f"{name}-traces.pb"
    if not sent.exists():
        # As JSON it is the same as its twin.
        sent = sent.with_suffix(".json")
    wanted = spans_of(sent if sent.suffix == ".pb" else captures / f"{name}-twin-traces.pb")
    for _ in range(2):
        # What comes twice is there once.
        assert send(served, door, sent)[0] in (200, grpc.StatusCode.OK)
    (run,) = served.server.runs()
    found = []
    for one in served.drawn(run["run"], **ALWAYS):
        place = {"instance": one["instance"], "trace": one["trace"], "id": one["id"]}
        told = served.server.get(f"runs/{run['run_id']}/timeline", part="span", **place)["span"]
        found.append(
            (
                one["id"],
                one["trace"],
                told["name"],
                int(told["origin_ns"]) + round(told["start_us"] * 1e3),
                len(told["links"]),
                [event["name"] for event in told["events"]],
                dict(told["attributes"]),
            )
        )
    found.sort()
    assert [one[:3] + one[4:] for one in found] == [one[:3] + one[4:] for one in wanted]
    assert [one[3] for one in found] == pytest.approx([one[3] for one in wanted], rel=0, abs=1_000)


@pytest.mark.parametrize("door", ["http", "grpc"])
def test_log_records_of_a_capture_are_told_whole(served, captures, door):
    capture = captures / "lens010-grpc-logs.pb"
    for _ in range(2):
        assert send(served, door, capture)[0] in (200, grpc.StatusCode.OK)
    request = logs.ExportLogsServiceRequest.FromString(capture.read_bytes())
    wanted = [
        (str(one.time_unix_nano), one.body.string_value, one.trace_id.hex(), one.span_id.hex(), 7)
        for scope in request.resource_logs[0].scope_logs
        for one in scope.log_records
    ]
    records = served.server.get("logs")["records"]
    assert [
        tuple(one[key] for key in ("time_ns", "body", "trace", "span", "rank")) for one in records
    ] == wanted
    assert len(wanted) == 2
