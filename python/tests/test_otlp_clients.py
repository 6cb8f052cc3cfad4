"""OpenTelemetry's own library and exporters against our server: every point is stored as it was recorded."""

from __future__ import annotations

import contextlib
import math
import re
import sys
from pathlib import Path

import pyarrow
import pytest
from conftest import wait_for
from otlp.values import KEYS, NAME, step
from otlp_peers import AnyServer, Doors, doors, environment
from proxy import Proxy

STEPS = range(1, 8)
MILLI = 1_000_000
ZSTD = b"\x28\xb5\x2f\xfd"
ALWAYS = {"from": 0, "to": 4_000_000_000_000, "limit": 1000}
HISTOGRAM = "megatron_training_step_duration_ms_milliseconds"
SKIPPED = "megatron_training_skipped_iters_total"
GAUGES = [key for key in KEYS if key not in ("step_duration_ms", "skipped_iters")]
DELTA = {"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "delta"}
EXPONENTIAL = {
    "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION": "base2_exponential_bucket_histogram"
}
GZIP = {"OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"}
WAYS = {
    "totals": {},
    "totals, gzip": GZIP,
    "totals, deflate": {"OTEL_EXPORTER_OTLP_COMPRESSION": "deflate"},
    "amounts": DELTA,
    "exponential": EXPONENTIAL,
    "exponential amounts, gzip": DELTA | EXPONENTIAL | GZIP,
}
DOORS = ("http", "grpc")
ODD = ("grpc", "totals, deflate")


@pytest.fixture
def served(binary, tmp_path):
    with doors(binary, tmp_path) as opened:
        yield opened


def ms(time_ns: int) -> int:
    return time_ns // MILLI


def skips(numbers: range) -> float:
    return float(sum(step(number)["skipped_iters"] for number in numbers))


def time_sum(numbers: range) -> float:
    return float(sum(step(number)["step_duration_ms"] for number in numbers))


class Recorded:
    """What a client exported, as its exporter saw it, put as totals."""

    def __init__(self, exports: list[dict], steps: range) -> None:
        assert [one["result"] for one in exports] == ["SUCCESS"] * len(exports)
        self.points = [one["points"] for one in exports]
        self.steps = steps

    def gauge(self, key: str) -> list[tuple[int, float]]:
        points = [points[NAME + key] for points in self.points]
        assert [point["value"] for point in points] == [step(number)[key] for number in self.steps]
        return [(point["time_ns"], point["value"]) for point in points]

    def totals(self, key: str, value) -> list[tuple[int, float]]:
        """Times of a metric's exports, each with what was recorded until then.

        Where a sequence starts is the total of before: zero at first, and after exports that a library which
        tells amounts left out because there were none.
        """
        found, total, starts = [], value(range(0)), set()
        for number, points in zip(self.steps, self.points, strict=True):
            if point := points.get(NAME + key):
                start_ns = point["start_ns"]
                if start_ns not in starts | {found[-1][0] if found else 0}:
                    found.append((start_ns, total))
                total = value(range(self.steps[0], number + 1))
                starts.add(start_ns)
                found.append((point["time_ns"], total))
        return [(ms(time_ns), total) for time_ns, total in found]


def gauge_is(served: Doors, key: str, wanted: list[tuple[int, float]]) -> None:
    """A gauge has these values, and times in milliseconds."""
    assert served.samples(f"megatron_training_{key}") == [(ms(time_ns), value) for time_ns, value in wanted]


def buckets_are(served: Doors, recorded: Recorded) -> None:
    """Every sample of every bucket counts what was recorded until then; the last export is told."""
    rows = served.query(f"{HISTOGRAM}_bucket[1d]")
    assert len(rows) > 5
    for row in rows:
        bound = float(row["metric"]["le"].replace("+Inf", "inf"))
        values = [(round(seconds * 1e3), float(value)) for seconds, value in row["values"]]

        def count(numbers: range, bound: float = bound) -> float:
            return float(sum(step(number)["step_duration_ms"] <= bound for number in numbers))

        left = iter(recorded.totals("step_duration_ms", count))
        # A bound that came up later has no samples of before.
        assert all(value in left for value in values), (bound, values)
        assert not list(left), f"{bound} is told to the end"


# Over gRPC this library packs with gzip only.
@pytest.mark.parametrize(
    ("door", "way"), [(door, way) for door in DOORS for way in WAYS if (door, way) != ODD]
)
def test_every_point_is_stored_as_it_was_recorded(served, door, way):
    client = served.sdk(door, rank=3, **WAYS[way])
    for number in STEPS:
        client.do(f"iterate({number})")
    exports, spans = client.do("exports"), client.do("spans")
    client.do("tracers.force_flush()")
    recorded = Recorded(exports, STEPS)
    run_id = served.run_id()
    for key in GAUGES:
        wanted = recorded.gauge(key)
        gauge_is(served, key, wanted)
        for axis, xs in (("time", [time_ns / MILLI for time_ns, _ in wanted]), ("step", list(STEPS))):
            asked = {"metric": NAME + key, "axis": axis, "buckets": 2000}
            (series,) = served.server.get(f"runs/{run_id}/points", **asked)["series"]
            assert series["last"] == [value for _, value in wanted], (key, axis)
            # Two digits of a microsecond are what a float holds of such a time.
            assert series["x"] == pytest.approx(xs, rel=0, abs=1e-3), (key, axis)
            assert series["labels"]["dl_rank"] == "3"
    assert served.samples(SKIPPED) == recorded.totals("skipped_iters", skips)
    assert served.samples(f"{HISTOGRAM}_sum") == recorded.totals("step_duration_ms", time_sum)
    assert served.samples(f"{HISTOGRAM}_count") == recorded.totals("step_duration_ms", len)
    buckets_are(served, recorded)
    spans_are(served, spans)
    exemplars_are(served, exports, spans)


def spans_are(served: Doors, spans: list[dict]) -> None:
    """The timeline draws these spans and no others, to the microsecond."""
    wanted = {one["id"]: one for one in spans}
    edges = [edge for one in spans for edge in (one["start_ns"], one["end_ns"])]
    drawn = served.drawn(**{"from": ms(min(edges)), "to": ms(max(edges)) + 1, "limit": 1000})
    assert len(drawn) == len(wanted)
    for one in drawn:
        span = wanted[one["id"]]
        assert (one["name"], one["trace"], one["rank"]) == (span["name"], span["trace"], 3)
        assert span["iteration"] in (None, one["iteration"])
        for edge in ("start_ns", "end_ns"):
            assert abs(one[edge] - span[edge]) <= 1_000, edge


def exemplars_are(served: Doors, exports: list[dict], spans: list[dict]) -> None:
    """Each loss leads to the span that it was recorded in."""
    sent = [one for export in exports for one in export["points"][NAME + "loss"]["exemplars"]]
    inner = {(one["trace"], one["id"]) for one in spans if one["name"] == "megatron.train.optimizer"}
    assert {(one["trace"], one["span"]) for one in sent} == inner
    (row,) = served.ask("query_exemplars", query="megatron_training_loss", start=0, end=4e9)["data"]
    found = [
        (one["labels"]["trace_id"], one["labels"]["span_id"], float(one["value"]), one["timestamp"])
        for one in row["exemplars"]
    ]
    assert found == [(one["trace"], one["span"], one["value"], ms(one["time_ns"]) / 1e3) for one in sent]


@pytest.mark.parametrize("way", ["totals", "amounts"])
@pytest.mark.parametrize("door", DOORS)
def test_instruments_of_every_kind_tell_what_they_did(served, door, way):
    client = served.sdk(door, **WAYS[way])
    client.do("kinds()")
    for number in range(1, 5):
        client.do(f"recorder.instruments['queue'].add({7 - 3 * number}, OF_A_KIND)")
        client.do(f"now.update(bytes={number**3}, celsius={50 - number / 2}, lanes={number % 2})")
        assert client.do("flush()") == "SUCCESS"
    wanted = {
        # Added up: 4, 1, -2, -5.
        "app_queue": [4.0, 5.0, 3.0, -2.0],
        "app_sent_bytes_total": [1.0, 8.0, 27.0, 64.0],
        "app_heat_celsius": [49.5, 49.0, 48.5, 48.0],
        "app_lanes": [1.0, 0.0, 1.0, 0.0],
    }
    for name, values in wanted.items():
        found = [value for _, value in served.samples(name)]
        # A counter that is added to begins with a zero.
        assert found[-4:] == values, name
        assert found[:-4] in ([], [0.0]), name
    (row,) = served.query("app_sent_bytes_total")
    labels = {"name_of": "first", "is_on": "true", "number": "3", "share": "0.5", "list": '["a","b"]'}
    assert labels.items() <= row["metric"].items()
    told = served.ask("metadata")["data"]
    types = {name: told[name][0]["type"] for name in wanted}
    assert types == {**dict.fromkeys(wanted, "gauge"), "app_sent_bytes_total": "counter"}


@pytest.mark.parametrize("door", DOORS)
def test_log_records_come_with_their_span(served, door):
    client = served.sdk(door, rank=3)
    written = client.do("log('disk is slow', 'disk is full', shard=7)")
    client.end()
    records = served.server.get("logs", run_id=served.run_id())["records"]
    assert [{key: one[key] for key in written[0]} for one in records] == written
    for one in records:
        assert (one["severity"], one["severity_text"], one["scope"]) == (13, "WARNING", "megatron.training")
        assert (one["rank"], one["instance"], one["attributes"]) == (3, "run-a-rank3", {"shard": 7})


@pytest.mark.parametrize("way", ["totals", "amounts"])
@pytest.mark.parametrize("door", DOORS)
def test_a_trainer_that_starts_again_counts_on(served, door, way):
    for steps in (range(1, 5), range(5, 11)):
        client = served.sdk(door, **WAYS[way])
        for number in steps:
            client.do(f"record({number})")
            assert client.do("flush()") == "SUCCESS"
        client.end()
    assert served.increase(SKIPPED) == skips(range(1, 11))
    assert served.increase(f"{HISTOGRAM}_count") == 10
    assert served.increase(f"{HISTOGRAM}_sum") == time_sum(range(1, 11))
    losses = [value for _, value in served.samples("megatron_training_loss")]
    wanted = [step(number)["loss"] for number in range(1, 11)]
    # The end of a process tells its last value once more, unless it tells what is new only.
    assert list(dict.fromkeys(losses)) == wanted


def diverged(served: Doors, python: str) -> list[float]:
    """Losses of which the second is NaN, and the third infinite."""
    client = served.sdk("http", python=python)
    for number, loss in enumerate(("2.5", "float('nan')", "float('inf')", "2.0"), 1):
        client.do(f"record({number}, loss={loss}, grad_norm=-{loss})")
        assert client.do("flush()") == "SUCCESS"
    return [value for _, value in served.samples("megatron_training_loss")]


def test_a_library_that_sends_nan_has_it_stored_and_marked(served):
    old = environment(
        sys.executable,
        "sdk-1.43",
        "opentelemetry-sdk==1.43.0",
        "opentelemetry-exporter-otlp-proto-http==1.43.0",
        "opentelemetry-exporter-otlp-proto-grpc==1.43.0",
    )
    losses = diverged(served, old)
    assert [losses[0], *losses[2:]] == [2.5, math.inf, 2.0]
    assert math.isnan(losses[1])
    norms = [value for _, value in served.samples("megatron_training_grad_norm")]
    assert [norms[0], *norms[2:]] == [-2.5, -math.inf, -2.0]
    assert math.isnan(norms[1])
    told = served.server.get(f"runs/{served.run_id()}/training")["non_finite"]["loss"]
    assert (told["nan"], told["positive_infinite"], told["negative_infinite"]) == (1, 1, 0)


def test_a_library_that_hides_nan_repeats_the_value_before(served):
    assert diverged(served, sys.executable) == [2.5, 2.5, 2.5, 2.0]


@pytest.mark.parametrize("way", ["totals", "amounts", "exponential amounts, gzip"])
@pytest.mark.parametrize("door", DOORS)
def test_a_server_that_is_killed_while_it_is_sent_to_counts_exactly(served, door, way):
    client = served.sdk(door, **WAYS[way])
    for number in range(1, 13):
        client.do(f"record({number})")
        if number % 4 == 0:
            served.server.kill()
        client.start("flush()")
        if number % 4 == 2:
            served.server.kill()
        if number % 2 == 0:
            served.server.start()
        assert client.answer() == "SUCCESS"
    recorded = Recorded(client.do("exports"), range(1, 13))
    assert served.samples(SKIPPED) == recorded.totals("skipped_iters", skips)
    assert served.samples(f"{HISTOGRAM}_sum") == recorded.totals("step_duration_ms", time_sum)
    buckets_are(served, recorded)
    for key in GAUGES:
        gauge_is(served, key, recorded.gauge(key))


@pytest.mark.parametrize("way", ["amounts", "exponential"])
@pytest.mark.parametrize("door", DOORS)
def test_what_was_stored_before_its_answer_was_lost_counts_once(served, door, way):
    proxy = Proxy(served.addresses[door])
    try:
        client = served.sdk(door, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://{proxy.address}", **WAYS[way])
        for number in range(1, 7):
            client.do(f"record({number})")
            if number % 2:
                assert client.do("flush()") == "SUCCESS"
                continue
            proxy.passes_answers.clear()
            proxy.lost.clear()
            client.start("flush()")
            wait_for(lambda count=number: served.increase(f"{HISTOGRAM}_count") == count, "it was stored")
            assert proxy.lost.wait(60), "an answer was kept back"
            served.server.kill()
            proxy.hang_up()
            served.server.start()
            assert client.answer() == "SUCCESS"
        recorded = Recorded(client.do("exports"), range(1, 7))
        assert served.samples(SKIPPED) == recorded.totals("skipped_iters", skips)
        buckets_are(served, recorded)
    finally:
        proxy.close()


@pytest.mark.parametrize("door", DOORS)
def test_a_full_disk_is_waited_for_as_long_as_it_is_told(binary, tmp_path, door):
    with doors(binary, tmp_path, AnyServer, TRUEGAUGE_RESERVE_BYTES="1000TiB") as served:
        client = served.sdk(door, **DELTA)
        client.do("record(3)")
        client.start("flush()")
        words = re.compile(r"retrying in (\d+\.\d+)s")
        pause = wait_for(lambda: words.search(client.log.read_text()), "it was refused")
        # The library's own pauses are of odd lengths.
        assert float(pause[1]) in (1.0, 2.0, 3.0, 4.0, 5.0)
        served.server.kill()
        served.server.environment["TRUEGAUGE_RESERVE_BYTES"] = "0"
        served.server.start()
        assert client.answer() == "SUCCESS"
        assert served.increase(f"{HISTOGRAM}_count") == 1
        assert served.increase(SKIPPED) == 2


@pytest.mark.parametrize("door", DOORS)
def test_a_token_is_asked_for_and_taken(binary, tmp_path, door):
    with doors(binary, tmp_path, TRUEGAUGE_TOKEN="right") as served:
        for token, result in (("", "FAILURE"), ("wrong", "FAILURE"), ("right", "SUCCESS")):
            headers = {"OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{token}"} if token else {}
            client = served.sdk(door, **headers)
            client.do("record(1)")
            assert client.do("flush()") == result, token
            client.kill()
        served.token = "right"
        assert [value for _, value in served.samples("megatron_training_loss")] == [step(1)["loss"]]


NAMED = "gen_ai.rollout"
TYPED = "the patient in bed nine is called Zebedee"
TEXTS = {
    "gen_ai.prompt": TYPED,
    "gen_ai.completion": TYPED,
    "gen_ai.prompt.0.content": TYPED,
    "gen_ai.input.messages": f'[{{"role": "user", "content": "{TYPED}"}}]',
    "gen_ai.output.messages": f'[{{"role": "assistant", "content": "{TYPED}"}}]',
    "gen_ai.system_instructions": TYPED,
    "input.value": TYPED,
    "output.value": TYPED,
    "llm.prompts": [TYPED, TYPED],
    "traceloop.entity.input": TYPED,
    "mlflow.spanOutputs": TYPED,
    "prompt": TYPED,
    "messages": TYPED,
    "input_text": TYPED,
    "output_text": TYPED,
}


def unpacked(path: Path) -> list[bytes]:
    """A file's bytes, and those of everything in it that zstd packed."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        # The server went on meanwhile.
        return []
    found, at = [data], data.find(ZSTD)
    while at >= 0:
        parts = []
        with (
            contextlib.suppress(OSError),
            pyarrow.input_stream(pyarrow.py_buffer(data[at:]), compression="zstd") as stream,
        ):
            while part := stream.read(4096):
                parts.append(part)
        found.append(b"".join(parts))
        at = data.find(ZSTD, at + 1)
    return found


def holding(folder: Path, text: str) -> list[str]:
    """Files below a folder that hold a text."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if any(text.encode() in data for data in unpacked(path))]


def nothing_typed(data: Path, log: Path) -> None:
    """Neither a server's data nor its log has the text; the search finds what is there."""
    assert holding(data, NAMED)
    for part in ("Zebedee", "bed nine"):
        assert holding(data, part) == []
        assert part not in log.read_text()


@pytest.mark.parametrize("door", DOORS)
def test_nothing_that_somebody_typed_is_on_the_disk(binary, tmp_path, door):
    with doors(binary, tmp_path, TRUEGAUGE_SEAL_AGE="1s") as served:
        data, log = served.server.folder / "data", served.server.folder / "server.log"
        client = served.sdk(door)
        for number in range(20):
            client.do(f"span({NAMED!r}, {{**{TEXTS!r}, 'shard': {number}}})")
        client.do(
            f"log({{'content': {TYPED!r}}}, [{TYPED!r}], event='gen_ai.user.message', prompt={TYPED!r})"
        )
        client.do(f"recorder.instruments['loss'].set(1.5, {{'prompt': {TYPED!r}}})")
        client.do("iterate(1)")
        client.end()
        nothing_typed(data, log)
        wait_for(lambda: any(holding(path, NAMED) for path in data.glob("telemetry")), "spans were sealed")
        nothing_typed(data, log)
        served.server.process.terminate()
        served.server.process.wait(60)
        nothing_typed(data, log)
        served.server.start()
        nothing_typed(data, log)
        spans = [one for one in served.drawn(**ALWAYS) if one["name"] == NAMED]
        assert len(spans) == 20
        place = {"instance": "run-a-rank0", "trace": spans[0]["trace"], "id": spans[0]["id"]}
        told = served.server.get(f"runs/{served.run_id()}/timeline", part="span", **place)["span"]
        assert told["attributes"] == [["shard", 0]]
