"""Waits of PyTorch's collective operations: by real processes, and by a stand-in where a GPU would be."""

from __future__ import annotations

import os
import subprocess
import sys
import types

import pytest
from conftest import DEADLINE_SECONDS, clean, free_port, wait_for

import truegauge as tg

# --- real processes -------------------------------------------------------------------------------

JOB = """
import os, sys, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import truegauge as tg

mode, steps, rank = sys.argv[1], int(sys.argv[2]), int(os.environ["RANK"])
torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Linear(16, 4)
if mode in ("model", "own_hook"):
    model = DistributedDataParallel(model)
tg.init(project_name="p", run_name="r")
tg.integrations.torch.watch(model)
asked = []
if mode == "own_hook":
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
    def hook(state, bucket):
        asked.append(bucket)
        return allreduce_hook(state, bucket)
    model.register_comm_hook(None, hook)
work = dist.new_group(list(range(dist.get_world_size())))
generator = torch.Generator().manual_seed(rank)
for step in range(steps):
    with tg.step(step):
        if rank == 2:
            time.sleep(0.03)
        model(torch.randn(8, 16, generator=generator)).sum().backward()
        gradients = [p.grad for p in model.parameters()]
        if mode == "waits":
            for gradient in gradients:
                dist.all_reduce(gradient)
        if mode == "goes_on":
            for one in [dist.all_reduce(g, group=work, async_op=True) for g in gradients]:
                one.wait()
    if mode == "hangs" and step == 3:
        if rank == 2:
            print("missing", flush=True)
            sys.stdin.readline()
        dist.all_reduce(gradients[0])
    if mode == "objects":
        with tg.step(step):
            dist.broadcast_object_list([step], 0)
assert mode != "own_hook" or asked
# Every rank has the same in the end.
mine, all_of_them = torch.cat([g.flatten() for g in gradients]), []
if mode not in ("hangs", "objects"):
    everyone = [torch.zeros_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, mine)
    assert all(torch.equal(mine, one) for one in everyone), everyone
tg.close()
"""


@pytest.fixture(scope="session")
def python() -> str:
    """An interpreter that has PyTorch."""
    given = os.environ.get("TRUEGAUGE_TRAINERS_PYTHON")
    for found in [given] if given else [sys.executable, "/usr/bin/python3"]:
        code = "import torch.distributed as d; assert d.is_gloo_available()"
        done = subprocess.run([found, "-W", "ignore", "-c", code], capture_output=True, timeout=300)
        if done.returncode == 0:
            return found
    pytest.skip("no interpreter here has PyTorch with gloo")
    return ""


