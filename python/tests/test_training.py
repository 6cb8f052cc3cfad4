"""Training telemetry: what is recorded, where it goes, and what it leaves alone."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import math
import os
import socket
import threading
import warnings
import weakref

import pytest
from conftest import free_port
from receiver import Receiver, gauge, plain, total, value_of

import truegauge as tg
from truegauge import training

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
NAME = "megatron.training."


@pytest.fixture(autouse=True)
def _no_telemetry_is_left():
    yield
    training.shutdown(0.0)


@pytest.fixture
def receiver():
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def exporting(receiver, monkeypatch):
    """Has this process export to a receiver, and returns that."""
    monkeypatch.setenv("MEGATRON_OTEL_ENABLED", "1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    return receiver


@pytest.fixture
def console(monkeypatch):
    """Has this process export nowhere, so that only the choice is looked at."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")


def said(call) -> list[str]:
    """What a call warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(warning.message) for warning in caught]


# --- recording ------------------------------------------------------------------------------------


def test_every_value_arrives_under_its_name_with_its_unit(exporting):
    telemetry = training.setup(rank=7, world_size=8, run_id="run-a", service_name="megatron-lm")
    telemetry.record(**EIGHT)
    assert telemetry.shutdown().lost_points == 0
    metrics = exporting.metrics()
    assert set(metrics) == {NAME + key for key in EIGHT}
    for key, value in EIGHT.items():
        metric = metrics[NAME + key][-1]
        assert metric.unit == ("ms" if key == "step_duration_ms" else ""), key
        if key == "step_duration_ms":
            (point,) = metric.histogram.data_points
            assert (point.count, point.sum) == (1, value)
        elif key == "skipped_iters":
            assert metric.sum.is_monotonic
            assert total(metric) == 1
        else:
            assert gauge(metric) == value, key
    resource = exporting.resources()[-1]
    assert resource["service.name"] == "megatron-lm"
    assert resource["service.instance.id"] == "run-a-rank7"
    assert (resource["nemo.run.id"], resource["dl.rank"], resource["dl.world_size"]) == ("run-a", 7, 8)


def test_none_records_nothing_and_zero_is_a_value(exporting):
    telemetry = training.setup(rank=0, world_size=1)
    telemetry.record(**dict.fromkeys(EIGHT))
    telemetry.record()
    assert telemetry.totals()["recorded"] == 0
    telemetry.record(loss=0.0, learning_rate=0, grad_norm=None)
    telemetry.shutdown()
    metrics = exporting.metrics()
    assert gauge(metrics[NAME + "loss"][-1]) == 0.0
    assert gauge(metrics[NAME + "learning_rate"][-1]) == 0.0
    assert NAME + "grad_norm" not in metrics


def test_the_counter_takes_what_is_above_zero(exporting):
    telemetry = training.setup(rank=0, world_size=1)
    telemetry.record(skipped_iters=0)
    telemetry.record(skipped_iters=2)
    telemetry.record(skipped_iters=-3)
    telemetry.shutdown()
    metric = exporting.metrics()[NAME + "skipped_iters"][-1]
    (point,) = metric.sum.data_points
    assert (value_of(point), metric.sum.is_monotonic) == (2, True)
    assert 0 < point.start_time_unix_nano <= point.time_unix_nano


def test_what_becomes_a_number_is_one_and_the_rest_is_said_once(exporting):
    class Norm:
        def __float__(self):
            return 1.5

    class Broken:
        def __float__(self):
            raise RuntimeError("no device")

    telemetry = training.setup(rank=0, world_size=1)
    telemetry.record(grad_norm=Norm())
    words = said(lambda: [telemetry.record(loss="high", learning_rate=1.0) for _ in range(3)])
    assert len(words) == 1
    assert "`loss` is not recorded: found `str`" in words[0]
    (broken,) = said(lambda: telemetry.record(tokens_per_sec=Broken(), learning_rate=2.0))
    assert "`tokens_per_sec` is not recorded: found `Broken`" in broken
    telemetry.shutdown()
    metrics = exporting.metrics()
    assert gauge(metrics[NAME + "grad_norm"][-1]) == 1.5
    assert gauge(metrics[NAME + "learning_rate"][-1]) == 2.0
    assert NAME + "loss" not in metrics


def test_a_loss_is_read_apart_from_its_graph(exporting):
    class Tensor:
        def __init__(self, value, has_graph):
            self.value, self.has_graph = value, has_graph

        def detach(self):
            return Tensor(self.value, False)

        def __float__(self):
            if self.has_graph:
                raise UserWarning("a tensor with a graph is converted")
            return self.value

    telemetry = training.setup(rank=0, world_size=1)
    telemetry.record(loss=Tensor(0.5, True))
    telemetry.shutdown()
    assert gauge(exporting.metrics()[NAME + "loss"][-1]) == 0.5


def test_nan_and_infinities_are_exported_as_they_are(exporting):
    telemetry = training.setup(rank=0, world_size=1)
    telemetry.record(loss=math.nan, grad_norm=math.inf)
    telemetry.shutdown()
    metrics = exporting.metrics()
    assert math.isnan(gauge(metrics[NAME + "loss"][-1]))
    assert gauge(metrics[NAME + "grad_norm"][-1]) == math.inf


def test_an_unknown_keyword_is_one_warning_or_with_strict_an_error(run):
    telemetry = training.setup()
    words = said(lambda: [telemetry.record(perplexity=3.0, loss=1.0) for _ in range(3)])
    assert len(words) == 1
    assert "no instrument `perplexity`" in words[0]
    assert "`loss`" not in words[0].split(":")[0]
    telemetry.shutdown()
    strict = training.setup(strict=True)
    with pytest.raises(TypeError, match="perplexity"):
        strict.record(perplexity=3.0)
    with pytest.raises(tg.RefusedError, match="loss"):
        strict.record(loss="high")


def test_eight_threads_count_exactly(exporting):
    telemetry = training.setup(rank=0, world_size=1)
    threads = [
        threading.Thread(target=lambda: [telemetry.record(skipped_iters=1, loss=1.0) for _ in range(500)])
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    telemetry.shutdown()
    assert total(exporting.metrics()[NAME + "skipped_iters"][-1]) == 4000


# --- the native way -------------------------------------------------------------------------------


def test_every_step_is_kept_by_a_run(online):
    run = tg.init(project_name="llm", run_name="native")
    telemetry = training.setup()
    assert telemetry.is_exporting
    assert not telemetry.exports_otlp
    for step in range(1000):
        telemetry.record(loss=1 / (step + 1), skipped_iters=1 if step == 700 else 0, step=step)
    telemetry.shutdown()
    assert run.flush().where == "server"
    names = {m["name"] for m in online.get(f"runs/{run.run_id}/metrics")["metrics"]}
    assert "megatron_training_loss" in names
    found = online.get(
        f"runs/{run.run_id}/points", metric="megatron_training_loss", axis="step", buckets=2000
    )["series"]
    (series,) = found
    assert series["x"] == list(range(1000))
    assert series["last"] == [1 / (step + 1) for step in range(1000)]
    tg.close()


def test_a_nan_and_its_step_are_kept_by_a_run(online):
    run = tg.init(project_name="llm", run_name="diverged")
    telemetry = training.setup()
    telemetry.record(loss=1.0, step=10)
    telemetry.record(loss=math.nan, step=20)
    telemetry.shutdown()
    run.flush()
    (series,) = online.get(
        f"runs/{run.run_id}/points", metric="megatron_training_loss", axis="step", buckets=2000
    )["series"]
    assert series["x"] == [10, 20]
    assert series["last"] == [1.0, "NaN"]
    tg.close()


def test_a_value_within_a_step_takes_its_number(online):
    run = tg.init(project_name="llm", run_name="steps")
    telemetry = training.setup()
    with tg.step(41):
        telemetry.record(loss=1.0)
    telemetry.shutdown()
    run.flush()
    assert online.points(run.run_id, "megatron_training_loss") == [(41, 1.0)]
    tg.close()


def test_a_group_takes_the_step_of_its_values(online, moe):
    run = tg.init(project_name="llm", run_name="group")
    telemetry = training.setup()
    for step in (10, 20):
        training.record_metrics(telemetry.meter, "moe", balance=step / 100, dropped=1, step=step)
    telemetry.shutdown()
    run.flush()
    assert online.points(run.run_id, "megatron_moe_balance") == [(10, 0.1), (20, 0.2)]
    assert online.points(run.run_id, "megatron_moe_dropped_total")[-1] == (20, 2.0)
    tg.close()


def test_a_run_that_is_opened_after_set_up_is_said_to_get_nothing():
    training.setup(rank=0, world_size=1)
    (word,) = said(lambda: tg.init(project_name="p", run_name="late", offline=True))
    assert "does not go there" in word
    training.shutdown()
    telemetry = training.setup()
    assert telemetry.run is tg.current_run()
    again = lambda: tg.init(project_name="p", run_name="late", offline=True)  # noqa: E731
    assert said(again) == []
    tg.close(0.0)


def test_a_time_may_be_given(online):
    run = tg.init(project_name="llm", run_name="times")
    telemetry = training.setup()
    telemetry.record(loss=1.0, step=1, timestamp=1_767_225_600_000)
    telemetry.shutdown()
    run.flush()
    (series,) = online.get(
        f"runs/{run.run_id}/points", metric="megatron_training_loss", axis="time", buckets=2000
    )["series"]
    assert series["x"] == [1_767_225_600_000]
    tg.close()


# --- other meters and groups ----------------------------------------------------------------------


def test_the_drop_in_takes_our_meter(exporting):
    telemetry = training.setup(rank=0, world_size=1)
    training.record_training_metrics(telemetry.meter, **EIGHT)
    training.record_training_metrics(None, **EIGHT)
    telemetry.shutdown()
    assert set(exporting.metrics()) == {NAME + key for key in EIGHT}


def test_the_drop_in_takes_a_meter_of_opentelemetry():
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    meter = MeterProvider(metric_readers=[reader]).get_meter("nemo.lens")
    training.record_training_metrics(meter, **EIGHT)
    training.record_training_metrics(meter, **{**EIGHT, "loss": None, "skipped_iters": 0})
    words = said(lambda: [training.record_training_metrics(meter, sample=3.0) for _ in range(2)])
    assert [word for word in words if "no instrument `sample`" in word] == words
    assert len(words) == 1
    (resource,) = reader.get_metrics_data().resource_metrics
    found = {m.name: m for m in resource.scope_metrics[0].metrics}
    assert set(found) == {NAME + key for key in EIGHT}
    assert [m.unit for m in found.values() if m.unit] == ["ms"]
    for key, value in EIGHT.items():
        (point,) = found[NAME + key].data.data_points
        if key == "step_duration_ms":
            assert (point.count, point.sum) == (2, 2 * value)
        else:
            assert point.value == value, key


def test_meters_that_are_made_again_leave_nothing_behind():
    from opentelemetry.sdk.metrics import MeterProvider

    from truegauge.training import _foreign

    last = None
    for _ in range(1000):
        # Without its own hook at exit, which would hold every one of them.
        meter = MeterProvider(shutdown_on_exit=False).get_meter("nemo.lens")
        training.record_training_metrics(meter, loss=1.0)
        last = weakref.ref(meter)
        del meter
    gc.collect()
    assert last() is None
    assert len(_foreign._made) <= 1


def test_an_instrument_that_cannot_be_made_is_one_warning():
    class Meter:
        def create_gauge(self, name, unit="", description=""):
            raise AttributeError("too old")

    meter = Meter()
    words = said(
        lambda: [training.record_training_metrics(meter, loss=1.0, step_duration_ms=None) for _ in range(3)]
    )
    assert len(words) == 1
    assert "too old" in words[0]


def test_the_three_steps_of_the_seed_work_with_our_meter(exporting):
    """A cache by meter that holds it weakly, instruments made on first use, None skipped."""
    cache: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()

    def instruments(meter):
        if meter not in cache:
            cache[meter] = {
                "load": meter.create_gauge(name="megatron.moe.load", unit="", description="Load."),
                "time": meter.create_histogram(name="megatron.moe.time", unit="ms", description="Time."),
                "drops": meter.create_counter(name="megatron.moe.drops", description="Drops."),
            }
        return cache[meter]

    telemetry = training.setup(rank=0, world_size=1, run_id="r")
    made = instruments(telemetry.meter)
    assert instruments(telemetry.meter) is made
    made["load"].set(0.5)
    made["time"].record(3.0)
    made["drops"].add(2)
    telemetry.shutdown()
    assert {"megatron.moe.load", "megatron.moe.time", "megatron.moe.drops"} <= set(exporting.metrics())


def test_instruments_of_our_meter_have_the_methods_of_opentelemetry(exporting):
    telemetry = training.setup(rank=0, world_size=1)
    meter = telemetry.meter
    meter.create_gauge("megatron.moe.balance").set(0.5, {"layer": 3})
    meter.create_counter("megatron.moe.dropped", unit="{token}").add(4)
    meter.create_histogram("megatron.moe.load", explicit_bucket_boundaries_advisory=[1.0, 2.0]).record(1.5)
    meter.create_up_down_counter("megatron.moe.active").add(-2)
    telemetry.get_meter("app").create_gauge("app.part.size").set(7)
    telemetry.shutdown()
    metrics = exporting.metrics()
    (point,) = metrics["megatron.moe.balance"][-1].gauge.data_points
    assert plain(point.attributes) == {"layer": 3}
    assert total(metrics["megatron.moe.dropped"][-1]) == 4
    assert list(metrics["megatron.moe.load"][-1].histogram.data_points[0].explicit_bounds) == [1.0, 2.0]
    up_down = metrics["megatron.moe.active"][-1]
    assert (total(up_down), up_down.sum.is_monotonic) == (-2, False)
    assert gauge(metrics["app.part.size"][-1]) == 7


def test_an_unusable_name_is_one_warning_and_an_inert_instrument(exporting):
    telemetry = training.setup(rank=0, world_size=1)
    words = said(lambda: telemetry.meter.create_gauge("7 bad").set(1.0))
    assert len(words) == 1
    assert "7 bad" in words[0]
    telemetry.shutdown()
    assert exporting.metrics() == {}


@pytest.fixture
def moe():
    training.register_metric_group(
        "moe",
        [
            training.MetricSpec("balance", "megatron.moe.balance"),
            training.MetricSpec("dropped", "megatron.moe.dropped", "counter", "{token}", "Tokens dropped."),
        ],
    )
    yield
    training.unregister_metric_group("moe")


def test_a_group_records_by_keyword(exporting, moe):
    telemetry = training.setup(rank=0, world_size=1)
    training.record_metrics(telemetry.meter, "moe", {"balance": 0.1, "dropped": 3}, balance=0.5)
    training.record_metrics(telemetry.meter, "moe", balance=None, dropped=0)
    words = said(
        lambda: (
            [training.record_metrics(telemetry.meter, "moe", balence=1.0, balance=0.7) for _ in range(2)]
            + [training.record_metrics(telemetry.meter, "moo", balance=1.0) for _ in range(2)]
            + [training.record_metrics(telemetry.meter, "moe", dropped=object()) for _ in range(2)]
        )
    )
    assert [any(part in word for word in words) for part in ("balence", "'moo'", "megatron.moe.dropped")] == [
        True
    ] * 3
    assert len(words) == 3
    telemetry.shutdown()
    metrics = exporting.metrics()
    assert gauge(metrics["megatron.moe.balance"][-1]) == 0.7
    assert total(metrics["megatron.moe.dropped"][-1]) == 3
    assert metrics["megatron.moe.dropped"][-1].unit == "{token}"


@pytest.mark.parametrize(
    ("specs", "why"),
    [
        ([], "has no instruments"),
        ([("a", "megatron.x.a"), ("a", "megatron.x.b")], "comes twice"),
        ([("a", "dl.loss")], "reserved"),
        ([("a", "gen_ai.client.x")], "reserved"),
        ([("a", "megatron.loss")], "megatron.<subsystem>.<metric>"),
        ([("a", "Megatron.x.Loss")], "lower-case"),
        ([("a", "loss")], "lower-case"),
        ([("not a key", "megatron.x.a")], "keyword"),
        ([("a", "megatron.x.a", "summary")], "kind"),
    ],
)
def test_a_group_that_cannot_be_is_an_error(specs, why):
    with pytest.raises(ValueError, match=why):
        training.register_metric_group("bad", [training.MetricSpec(*spec) for spec in specs])
    assert "bad" not in training.metric_groups()


def test_a_group_is_registered_once(moe):
    again = [training.MetricSpec("other", "megatron.moe.other")]
    with pytest.raises(ValueError, match="there already"):
        training.register_metric_group("moe", again)
    training.register_metric_group("moe", again, allow_override=True)
    assert [spec.key for spec in training.metric_groups()["moe"]] == ["other"]
    with pytest.raises(ValueError, match="built in"):
        training.unregister_metric_group("training")


def test_inference_is_a_group_with_both_histograms(exporting):
    telemetry = training.setup(rank=0, world_size=1)
    training.record_inference_metrics(
        telemetry.meter, request_duration_s=0.42, model="m-8b", input_tokens=128, output_tokens=256
    )
    telemetry.shutdown()
    metrics = exporting.metrics()
    duration = metrics["gen_ai.server.request.duration"][-1]
    (point,) = duration.histogram.data_points
    assert (duration.unit, point.sum) == ("s", 0.42)
    assert point.explicit_bounds[0] < 0.42 < point.explicit_bounds[-1]
    usage = metrics["gen_ai.client.token.usage"][-1].histogram.data_points
    assert {plain(p.attributes)["gen_ai.token.type"]: p.sum for p in usage} == {"input": 128, "output": 256}


# --- settings -------------------------------------------------------------------------------------

PRIMARY, FALLBACK = "MEGATRON_OTEL_", "NEMO_LENS_"
ON = {"MEGATRON_OTEL_ENABLED": "1"}
# Environment, rank of 8, what is wanted, and part of each warning.
CASES = [
    ({}, 7, {"is_enabled": False, "exports_otlp": False}, []),
    (ON, 7, {"is_enabled": True, "exports_otlp": True}, []),
    ({"NEMO_LENS_ENABLED": "yes"}, 7, {"exports_otlp": True}, []),
    ({"MEGATRON_OTEL_ENABLED": "0", "NEMO_LENS_ENABLED": "1"}, 7, {"exports_otlp": False}, []),
    ({"MEGATRON_OTEL_ENABLED": "  ", "NEMO_LENS_ENABLED": "1"}, 7, {"exports_otlp": True}, []),
    ({"MEGATRON_OTEL_ENABLED": "enabled"}, 7, {"is_enabled": False}, ["MEGATRON_OTEL_ENABLED"]),
    ({**ON, "NEMO_LENS_RUN_ID": "r1", "SLURM_JOB_ID": "99"}, 7, {"run_id": "r1"}, []),
    ({**ON, "NEMO_LENS_RUN_ID": "r1", "MEGATRON_OTEL_RUN_ID": "r0"}, 7, {"run_id": "r0"}, []),
    ({**ON, "SLURM_JOB_ID": "99"}, 7, {"run_id": "99", "instance_id": "99-rank7"}, []),
    ({**ON, "MEGATRON_OTEL_RUN_ID": " ", "SLURM_JOB_ID": "99"}, 7, {"instance_id": "99-rank7"}, []),
    (ON, 0, {"exports_otlp": False, "span_groups": []}, []),
    ({**ON, "MEGATRON_OTEL_EXPORT_RANK": "-2"}, 7, {"exports_otlp": True}, []),
    ({**ON, "MEGATRON_OTEL_EXPORT_RANK": "8"}, 7, {"exports_otlp": False}, ["EXPORT_RANK"]),
    ({**ON, "MEGATRON_OTEL_RANK_STRATEGY": "all_ranks"}, 0, {"exports_otlp": True}, []),
    ({**ON, "MEGATRON_OTEL_EXPORT_STRATEGY": "all_ranks"}, 0, {"exports_otlp": True}, []),
    ({**ON, "MEGATRON_OTEL_EXPORT_STRATEGY": "nope"}, 7, {"exports_otlp": True}, ["nope"]),
    ({"MEGATRON_OTEL_EXPORT_STRATEGY": "nope"}, 7, {"exports_otlp": False}, ["nope"]),
    ({**ON, "MEGATRON_OTEL_EXPORT_STRATEGY": "first_rank_per_node"}, 5, {"exports_otlp": True}, []),
    (
        {**ON, "MEGATRON_OTEL_EXPORT_STRATEGY": "first_rank_per_node", "LOCAL_RANK": "3"},
        5,
        {"exports_otlp": False},
        [],
    ),
    (
        {**ON, "MEGATRON_OTEL_EXPORT_STRATEGY": "sampled", "MEGATRON_OTEL_EXPORT_SAMPLE_RATE": "0.5"},
        0,
        {"exports_otlp": False},
        [],
    ),
    ({"MEGATRON_OTEL_EXPORT_SAMPLE_RATE": "1.5"}, 7, {"exports_otlp": False}, ["EXPORT_SAMPLE_RATE"]),
    ({**ON, "MEGATRON_OTEL_SPAN_GROUPS": "default,nope"}, 7, {"exports_otlp": True}, ["nope"]),
    ({**ON, "MEGATRON_OTEL_SPAN_GROUPS": "nope"}, 0, {"exports_otlp": False}, []),
    ({**ON, "MEGATRON_OTEL_EXPORTER": "stdout"}, 7, {"exports_otlp": True}, ["EXPORTER"]),
    ({**ON, "OTEL_SDK_DISABLED": "true"}, 7, {"exports_otlp": False}, []),
]


@pytest.mark.usefixtures("console")
@pytest.mark.parametrize(("environment", "rank", "wanted", "warned"), CASES)
def test_environment_case(environment, rank, wanted, warned, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    words = said(lambda: training.setup(rank=rank, world_size=8))
    telemetry = training.current()
    assert {name: getattr(telemetry, name) for name in wanted} == wanted
    # Said where nothing tells the run, which is not what these cases are about.
    words = [word for word in words if "which run this is" not in word]
    assert len(words) == len(warned), words
    assert all(part in word for part, word in zip(warned, words, strict=True)), words


@pytest.mark.usefixtures("console")
def test_strict_raises_what_is_otherwise_warned_of(monkeypatch):
    monkeypatch.setenv("MEGATRON_OTEL_ENABLED", "enabled")
    with pytest.raises(tg.TruegaugeError, match="MEGATRON_OTEL_ENABLED"):
        training.setup(rank=0, world_size=1, strict=True)
    assert training.current() is None


@pytest.mark.usefixtures("console")
def test_a_second_setup_goes_on_with_the_first(monkeypatch):
    monkeypatch.setenv("MEGATRON_OTEL_ENABLED", "1")
    first = training.setup(rank=0, world_size=1)
    again = []
    (word,) = said(lambda: again.append(training.setup(rank=0, world_size=1)))
    assert "set up already" in word
    assert again == [first]
    with pytest.raises(tg.TruegaugeError, match="set up already"):
        training.setup(strict=True)


@pytest.mark.usefixtures("console")
@pytest.mark.parametrize(
    ("rate", "ranks"), [(0.1, [3, 5, 6, 31, 55]), (0.25, [3, 4, 5, 6, 10, 30, 31, 37, 50, 55, 57, 62])]
)
def test_sampled_ranks_are_those_of_the_reference(rate, ranks):
    chosen = []
    for rank in range(64):
        with training.setup(
            rank=rank, world_size=64, enabled=True, strategy="sampled", sample_rate=rate, run_id="r"
        ) as telemetry:
            if telemetry.exports_otlp:
                chosen.append(rank)
    assert chosen == ranks


@pytest.mark.usefixtures("console")
def test_a_strategy_of_the_programs_own(monkeypatch):
    asked = []

    def even(config, rank, world_size):
        asked.append((config.export_rank, config.export_sample_rate, config.local_rank, rank, world_size))
        return rank % 2 == 0

    training.register_export_strategy("even", even)
    try:
        with pytest.raises(ValueError, match="there already"):
            training.register_export_strategy("even", even)
        assert "even" in training.registered_strategies()
        monkeypatch.setenv("MEGATRON_OTEL_RANK_STRATEGY", "even")
        for rank in (2, 3):
            with training.setup(rank=rank, world_size=8, enabled=True, run_id="r") as telemetry:
                assert telemetry.exports_otlp == (rank == 2)
        assert asked[0] == (-1, 1.0, None, 2, 8)
    finally:
        assert training.unregister_export_strategy("even")
    with pytest.raises(ValueError, match="built in"):
        training.unregister_export_strategy("single_rank")


@pytest.mark.usefixtures("console")
def test_a_rank_whose_strategy_fails_does_not_export():
    def broken(config, rank, world_size):
        raise RuntimeError("no table")

    words = said(lambda: training.setup(rank=7, world_size=8, enabled=True, strategy=broken, run_id="r"))
    assert any("no table" in word for word in words), words
    assert not training.current().exports_otlp


RANK = """
import os
from truegauge import training
telemetry = training.setup(rank=int(os.environ["RANK"]), world_size=4)
print(telemetry.run_id)
"""


def test_ranks_of_one_launcher_have_one_run_id(scripts):
    exports = {
        "MEGATRON_OTEL_ENABLED": "1",
        "MEGATRON_OTEL_RANK_STRATEGY": "all_ranks",
        "MEGATRON_OTEL_EXPORTER": "console",
    }
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", **exports}
    processes = [
        scripts.start(RANK, "-W", "error", RANK=str(rank), WORLD_SIZE="4", **shared) for rank in range(4)
    ]
    ids = set()
    for process in processes:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        ids.add(out.split()[0])
    assert len(ids) == 1
    out, err = scripts.run(RANK, RANK="2", WORLD_SIZE="4", **exports)
    assert out.split()[0] not in ids
    assert "nothing tells which run this is" in err


@pytest.mark.usefixtures("console")
def test_set_up_never_raises_for_what_it_is_given():
    odd = {
        "rank": "seven",
        "world_size": -1,
        "attributes": {"a": 1, "b": [1]},
        "span_groups": 5,
        "sample_rate": "often",
    }
    words = said(lambda: training.setup(enabled=True, run_id="r", **odd))
    assert [name for name in odd if not any(name.rstrip("s") in word for word in words)] == []
    assert training.current().rank == 0
    training.shutdown(0.0)
    for name, value in odd.items():
        with pytest.raises(tg.TruegaugeError, match=name.rstrip("s")):
            training.setup(enabled=True, run_id="r", strict=True, **{name: value})
        assert training.current() is None


# --- what is left alone ---------------------------------------------------------------------------

COUNTS = """
import os, sys
from truegauge import training
def counts():
    files = [os.path.join("/proc/self/fd", fd) for fd in os.listdir("/proc/self/fd")]
    links = [os.readlink(file) for file in files if os.path.lexists(file)]
    return len(os.listdir("/proc/self/task")), sum(link.startswith("socket:") for link in links)
