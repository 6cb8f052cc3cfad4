"""Where a rank is in its job, and how far it is in what its ranks do together."""

from __future__ import annotations

import sys
import types

import pytest

import truegauge as tg


def attributes(online) -> dict:
    return {k: v for k, v in online.the_run()["attributes"].items() if k.startswith("parallel/")}


@pytest.fixture
def rank_5(online, monkeypatch):
    """The server, and this process as rank 5 of 8."""
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("TRUEGAUGE_ORCHESTRATION_ID", "job")
    return online


def test_a_rank_says_where_it_is(rank_5):
    with tg.init(project_name="p", run_name="r"):
        tg.set_parallel(tp=1, pp=0, dp=2)
        tg.set_parallel(rank=7, cp=3, host="host-7", gpu=1, gpu_uuid="GPU-7")
    assert attributes(rank_5) == {
        "parallel/5/tp": 1,
        "parallel/5/pp": 0,
        "parallel/5/dp": 2,
        "parallel/7/cp": 3,
        "parallel/7/host": "host-7",
        "parallel/7/gpu": "1",
        "parallel/7/gpu_uuid": "GPU-7",
    }


def test_a_mesh_and_megatron_say_it_where_the_caller_does_not(rank_5, monkeypatch):
    megatron = types.ModuleType("megatron.core.parallel_state")
    megatron.get_tensor_model_parallel_rank = lambda: 3
    megatron.get_pipeline_model_parallel_rank = lambda: 1

    def not_set_up():
        raise AssertionError("data parallel group is not initialized")

    megatron.get_data_parallel_rank = not_set_up
    monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", megatron)
    mesh = types.SimpleNamespace(
        mesh_dim_names=("replicate", "dp_shard", "tp"), get_local_rank={"dp_shard": 4, "tp": 0}.__getitem__
    )
    with tg.init(project_name="p", run_name="r"):
        tg.set_parallel(mesh=mesh, pp=2)
    assert attributes(rank_5) == {"parallel/5/tp": 0, "parallel/5/dp": 4, "parallel/5/pp": 2}


def test_what_is_no_coordinate_is_left_out_with_a_warning(rank_5):
    broken = types.SimpleNamespace(mesh_dim_names=("tp",), get_local_rank=lambda name: 1 / 0)
    with tg.init(project_name="p", run_name="r"):
        with pytest.warns(tg.TruegaugeWarning, match="`tp` is -1"):
            tg.set_parallel(tp=-1, dp=0)
        with pytest.warns(tg.TruegaugeWarning, match="can't be read from the mesh"):
            tg.set_parallel(mesh=broken)
        with pytest.warns(tg.TruegaugeWarning, match=r"dimensions \['x'\]"):
            tg.set_parallel(mesh=types.SimpleNamespace(mesh_dim_names=("x",)))
    assert attributes(rank_5) == {"parallel/5/dp": 0}


def told(server, run_id: str, name: str, **labels) -> float:
    """The last value of a series; -1 before there is one."""
    if not server.series(run_id, name):
        return -1
    points = server.points(run_id, name, **labels)
    return points[-1][1] if points else -1


def test_a_collective_operation_is_told_and_counts_as_a_wait(rank_5):
    with tg.init(project_name="p", run_name="r") as run:
        with tg.step(3), tg.collective(7, group="dp-0"):
            pass
        with pytest.raises(ValueError, match="no"), tg.step(4), tg.collective(8, group="dp-0"):
            raise ValueError("no")
        entered = tg.collective(2, group="tp-1")
        run.flush()
        assert told(rank_5, run.run_id, "train_collective_sequence", group="tp-1") == 2
        assert told(rank_5, run.run_id, "train_collective_completed", group="tp-1") == -1
        entered.done()
        with pytest.warns(tg.TruegaugeWarning, match="`number` is 'x'"):
            tg.collective("x")
    assert told(rank_5, run.run_id, "train_collective_sequence", group="dp-0") == 8
    assert told(rank_5, run.run_id, "train_collective_completed", group="dp-0") == 7
    assert told(rank_5, run.run_id, "train_collective_completed", group="tp-1") == 2
    waits = rank_5.points(run.run_id, "train_step_wait_seconds")
    assert [step for step, _ in waits] == [3]
    assert rank_5.series(run.run_id, "train_collective_sequence")[0]["labels"]["rank"] == "5"


def test_a_wait_that_something_else_measured_is_added(online):
    with tg.init(project_name="p", run_name="r") as run:
        with tg.step(1) as s:
            s.wait(0.25)
            s.wait(0.5)
            s.wait(-1)
            s.wait(float("nan"))
            with pytest.warns(tg.TruegaugeWarning, match="wanted are seconds"):
                s.wait("long")
        tg.flush()
        assert online.points(run.run_id, "train_step_wait_seconds") == [(1, 0.75)]


def test_without_a_run_nothing_happens():
    with pytest.warns(tg.TruegaugeWarning, match="no run is open"):
        tg.set_parallel(tp=1)
    with tg.collective(1):
        pass
