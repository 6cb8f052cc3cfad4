"""The real nemo-lens against our server: the quick start fills a run, and the documented queries work."""

from __future__ import annotations

import pytest
from otlp.values import KEYS, NAME, step
from otlp_peers import LENS, Doors, doors, environment, interpreter

STEPS = 5
LAST = step(STEPS)
HISTOGRAM = "megatron_training_step_duration_ms_milliseconds"


# It can't be imported on 3.11: one of its modules has the syntax of 3.12.
@pytest.fixture(params=["3.12", "3.13"])
def python(request) -> str:
    return environment(interpreter(request.param), f"nemo-lens-{request.param}", *LENS)


@pytest.fixture(params=["grpc", "http"])
def door(request) -> str:
    return request.param


@pytest.fixture
def served(binary, tmp_path):
    with doors(binary, tmp_path) as opened:
        yield opened


def quick_start(served: Doors, door: str) -> dict[str, str]:
    """The three exports of the quick start, and over HTTP the one that says so."""
    port = served.addresses[door].split(":")[1]
    http = {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"} if door == "http" else {}
    return {
        "MEGATRON_OTEL_ENABLED": "1",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://localhost:{port}",
        "MEGATRON_OTEL_SPAN_GROUPS": "default",
        **http,
    }


def trained(served: Doors, python: str, variables: dict[str, str], rank: int = 7) -> str:
    """Trains on the last of eight ranks; the run's id."""
    trainer = served.client(python, "trainer.py", "lens", str(rank), "8", **variables)
    run_id = trainer.do("run_id")
    if variables.get("MEGATRON_OTEL_LOGS_ENABLED"):
        trainer.do("bridge()")
    trainer.do(f"train(1, {STEPS})")
    trainer.end()
    return run_id


def test_the_quick_start_fills_a_run(served, python, door):
    run = trained(served, python, quick_start(served, door))
    row = served.server.the_run()
    assert (row["project"], row["run"], row["telemetry"]) == ("megatron-lm", run, True)
    (session,) = row["sessions"]
    assert (session["rank"], session["world_size"]) == (7, 8)
    told = {"otel/tp_size": 2, "otel/pp_size": 4, "otel/layers": 24, "otel/sequence_length": 4096}
    assert told.items() <= row["attributes"].items()
    eight_are_there(served, row["run_id"])
    queries_work(served, run)
    labels = served.query("megatron_training_loss")[0]["metric"]
    wanted = {"job": "megatron-lm", "instance": f"{run}-rank7", "dl_rank": "7", "nemo_run_id": run}
    assert wanted.items() <= labels.items()
    about = served.query("target_info")[0]["metric"]
    wanted = {"megatron_precision": "bf16", "dl_world_size": "8", "telemetry_sdk_name": "opentelemetry"}
    assert wanted.items() <= about.items()
    # Those of the groups in `default`; an iteration's are not.
    drawn = {one["name"]: one for one in served.drawn(run)}
    assert set(drawn) == {"megatron.train", "megatron.checkpoint.save"}


def eight_are_there(served: Doors, run_id: str) -> None:
    """The Training tab finds all instruments, each under its own name and with its last value."""
    training = served.server.get(f"runs/{run_id}/training")
    found = {one["display"]: one for one in training["instruments"]}
    assert all(found[NAME + key]["present"] for key in KEYS)
    assert training["export"]["ranks"] == [7]
    assert training["skipped"]["total"] == 2
    for key in KEYS:
        name = found[NAME + key]["metric"]
        if key == "step_duration_ms":
            assert served.query(f"{HISTOGRAM}_count")[0]["value"][1] == str(STEPS)
            total = sum(step(number)[key] for number in range(1, STEPS + 1))
            assert float(served.query(f"{HISTOGRAM}_sum")[0]["value"][1]) == total
        elif key == "skipped_iters":
            assert served.query(name)[0]["value"][1] == "2"
            assert served.increase(name) == 2
        else:
            values = [value for _, value in served.samples(name)]
            # The end exports once or twice more.
            assert list(dict.fromkeys(values)) == list(
                dict.fromkeys(step(n)[key] for n in range(1, STEPS + 1))
            )


def queries_work(served: Doors, run: str) -> None:
    """Queries of the guide and of the public dashboards."""
    loss = LAST["loss"]
    for query in (
        '{__name__=~"megatron_training_loss.*"}',
        f'{{nemo_run_id=~"{run}|run-b",__name__="megatron_training_loss"}}',
        "megatron_training_loss",
        '{"megatron.training.loss"}',
        'megatron_training_loss{service_name=~"megatron.*"}',
    ):
        (row,) = served.query(query)
        assert float(row["value"][1]) == loss, query
    names = {
        row["metric"]["__name__"]
        for row in served.query(f'{{nemo_run_id="{run}",__name__=~"megatron_training_.*"}}')
    }
    parts = {f"{HISTOGRAM}_{part}" for part in ("bucket", "sum", "count")}
    gauges = {f"megatron_training_{key}" for key in KEYS if key not in ("step_duration_ms", "skipped_iters")}
    assert names == {*gauges, *parts, "megatron_training_skipped_iters_total"}
    quantile = f"histogram_quantile(0.5, sum by (le, service_name) ({HISTOGRAM}_bucket))"
    assert 250 < float(served.query(quantile)[0]["value"][1]) <= 750
    asked = {"match[]": "megatron_training_loss"}
    assert served.ask("label/nemo_run_id/values", **asked)["data"] == [run]
    assert served.ask("label/service_name/values", **asked)["data"] == ["megatron-lm"]


def test_iterations_are_steps_and_a_failure_is_told(served, python, door):
    switches = {"MEGATRON_OTEL_SPAN_GROUPS": "per_step", "NEMO_LENS_RUN_ID": "run-a"}
    trained(served, python, quick_start(served, door) | switches)
    run_id = served.run_id("run-a")
    asked = {"metric": "train_step_seconds", "axis": "step"}
    (series,) = served.server.get(f"runs/{run_id}/points", **asked)["series"]
    assert series["x"] == list(range(1, STEPS + 1))
    asked = {"metric": NAME + "loss", "axis": "step"}
    (series,) = served.server.get(f"runs/{run_id}/points", **asked)["series"]
    assert dict(zip(series["x"], series["last"], strict=True)) == {
        number: step(number)["loss"] for number in range(1, STEPS + 1)
    }
    # From the start to the end of the training.
    whole = {"from": 0, "to": 4_000_000_000_000, "limit": 1000}
    drawn = served.drawn("run-a", **whole)
    iterations = [one["iteration"] for one in drawn if one["name"] == "megatron.train.iteration"]
    assert iterations == list(range(1, STEPS + 1))
    (save,) = [one for one in drawn if one["name"] == "megatron.checkpoint.save"]
    place = {"instance": "run-a-rank7", "trace": save["trace"], "id": save["id"]}
    one = served.server.get(f"runs/{run_id}/timeline", part="span", **place)["span"]
    assert (one["status"], one["status_text"]) == (2, "disk full")
    assert one["events"][0]["name"] == "exception"
    assert ["shard", 7] in one["attributes"]
    (row,) = served.query("gen_ai_server_request_duration_seconds_sum")
    assert float(row["value"][1]) == 0.375


def test_log_lines_come_with_their_span(served, python):
    # It sends them over gRPC, whatever the protocol says.
    switches = {"MEGATRON_OTEL_LOGS_ENABLED": "1", "NEMO_LENS_RUN_ID": "run-a"}
    trained(served, python, quick_start(served, "grpc") | switches)
    (record,) = served.server.get("logs", run_id=served.run_id("run-a"), severity="warn")["records"]
    assert (record["body"], record["rank"]) == (f"checkpoint {STEPS} failed", 7)
    (job,) = [one for one in served.drawn("run-a") if one["name"] == "megatron.train"]
    assert (record["trace"], record["span"]) == (job["trace"], job["id"])


def test_two_runs_are_compared_and_all_ranks_told_apart(served, python, door):
    for run in ("run-a", "run-b"):
        trained(served, python, quick_start(served, door) | {"MEGATRON_OTEL_RUN_ID": run})
    everyone = {"MEGATRON_OTEL_RUN_ID": "run-c", "MEGATRON_OTEL_EXPORT_STRATEGY": "all_ranks"}
    for rank in (0, 7):
        trained(served, python, quick_start(served, door) | everyone, rank)
    both = served.query('{nemo_run_id=~"run-a|run-b", __name__="megatron_training_loss"}')
    assert {row["metric"]["nemo_run_id"] for row in both} == {"run-a", "run-b"}
    assert {
        row["metric"]["dl_rank"] for row in served.query('megatron_training_loss{nemo_run_id="run-c"}')
    } == {
        "0",
        "7",
    }
    (row,) = [row for row in served.server.runs() if row["run"] == "run-c"]
    assert served.server.get(f"runs/{row['run_id']}/training")["export"]["ranks"] == [0, 7]


def test_a_rank_that_does_not_export_sends_nothing(served, python, door):
    trained(served, python, quick_start(served, door), rank=0)
    assert served.server.runs() == []