before = counts()
telemetry = training.setup(rank=0, world_size=8)
for step in range(100):
    telemetry.record(loss=1.0, skipped_iters=1, step=step)
    training.record_training_metrics(telemetry.meter, loss=1.0)
    telemetry.meter.create_gauge("app.part.size").set(1.0)
    with training.managed_span("job", "x") as span:
        assert span is None
print(before == counts(), telemetry.is_exporting)
print(training.enabled_span_groups(), telemetry.shutdown().lost_points)
assert "opentelemetry" not in sys.modules
"""


def test_a_rank_that_does_not_export_starts_nothing(scripts, receiver):
    out, err = scripts.run(
        COUNTS,
        "-W",
        "error",
        MEGATRON_OTEL_ENABLED="1",
        MEGATRON_OTEL_RUN_ID="r",
        OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url,
        OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
    )
    assert out.split() == ["True", "False", "[]", "0"]
    assert err == ""
    assert receiver.requests == []


def test_values_reach_the_backend_when_a_process_just_ends(scripts, receiver):
    script = """
    import sys
    sys.modules["opentelemetry"] = None
    from truegauge import training
    telemetry = training.setup(rank=0, world_size=1, run_id="r")
    telemetry.record(loss=0.25)
    """
    out, err = scripts.run(
        script,
        "-W",
        "error",
        MEGATRON_OTEL_ENABLED="1",
        OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url,
        OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
    )
    assert (out, err) == ("", "")
    assert gauge(receiver.metrics()[NAME + "loss"][-1]) == 0.25


FORK = """
import os
from truegauge import training
telemetry = training.setup(rank=0, world_size=1, run_id="r")
telemetry.record(skipped_iters=1)
child = os.fork()
if child == 0:
    telemetry.record(skipped_iters=10, loss=1.0)
    with training.managed_span("job", "child"):
        pass
    telemetry.shutdown()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