@pytest.fixture
def job(python, server, tmp_path):
    """Starts the ranks of a job; ends what is left of them."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "truegauge").symlink_to(os.path.dirname(tg.__file__))
    script = tmp_path / "job.py"
    script.write_text(JOB)
    started = []

    def start(mode: str, steps: int, ranks: int = 4) -> list[subprocess.Popen]:
        port = str(free_port())
        for rank in range(ranks):
            environment = {
                **clean(dict(os.environ)),
                **server.environment_of_client(),
                "PYTHONPATH": str(site),
                "CUDA_VISIBLE_DEVICES": "",
                "OMP_NUM_THREADS": "1",
                "TRUEGAUGE_CAPTURE_SYSTEM_METRICS": "false",
                "TRUEGAUGE_ORCHESTRATION_ID": "job",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
                "RANK": str(rank),
                "WORLD_SIZE": str(ranks),
            }
            started.append(
                subprocess.Popen(
                    [python, "-W", "ignore", script, mode, str(steps)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    env=environment,
                )
            )
        return started

    yield start
    for process in started:
        process.kill()
        process.communicate()


def finish(processes: list[subprocess.Popen]) -> None:
    for process in processes:
        _, error = process.communicate(timeout=2 * DEADLINE_SECONDS)
        assert process.returncode == 0, error[-3000:]
        assert "Warning" not in error, error


def by_rank(server, name: str, **labels) -> dict[str, list[float]]:
    """Values of a series by rank."""
    (row,) = server.runs()
    found = {}
    for series in server.series(row["run_id"], name):
        if labels.items() <= series["labels"].items():
            rank = series["labels"]["rank"]
            points = server.points(row["run_id"], name, rank=rank, **labels)
            found[rank] = [value for _, value in points]
    return found


RANKS = {"0", "1", "2", "3"}


@pytest.mark.parametrize("mode", ["waits", "goes_on", "model", "own_hook"])
def test_the_rank_that_comes_last_waits_least(mode, job, server):
    finish(job(mode, 12))
    waits = by_rank(server, "train_step_wait_seconds")
    assert {rank: len(values) for rank, values in waits.items()} == dict.fromkeys(RANKS, 12)
    total = {rank: sum(values) for rank, values in waits.items()}
    assert min(total, key=total.get) == "2", total
    steps = by_rank(server, "train_step_seconds")
    assert all(wait <= step for r in RANKS for wait, step in zip(waits[r], steps[r], strict=True))


def test_operations_are_counted_alike_on_all_ranks_by_group(job, server):
    finish(job("goes_on", 3))
    (row,) = server.runs()
    groups = {s["labels"]["group"] for s in server.series(row["run_id"], "train_collective_sequence")}
    (other,) = groups - {"world"}
    assert "world" in groups
    for name in ("train_collective_sequence", "train_collective_completed"):
        # Two gradients in each of three steps; then all have a look at the others' once.
        assert {r: v[-1] for r, v in by_rank(server, name, group=other).items()} == dict.fromkeys(RANKS, 6)
        assert {r: v[-1] for r, v in by_rank(server, name, group="world").items()} == dict.fromkeys(RANKS, 1)


def test_what_is_made_of_several_operations_counts_once(job, server):
    finish(job("objects", 3))
    assert {v[-1] for v in by_rank(server, "train_collective_completed").values()} == {3}


def test_the_server_names_the_rank_that_is_slow(job, server):
    finish(job("waits", 80))
    (row,) = server.runs()

    def stragglers():
        health = server.get(f"runs/{row['run_id']}/health")
        told = health["verdicts"] + health["history"]
        return [verdict for verdict in told if verdict["class"] in ("straggler", "consistently_last")]

    (verdict,) = wait_for(stragglers, "a straggler was named")
    assert (verdict["ranks"], verdict["level"] != "page") == ([2], True), "four ranks are too few to page"
    assert verdict["wait_seconds"] < verdict["peers_wait_seconds"]


def test_who_did_not_enter_an_operation_is_seen_while_the_others_hang_in_it(job, server):
    processes = job("hangs", 5)
    assert processes[2].stdout.readline() == "missing\n"

    def entered():
        if not server.runs():
            return {}
        return {r: v[-1] for r, v in by_rank(server, "train_collective_sequence").items() if v}

    others = dict.fromkeys(RANKS - {"2"}, 1)
    wait_for(lambda: entered() == others, "three ranks told that they entered")
    assert by_rank(server, "train_collective_completed") == {}
    processes[2].stdin.write("\n")
    processes[2].stdin.flush()
    finish(processes)
    assert {v[-1] for v in by_rank(server, "train_collective_completed").values()} == {1}


# --- where a GPU would be -------------------------------------------------------------------------


class Gpu:
    """A stream whose work is done when the test says so, and a `torch` around it."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.done_ms = 0.0
        gpu = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                self.at_ms = gpu.now_ms

            def query(self) -> bool:
                if gpu.captures or gpu.is_gone:
                    raise RuntimeError("operation not permitted when stream is capturing")
                return self.at_ms <= gpu.done_ms

            def elapsed_time(self, end: Event) -> float:
                return end.at_ms - self.at_ms

        class ProcessGroup:
            group_name = "0"

        class Work:
            def wait(self) -> None:
                gpu.now_ms += 40

        self.group, self.work = ProcessGroup(), Work
        inner = types.ModuleType("torch.distributed.distributed_c10d")
        inner.Work = Work
        inner._get_default_group = lambda: self.group
        inner._pg_names = {}
        inner.all_reduce = self.all_reduce
        dist = types.ModuleType("torch.distributed")
        dist.__dict__.update(
            distributed_c10d=inner, all_reduce=inner.all_reduce, ProcessGroup=ProcessGroup, GroupMember=object
        )
        dist.is_available = lambda: True
        dist.get_backend = lambda pg: "nccl"

        class CUDAGraph:
            def capture_begin(self) -> None:
                gpu.captures = True

            def capture_end(self) -> None:
                gpu.captures = False

        cuda = types.SimpleNamespace(
            Event=Event,
            CUDAGraph=CUDAGraph,
            is_available=lambda: True,
            is_initialized=lambda: True,
            is_current_stream_capturing=lambda: self.captures,
            current_device=lambda: 0,
            get_device_properties=lambda at: types.SimpleNamespace(uuid="b24b5a58"),
        )
        torch = types.ModuleType("torch")
        torch.__dict__.update(distributed=dist, cuda=cuda, futures=types.SimpleNamespace(Future=int))
        self.captures = self.is_gone = False
        self.dist = dist
        self.modules = {
            "torch": torch,
            "torch.distributed": dist,
            "torch.distributed.distributed_c10d": inner,
        }

    def all_reduce(self, tensor, op=None, group=None, async_op=False):
        if async_op:
            return self.work()
        self.now_ms += 25
        return None


@pytest.fixture
def gpu(monkeypatch):
    gpu = Gpu()
    for name, module in gpu.modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    yield gpu
    if tg.integrations.torch._active is not None:
        tg.integrations.torch._active.stop()


