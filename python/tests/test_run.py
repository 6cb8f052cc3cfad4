"""Facts about a run: settings, attributes, tags, steps, the model."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import logging
import os
import pathlib

import numpy as np
import pytest

import truegauge as tg
from truegauge import _settings


@dataclasses.dataclass
class Optimizer:
    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)


def test_config_and_attributes_become_paths(online):
    config = {
        "optimizer": Optimizer(),
        "layers": [64, 10],
        "path": pathlib.Path("/data"),
        "resume": None,
        "amp": True,
        "dropout": np.float32(0.5),
        "arguments": argparse.Namespace(seed=7),
        "empty": {},
        3: "three",
    }
    with tg.init(project_name="p", run_name="r", config=config):
        tg.log_attributes("data/version", "v3")
        tg.log_attributes({"data": {"rows": 10}})
        tg.log_config({"layers": [32, 10]})
        tg.flush()
        attributes = online.the_run()["attributes"]
    wanted = {
        "config/optimizer/lr": 0.001,
        "config/optimizer/betas/0": 0.9,
        "config/optimizer/betas/1": 0.999,
        "config/layers/0": 32,
        "config/layers/1": 10,
        "config/path": "/data",
        "config/resume": None,
        "config/amp": True,
        "config/dropout": 0.5,
        "config/arguments/seed": 7,
        "config/empty": "{}",
        "config/3": "three",
        "data/version": "v3",
        "data/rows": 10,
    }
    assert {key: attributes.get(key, "missing") for key in wanted} == wanted


def test_config_that_holds_itself_ends(online):
    config: dict = {"lr": 1.0}
    config["self"] = config
    with tg.init(project_name="p", run_name="r", config=config):
        tg.flush()
        assert online.the_run()["attributes"]["config/lr"] == 1.0


def test_attributes_beyond_the_bound_are_counted(run):
    with pytest.warns(tg.TruegaugeWarning, match="attributes"):
        tg.log_config({str(n): n for n in range(10_005)})
    assert run.counters()["dropped.attributes"] == 5


def test_tags_and_description(online):
    with tg.init(project_name="p", run_name="r", tags="one", description="first", experiment_name="e") as run:
        tg.flush()
        row = online.the_run()
        assert (row["tags"], row["description"]) == (["one"], "first")
        assert row["attributes"]["experiment"] == "e"
        tg.add_tags(["two", "three"])
        tg.remove_tags("one")
        run.set_description("second")
        tg.flush()
        row = online.the_run()
        assert (sorted(row["tags"]), row["description"]) == (["three", "two"], "second")
        tg.set_tags({"four"})
        tg.flush()
        assert online.the_run()["tags"] == ["four"]


def test_model_becomes_attributes(online):
    with tg.init(project_name="p", run_name="r"):
        tg.set_model(parameters=70e9, layers=80, dtype="torch.bfloat16")
        tg.flush()
        attributes = online.the_run()["attributes"]
    model = {key: value for key, value in attributes.items() if key.startswith("model/")}
    assert model == {"model/parameters": 70e9, "model/layers": 80, "model/dtype": "bfloat16"}


def test_step_gives_its_number_and_logs_its_time_tokens_and_phases(online):
    with tg.init(project_name="p", run_name="r") as run:
        with tg.step(7, tokens=100) as s:
            with s.phase("data"):
                pass
            with s.phase("data"):
                pass
            with s.phase("checkpoint"):
                pass
            tg.log("loss", 0.5)
        with tg.step() as s:
            s.tokens = 50
            tg.log("loss", 0.4)
        tg.log("loss", 0.3)
        tg.flush()
        assert online.points(run.run_id, "loss") == [(7, 0.5), (8, 0.4), (9, 0.3)]
        assert online.points(run.run_id, "train_step_tokens") == [(7, 100), (8, 50)]
        times = {
            name: dict(online.points(run.run_id, f"train_step_{name}"))
            for name in ("seconds", "data_seconds", "checkpoint_seconds")
        }
        assert times["seconds"].keys() == {7, 8}
        assert times["data_seconds"].keys() == {7}
        assert online.points(run.run_id, "train_step_phase")[-1] == (7, 0), "the checkpoint is over"
        assert times["data_seconds"][7] + times["checkpoint_seconds"][7] <= times["seconds"][7]


def test_step_that_fails_leaves_no_time(run):
    with pytest.raises(ValueError, match="no"), tg.step(3):
        raise ValueError("no")
    assert tg.get_last_step("train_step_seconds") is None
    tg.log("v", 1.0)
    assert tg.get_last_step("v") == 0


def test_steps_nest(run):
    with tg.step(5):
        with tg.step(50):
            tg.log("inner", 1.0)
        tg.log("outer", 1.0)
    tg.log("after", 1.0)
    assert [tg.get_last_step(n) for n in ("inner", "outer", "after")] == [50, 5, 0]


def test_tokens_of_the_whole_job_count_once(server, scripts):
    for rank in ("0", "1"):
        scripts.run(
            """
            import truegauge as tg
            with tg.init(project_name="p", run_name="r"):
                with tg.step(1, global_tokens=1000):
                    pass
            """,
            RANK=rank,
            WORLD_SIZE="2",
            **server.environment_of_client(),
        )
    (series,) = server.series(server.the_run()["run_id"], "train_step_tokens")
    assert (series["labels"], series["last"]) == ({"rank": "0"}, 1000)


def test_ranks_share_a_run_and_carry_their_label(server, scripts):
    for rank in ("0", "1"):
        scripts.run(
            """
            import truegauge as tg
            run = tg.init(project_name="p")
            tg.log("v", 1.0)
            tg.log("v", 1.0, labels={"rank": "all"})
            assert tg.get_last_step("v") == 0
            tg.close()
            """,
            RANK=rank,
            WORLD_SIZE="2",
            SLURM_JOB_ID="77",
            **server.environment_of_client(),
        )
    row = server.the_run()
    assert row["run"] == "slurm-77"
    ranks = sorted(s["labels"]["rank"] for s in server.series(row["run_id"], "v"))
    assert ranks == ["0", "1", "all"]


def test_names_come_from_arguments_before_the_environment(monkeypatch):
    monkeypatch.setenv("TRUEGAUGE_ORGANIZATION", "env")
    monkeypatch.setenv("TRUEGAUGE_PROJECT", "env")
    with tg.init(project_name="argument", run_name="r", offline=True) as run:
        assert run.path == ("env", "", "argument", "r")
    with tg.init(offline=True) as run:
        assert run.path[3].startswith("run-")


def test_run_without_a_name_is_a_new_one_each_time(monkeypatch):
    first = tg.init(project_name="p", offline=True)
    monkeypatch.setenv("SLURM_JOB_ID", "5")
    second = tg.init(project_name="p", offline=True)
    assert second is not first
    assert tg.init(project_name="p", offline=True) is second
    second.close()
    first.close()


def test_other_loggers_arguments_are_accepted_with_a_debug_line(caplog):
    caplog.set_level(logging.DEBUG, logger="truegauge")
    others = dict.fromkeys(_settings.WITHOUT_EFFECT, 1)
    with tg.init(
        workspace_name="w",
        project_name="p",
        run_name="r",
        ingestion_url="http://127.0.0.1:9",
        api_key="k",
        resume_strategy="NEVER",
        init_mode="offline",
        orchestration_id="job",
        disk=None,
        **others,
    ) as run:
        assert run.url is None
    for name in others:
        assert sum(f"init({name}=" in record.message for record in caplog.records) == 1


def test_variables_without_effect_get_a_debug_line(caplog, monkeypatch):
    caplog.set_level(logging.DEBUG, logger="truegauge")
    monkeypatch.setenv("METRANA_QUERY_API_URL", "https://x")
    with tg.init(project_name="p", run_name="r", offline=True):
        pass
    assert any("METRANA_QUERY_API_URL" in record.message for record in caplog.records)


def test_unknown_argument_is_an_error_with_the_nearest_name():
    with pytest.raises(TypeError, match="did you mean `project_name`"):
        tg.init(projct_name="p")


def test_open_telemetry_learns_the_run(monkeypatch):
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=train,truegauge.run_id=old")
    with tg.init(project_name="p", run_name="r", offline=True) as run:
        assert os.environ["OTEL_RESOURCE_ATTRIBUTES"] == f"service.name=train,truegauge.run_id={run.run_id}"


def test_run_shows_its_link_in_a_notebook(online):
    with tg.init(project_name="<p>", run_name="r") as run:
        assert run.url == f"{online.url}/r/{run.run_id}"
        assert f'href="{run.url}"' in run._repr_html_()
        assert "<p>" not in run._repr_html_().removeprefix("<p>")
        assert "&lt;p&gt;/r" in run._repr_html_()


def test_runs_lists_what_the_server_knows(online):
    for name in ("one", "two"):
        with tg.init(project_name=name, run_name="r"):
            tg.log("v", 1.0)
    assert {r["project"] for r in tg.runs()} == {"one", "two"}
    assert [r["project"] for r in tg.runs(project="two", state="finished")] == ["two"]
    assert len(tg.runs(limit=1)) == 1
    with pytest.raises(tg.TruegaugeError, match="truegauge up"):
        tg.runs(url="http://127.0.0.1:9")
    with pytest.raises(tg.TruegaugeError, match="http"):
        tg.runs(url="file:///etc/passwd")


def test_resume_never_refuses_the_run_of_another_job(online):
    tg.init(project_name="p", run_name="r", orchestration_id="one").close()
    with pytest.warns(tg.TruegaugeWarning, match="another job"):
        run = tg.init(project_name="p", run_name="r", orchestration_id="two", resume_strategy="never")
    assert run.is_disabled
    again = tg.init(project_name="p", run_name="r", orchestration_id="one", resume_strategy="never")
    assert not again.is_disabled
    again.close()


def test_tags_that_never_end_are_cut(online):
    with tg.init(project_name="p", run_name="r") as run:
        run.add_tags(map(str, itertools.count()))
        assert run.flush().where == "server"
        assert len(online.the_run()["tags"]) == 200


@pytest.mark.parametrize("step", [2**63, -(2**63) - 1, 10**400], ids=["above", "below", "huge"])
def test_step_beyond_64_bits_is_left_out_and_the_next_one_counts(run, step):
    with pytest.warns(tg.TruegaugeWarning, match="64 bits"), tg.step(step):
        pass
    with tg.step(2**63 - 1):
        pass
    with pytest.warns(tg.TruegaugeWarning, match="64 bits"), tg.step():
        pass
    with tg.step(5):
        tg.log("loss", 1.0)
    assert tg.get_last_step("loss") == 5


def test_text_that_is_no_unicode_never_raises(online):
    odd = "caf\udce9 \ud800"  # as bytes of a command line that are no UTF-8 come
    with tg.init(
        project_name="p", run_name=odd, description=odd, tags=[odd], config={odd: odd}, experiment_name=odd
    ) as run:
        run.set_description(odd)
        run.add_tags(odd)
        run.remove_tags([odd])
        run.add_tags(["kept", odd])
        run.log_attributes(odd, odd)
        run.set_model(dtype=odd)
        assert run.get_last_step(odd) is None
        assert run.get_last_step(7) is None
        with pytest.warns(tg.TruegaugeWarning, match="phase"), tg.step(1) as step, step.phase(odd):
            pass
        assert run.flush().where == "server"
        shown = online.the_run()
        assert shown["run"] == "caf? ?"
        assert "kept" in shown["tags"]


def test_paths_and_bounds_that_are_none_are_left_out(run, tmp_path):
    for path in ("a\0b", "\ud800"):
        with pytest.warns(tg.TruegaugeWarning, match="spool_dir"):
            tg.init(run_name="other", offline=True, spool_dir=path).close()
    with pytest.warns(tg.TruegaugeWarning, match="timeout_secs"):
        run.close("soon")