telemetry.record(skipped_iters=1)
print(telemetry.shutdown().lost_points)
"""


def test_a_forked_child_leaves_the_parents_sums_alone(scripts, receiver):
    out, err = scripts.run(
        FORK,
        "-W",
        "error",
        MEGATRON_OTEL_ENABLED="1",
        OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url,
        OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
    )
    assert (out.strip(), err) == ("0", "")
    assert total(receiver.metrics()[NAME + "skipped_iters"][-1]) == 2
    assert [span.name for span in receiver.spans()] == []


def test_a_forked_child_records_to_the_run_as_a_session_of_its_own(scripts, server):
    script = """
    import os
    import truegauge as tg
    from truegauge import training
    run = tg.init(project_name="llm", run_name="fork")
    telemetry = training.setup()
    telemetry.record(loss=1.0, step=1)
    run.flush()
    child = os.fork()
    if child == 0:
        telemetry.record(loss=2.0, step=2)
        tg.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    tg.close()
    print(run.run_id)
    """
    out, err = scripts.run(script, "-W", "error", **server.environment_of_client())
    assert sorted(server.points(out.strip(), "megatron_training_loss")) == [(1, 1.0), (2, 2.0)], err


def test_what_is_recorded_arrives_when_the_process_is_told_to_stop(scripts, receiver):
    script = """
    import sys, time
    from truegauge import training
    telemetry = training.setup(rank=0, world_size=1, run_id="r")
    telemetry.record(loss=0.25)
    print("ready", flush=True)
    while True:
        time.sleep(0.05)
    """
    process = scripts.start(
        script,
        MEGATRON_OTEL_ENABLED="1",
        OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url,
        OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
    )
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == -15
    assert gauge(receiver.metrics()[NAME + "loss"][-1]) == 0.25


# --- the end --------------------------------------------------------------------------------------


@pytest.fixture(params=["refused", "silent"])
def deaf(request):
    """An endpoint that nobody answers on."""
    if request.param == "refused":
        yield f"http://127.0.0.1:{free_port()}"
        return
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_shutdown_ends_when_nobody_answers(deaf, protocol, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", deaf)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        telemetry = training.setup(rank=0, world_size=1, enabled=True, run_id="r")
        telemetry.record(**EIGHT)
        with training.managed_span("job", "megatron.train"):
            pass
        info = telemetry.shutdown(timeout_ms=1000)
        assert info.lost_points >= len(EIGHT)
        assert info.lost_spans == 1
        # The peer takes 28 to 50 s here.
        assert info.took_ms < 10_000
        again = telemetry.shutdown(timeout_ms=60_000)
        assert again.took_ms < 10_000
        telemetry.record(loss=1.0)
    assert telemetry.totals()["after_shutdown"] == 1


def test_other_threads_run_while_a_shutdown_waits(monkeypatch):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{listener.getsockname()[1]}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        telemetry = training.setup(rank=0, world_size=1, enabled=True, run_id="r")
        telemetry.record(loss=1.0)
        # Accepting is what lets the shutdown wait: nobody answers, and this thread needs the interpreter.
        accepted = []
        thread = threading.Thread(target=lambda: accepted.append(listener.accept()))
        thread.start()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            info = telemetry.shutdown(timeout_ms=500)
        thread.join()
        assert info.lost_points > 0
        accepted[0][0].close()


def test_a_second_shutdown_says_nothing(exporting):
    telemetry = training.setup(rank=0, world_size=1, run_id="r")
    telemetry.record(loss=1.0)
    assert said(telemetry.shutdown) == []
    assert said(telemetry.shutdown) == []
    assert said(lambda: telemetry.record(loss=2.0)) == []
    assert gauge(exporting.metrics()[NAME + "loss"][-1]) == 1.0
    assert training.current() is None


# --- spans ----------------------------------------------------------------------------------------


@pytest.fixture
def tracing(exporting, monkeypatch):
    monkeypatch.setenv("MEGATRON_OTEL_SPAN_GROUPS", "default,step")
    training.setup(rank=0, world_size=1, run_id="r")
    return exporting


def ended(receiver) -> dict[str, object]:
    """Spans by name, after the shutdown."""
    training.shutdown()
    return {span.name: span for span in receiver.spans()}


def test_spans_nest_and_carry_attributes(tracing):
    with training.managed_span("job", "megatron.train") as job:
        with training.managed_span(
            "step", "megatron.train.iteration", **{"megatron.iteration": 7, "prompt": "secret", "odd": [1]}
        ) as step:
            step.set_attribute("megatron.loss", 0.5)
            step.add_event("half", {"at": 1})
        assert job.is_recording
    assert not job.is_recording
    spans = ended(tracing)
    outer, inner = spans["megatron.train"], spans["megatron.train.iteration"]
    assert inner.parent_span_id == outer.span_id
    assert inner.trace_id == outer.trace_id
    assert outer.parent_span_id == b""
    assert plain(inner.attributes) == {
        "megatron.iteration": 7,
        "prompt": "[REDACTED]",
        "megatron.loss": 0.5,
    }
    assert [event.name for event in inner.events] == ["half"]
    assert inner.start_time_unix_nano <= inner.end_time_unix_nano
    assert job.traceparent.split("-")[1] == outer.trace_id.hex()


def test_what_is_no_attribute_is_left_out(tracing):
    from types import MappingProxyType

    with training.managed_span("step", 7, odd=object()) as span:
        span.set_attribute(3, "x")
        span.set_attribute("fine", True)
        span.set_attributes(MappingProxyType({"also": 1.5, "not": None}))
        span.add_event("e", 3)
    found = ended(tracing)["7"]
    assert plain(found.attributes) == {"fine": True, "also": 1.5}


def test_a_group_that_is_off_gives_none(tracing):
    with training.managed_span("layer", "megatron.layer.forward") as span:
        assert span is None
    assert not training.is_span_group_enabled("layer")
    assert training.is_span_group_enabled("step")
    assert {"step", "job"} <= set(training.enabled_span_groups())
    with training.span_cm("always") as span:
        assert span.is_recording
    assert set(ended(tracing)) == {"always"}
    with training.managed_span("step", "after the end") as span:
        assert span is None


def test_an_exception_is_noted_and_goes_on(tracing):
    with pytest.raises(RuntimeError, match="disk full"), training.managed_span("checkpoint", "save"):
        raise RuntimeError("disk full")
    span = ended(tracing)["save"]
    assert span.status.code == 2
    (event,) = span.events
    found = plain(event.attributes)
    assert event.name == "exception"
    assert found["exception.message"] == "disk full"
    assert "test_training.py" in found["exception.stacktrace"]


def test_threads_and_tasks_have_parents_of_their_own(tracing):
    barrier = threading.Barrier(2, timeout=30)

    def work(name):
        with training.managed_span("job", f"thread {name}"):
            barrier.wait()
            with training.managed_span("step", f"in thread {name}"):
                barrier.wait()

    async def task(name, turn, other):
        with training.managed_span("job", f"task {name}"):
            turn.set()
            await other.wait()
            with training.managed_span("step", f"in task {name}"):
                await asyncio.sleep(0)

    async def both():
        one, two = asyncio.Event(), asyncio.Event()
        await asyncio.gather(task("a", one, two), task("b", two, one))

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(both())
    spans = ended(tracing)
    for kind in ("thread", "task"):
        for name in "ab":
            outer, inner = spans[f"{kind} {name}"], spans[f"in {kind} {name}"]
            assert inner.parent_span_id == outer.span_id
            assert outer.parent_span_id == b""


def test_functions_are_traced_when_they_are_called(tracing):
    @training.trace_fn("step", "app.add", unit="x")
    def add(a, *, b):
        """Adds."""
        return a + b

    @training.trace_fn("layer")
    def off():
        return 1

    class Loader:
        @training.trace_fn("step")
        async def next(self):
            await asyncio.sleep(0)
            return self

    assert add(1, b=2) == 3
    assert (add.__name__, add.__doc__, off()) == ("add", "Adds.", 1)
    loader = Loader()
    assert asyncio.run(loader.next()) is loader
    spans = ended(tracing)
    assert plain(spans["app.add"].attributes) == {"unit": "x"}
    assert [name for name in spans if name.endswith("Loader.next")]
    assert not [name for name in spans if "off" in name]


def test_a_context_travels_to_another_process(tracing):
    carrier: dict[str, str] = {}
    training.inject_context(carrier)
    assert carrier == {}
    with training.managed_span("job", "sender"):
        training.inject_context(carrier)
    with training.extract_context(carrier), training.managed_span("job", "receiver") as span:
        assert span.add_link(carrier["traceparent"], {"why": "pipeline"})
        assert not span.add_link("nonsense")
    with training.extract_context({}), training.managed_span("job", "alone"):
        pass
    spans = ended(tracing)
    assert spans["receiver"].parent_span_id == spans["sender"].span_id
    assert spans["receiver"].links[0].span_id == spans["sender"].span_id
    assert spans["alone"].parent_span_id == b""


def test_equally_seeded_ranks_have_ids_of_their_own(scripts, receiver):
    script = """
    import random
    random.seed(1)
    from truegauge import training
    training.setup(rank=0, world_size=1, run_id="r")
    with training.managed_span("job", "x") as span:
        print(span.traceparent)
    """
    environment = {
        "MEGATRON_OTEL_ENABLED": "1",
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
    }
    ids = {scripts.run(script, **environment)[0] for _ in range(2)}
    assert len(ids) == 2


def test_values_within_a_span_carry_it(tracing):
    with training.managed_span("step", "megatron.train.iteration"):
        training.current().record(loss=0.5)
    spans = ended(tracing)
    (point,) = tracing.metrics()[NAME + "loss"][-1].gauge.data_points
    (exemplar,) = point.exemplars
    assert exemplar.span_id == spans["megatron.train.iteration"].span_id


def test_spans_that_are_open_at_the_end_are_marked(tracing):
    open_span = training.managed_span("job", "megatron.train")
    open_span.__enter__()
    span = ended(tracing)["megatron.train"]
    assert plain(span.attributes)["nemo.span.truncated"] is True
    open_span.__exit__(None, None, None)


# --- the console and logs -------------------------------------------------------------------------


def test_the_console_has_a_json_object_a_line(scripts):
    script = """
    from truegauge import training
    telemetry = training.setup(rank=0, world_size=1, run_id="r")
    with training.managed_span("job", "megatron.train"):
        telemetry.record(loss=0.5)
    """
    out, err = scripts.run(script, MEGATRON_OTEL_ENABLED="1", MEGATRON_OTEL_EXPORTER="console")
    assert err == ""
    lines = [json.loads(line) for line in out.splitlines()]
    assert lines
    assert any("megatron.training.loss" in json.dumps(line) for line in lines)
    assert any("megatron.train" in json.dumps(line) for line in lines)


def test_log_lines_go_along_and_our_own_do_not(exporting, monkeypatch):
    monkeypatch.setenv("MEGATRON_OTEL_LOGS_ENABLED", "1")
    telemetry = training.setup(rank=0, world_size=1, run_id="r")
    bridge = training.setup_logging_bridge("app")
    try:
        assert training.setup_logging_bridge("app") is bridge
        logger = logging.getLogger("app.train")
        logger.setLevel(logging.DEBUG)
        logger.debug("quiet")
        with training.managed_span("job", "megatron.train") as span:
            logger.warning("step %d is slow", 7)
        try:
            raise ValueError("bad batch")
        except ValueError:
            logger.exception("failed")
    finally:
        logging.getLogger("app").removeHandler(bridge)
    own = training.setup_logging_bridge("truegauge")
    try:
        logging.getLogger("truegauge.x").error("our own")
    finally:
        logging.getLogger("truegauge").removeHandler(own)
    telemetry.shutdown()
    records = [(scope, record) for scope, record in exporting.records()]
    assert [(scope, r.body.string_value) for scope, r in records] == [
        ("app.train", "step 7 is slow"),
        ("app.train", "failed"),
    ]
    slow, failed = (record for _, record in records)
    assert (slow.severity_number, slow.severity_text) == (13, "WARN")
    assert slow.span_id.hex() == span.traceparent.split("-")[2]
    assert plain(failed.attributes)["exception.message"] == "bad batch"


def test_no_bridge_without_the_switch(exporting):
    training.setup(rank=0, world_size=1, run_id="r")
    assert training.setup_logging_bridge() is None


# --- the two ways together ------------------------------------------------------------------------


def test_otlp_and_the_run_meet_in_one_run(online, monkeypatch):
    """The same process both ways, to the same server: one run, and the OTLP side has its id."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", online.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    run = tg.init(project_name="llm", run_name="both")
    telemetry = training.setup(rank=0, world_size=1, enabled=True)
    telemetry.record(loss=0.5, step=1)
    assert telemetry.shutdown().lost_points == 0
    run.flush()
    assert os.environ["OTEL_RESOURCE_ATTRIBUTES"] == f"truegauge.run_id={run.run_id}"
    (row,) = online.runs()
    assert row["run_id"] == run.run_id
    found = online.get(f"runs/{run.run_id}/metrics")["metrics"]
    losses = [m for m in found if m["name"] == "megatron_training_loss"]
    assert [m["last"] for m in losses] == [0.5, 0.5]
    assert sorted(m["display"] for m in losses) == ["megatron.training.loss", "megatron_training_loss"]
    tg.close()