def test_a_step_is_told_when_the_gpu_is_through_with_its_waits(gpu, online):
    with tg.init(project_name="p", run_name="r") as run:
        tg.integrations.torch.watch()
        for number in (1, 2):
            with tg.step(number):
                gpu.dist.all_reduce("tensor")
                gpu.dist.all_reduce("tensor", async_op=True).wait()
        tg.flush()
        assert online.series(run.run_id, "train_step_seconds") == []
        (sequence,) = online.points(run.run_id, "train_collective_sequence")[-1:]
        assert sequence[1] == 4, "that it was begun is known at once"
        gpu.done_ms = 65.0
        with tg.step():
            pass
        tg.flush()
        wait_for(lambda: online.series(run.run_id, "train_step_seconds"), "the first step was told")
        tg.flush()
        assert [step for step, _ in online.points(run.run_id, "train_step_seconds")] == [1]
        gpu.done_ms = gpu.now_ms
        wait_for(lambda: tg.get_last_step("train_step_seconds") == 3, "all were told")
    assert [step for step, _ in online.points(run.run_id, "train_step_seconds")] == [1, 2, 3]
    waits = dict(online.points(run.run_id, "train_step_wait_seconds"))
    lengths = dict(online.points(run.run_id, "train_step_seconds"))
    # The stand-in's time is not the host's: what a step waits is at most what it takes.
    assert waits == {step: min(0.065, lengths[step]) for step in (1, 2)}
    assert online.points(run.run_id, "train_collective_completed")[-1][1] == 4
    assert online.the_run()["attributes"]["parallel/0/gpu_uuid"] == "GPU-b24b5a58"


def test_a_gpu_that_hangs_does_not_keep_a_run_from_closing(gpu, online, monkeypatch):
    from truegauge.integrations import _torch_stream

    monkeypatch.setattr(_torch_stream, "DRAIN_SECONDS", 0.05)
    with tg.init(project_name="p", run_name="r") as run:
        tg.integrations.torch.watch()
        with tg.step(1):
            gpu.dist.all_reduce("tensor")
    assert [step for step, _ in online.points(run.run_id, "train_step_seconds")] == [1]
    assert online.series(run.run_id, "train_step_wait_seconds") == []
    assert online.series(run.run_id, "train_collective_completed") == []


def test_what_a_graph_captures_is_left_alone_and_stop_puts_all_back(gpu, run):
    original = gpu.dist.all_reduce
    watch = tg.integrations.torch.watch()
    assert watch.is_on
    assert gpu.dist.all_reduce is not original
    assert tg.integrations.torch.watch() is watch
    gpu.captures = True
    with tg.step(1) as s:
        gpu.dist.all_reduce("tensor")
    assert "wait" not in s._phases
    watch.stop()
    assert gpu.dist.all_reduce == original
    assert not watch.is_on


def test_nothing_is_asked_of_the_device_while_a_graph_is_captured(gpu, online, monkeypatch):
    from truegauge.integrations import _torch_stream

    monkeypatch.setattr(_torch_stream, "TICK_SECONDS", 0.005)
    graph_type = sys.modules["torch"].cuda.CUDAGraph
    original = graph_type.capture_begin
    with tg.init(project_name="p", run_name="r") as run:
        watch = tg.integrations.torch.watch()
        with tg.step(1):
            gpu.dist.all_reduce("tensor")
        graph = graph_type()
        graph.capture_begin()
        gpu.done_ms = gpu.now_ms
        # Any question in here raises, which ends the thread that asks.
        with tg.step(2):
            pass
        watch._stream.poll()
        graph.capture_end()
        wait_for(lambda: tg.get_last_step("train_step_seconds") == 2, "both steps were told")
        watch.stop()
    assert graph_type.capture_begin is original
    assert [step for step, _ in online.points(run.run_id, "train_step_seconds")] == [1, 2]
    assert [step for step, _ in online.points(run.run_id, "train_step_wait_seconds")] == [1]


def test_a_device_that_is_gone_ends_the_measuring_and_no_step(gpu, online):
    with tg.init(project_name="p", run_name="r") as run:
        tg.integrations.torch.watch()
        with tg.step(1):
            gpu.dist.all_reduce("tensor")
        gpu.is_gone = True
        with pytest.warns(tg.TruegaugeWarning, match="not measured any more"), tg.step(2):
            pass
        gpu.is_gone = False
        with tg.step(3):
            pass
    assert [step for step, _ in online.points(run.run_id, "train_step_seconds")] == [1, 2, 3]


def test_what_fails_in_here_never_reaches_training(gpu, run):
    watch = tg.integrations.torch.watch()
    gpu.dist.get_backend = lambda pg: 1 / 0
    with pytest.warns(tg.TruegaugeWarning, match="not measured any more"):
        gpu.dist.all_reduce("tensor")
    gpu.dist.all_reduce("tensor")
    assert gpu.now_ms == 50
    assert not watch.is_on


def test_without_pytorch_nothing_happens(monkeypatch, run):
    monkeypatch.setitem(sys.modules, "torch", None)
    watch = tg.integrations.torch.watch()
    assert not watch.is_on
    watch.stop()
