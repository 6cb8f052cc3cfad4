"""Autocapture of whole jobs: who reports which GPU and the node, when, and who comes after the dead.

Real processes of the installed package, a fake driver, a real server. Everything that has to outlast the
45 s in which a node's reporter leaves GPUs to slower ranks is started first and runs beside the rest.
"""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path

import pytest
from blackbox.job import GPU, NODE, RSS, WAYS_TO_FORK, Gap, Job, Points, Rank, gpu, node, process
from conftest import Server, wait_for
from gpus import driver

GRACE_SECONDS = 45
MEMORY = "system/memory/used_bytes"
POWER = "system/gpu/power_watts"
HEAT = "system/gpu/temperature_celsius"
CLOCK = "system/gpu/sm_clock_mhz"
OF_A_GPU = (
    *(GPU, "system/gpu/memory_used_bytes", "system/gpu/memory_utilization"),
    *(HEAT, POWER, CLOCK),
)
OF_THE_HOST = (
    *(NODE, MEMORY, "system/memory/utilization"),
    *("system/disk/total_bytes", "system/disk/free_bytes", "system/disk/utilization"),
    *(RSS, "system/process/cpu_utilization"),
)


class Stage:
    """A server and the jobs of this file."""

    def __init__(self, binary: Path, folder: Path) -> None:
        self.folder = folder
        (folder / "server").mkdir()
        self.server = Server(binary, folder / "server")
        self.jobs: list[Job] = []

    def machine(self, name: str, gpus: int, **more) -> dict[str, str]:
        """A driver with so many GPUs."""
        return driver(self.folder / name, gpus, **more)

    def job(self, name: str, environment: dict[str, str]) -> Job:
        # Steps go on behind those that a run of the same name has left on this machine.
        self.jobs.append(Job(self.server, self.folder, f"{name} of {os.getpid()}", environment))
        return self.jobs[-1]


class Eight:
    """Eight ranks on a machine with eight GPUs, and what is killed of them."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.killed_ms = 0.0
        self.before: Points | None = None

    def start(self) -> Eight:
        for rank in range(8):
            self.job.start(rank)
        return self

    def is_settled(self) -> bool:
        """Whether all GPUs and the node have their reporters."""
        now = self.job.reporters()
        return sorted(now.gpus()) == list(range(8)) and now.node() is not None

    def outlast_grace(self) -> None:
        """Waits until whoever reports the node takes what is free."""
        wait_for(self.is_settled, f"{self.job.name}: everything had its reporter")
        pid = self.job.reporters().node()

        def is_over() -> bool:
            points = self.job.points().of(process(pid))
            return points[-1].time_ms - points[0].time_ms > (GRACE_SECONDS + 1) * 1000

        wait_for(is_over, f"{self.job.name}: the grace was over")

    def rank_of(self, pid: int) -> Rank:
        return next(rank for rank in self.job.ranks if rank.pid == pid)

    def kill(self, *pids: int) -> None:
        self.killed_ms = time.time() * 1000
        for pid in pids:
            self.rank_of(pid).kill()

    def gaps(self, gpus: list[int], has_node: bool) -> list[Gap]:
        """What the series of the dead lack, once each goes on; each has its next reporter."""
        keys = [gpu(index) for index in gpus] + ([node(), node(MEMORY)] if has_node else [])
        dead = {rank.pid for rank in self.job.ranks if rank.process.poll() is not None}

        def is_taken() -> bool:
            now = self.job.reporters()
            return now.node() is not None and set(gpus) <= set(now.gpus())

        wait_for(is_taken, f"{self.job.name}: the dead were replaced")
        points = self.job.go_on([*keys, *(gpu(index) for index in range(8))], self.killed_ms)
        now = self.job.reporters()
        assert not dead & {now.node(), *now.gpus().values()}
        points.assert_each_once()
        return [points.gap(key, self.killed_ms, now.node()) for key in keys]


@pytest.fixture(scope="module")
def stage(binary, tmp_path_factory):
    stage = Stage(binary, tmp_path_factory.mktemp("scenarios"))
    stage.server.start()
    yield stage
    for job in stage.jobs:
        job.end()
    stage.server.kill()


@pytest.fixture(scope="module")
def eight(stage) -> dict[str, Eight]:
    """Jobs in which something will be killed."""
    machine = stage.machine("eight", 8)
    scenario = Path(machine["LD_LIBRARY_PATH"]) / "scenario.toml"
    scenario.write_text("steady = true\n" + scenario.read_text())
    jobs = {name: Eight(stage.job(name, machine)) for name in ("race", "launcher", "owner", "two", "forked")}
    # A process without a GPU of its own comes first, so it reports the node.
    launcher = jobs["launcher"].job.start(CUDA_VISIBLE_DEVICES="")
    launcher.begin()
    first = jobs["launcher"].job
    wait_for(lambda: first.reporters().node() == launcher.pid, "the launcher reported the node")
    for job in jobs.values():
        job.start()
    return jobs


@pytest.fixture(scope="module")
def alone(stage) -> dict[str, Job]:
    """Jobs of which only rank 0 calls `init`."""
    machine = stage.machine("four", 4)
    tenth = {**machine, "TRUEGAUGE_SYSTEM_METRICS_INTERVAL_SECS": "10"}
    jobs = {
        "all": stage.job("alone", machine),
        "two": stage.job("alone of two", {**machine, "CUDA_VISIBLE_DEVICES": "0,1"}),
        "slow": stage.job("alone at 10 s", tenth),
    }
    for job in jobs.values():
        job.start(0, world=4)
    return jobs


@pytest.fixture(scope="module")
def faulty(stage) -> dict[str, Job]:
    """Processes whose drivers fail them."""
    machine = stage.machine("faulty", 3)
    scenario = Path(machine["LD_LIBRARY_PATH"]) / "scenario.toml"
    cards = scenario.read_text().split("[[gpu]]")
    # GPU 0 has no power readings, GPU 1 is too lost to tell its heat, GPU 2 tells its clock every fifth time.
    cards[1] = cards[1].replace("power_mw = 100000\n", "")
    cards[2] += '[gpu.errors]\nnvmlDeviceGetTemperature = "gpu_is_lost"\n'
    turns = '"unknown", "unknown", "unknown", "unknown", 1980, ' * 40
    cards[3] = cards[3].replace("sm_mhz = 1980", f"sm_mhz = [{turns}]")
    scenario.write_text("[[gpu]]".join(cards))
    broken = stage.folder / "broken"
    broken.mkdir()
    (broken / "libnvidia-ml.so.1").write_bytes(b"no library")
    unusable = {**machine, "LD_LIBRARY_PATH": str(broken), "CUDA_VISIBLE_DEVICES": "0"}
    jobs = {"faults": stage.job("faults", machine), "broken": stage.job("broken", unusable)}
    for job in jobs.values():
        job.start()
    return jobs


@pytest.fixture(scope="module", autouse=True)
def _beside_each_other(alone, faulty, eight):
    """Starts all of them before the first test."""


# --- T4: which GPUs are whose ---------------------------------------------------------------------

EVERY = list(range(8))
MATRIX = {
    # what is unusual about the environment: the GPUs that the process reports
    "unset": ({}, EVERY),
    "empty": ({"CUDA_VISIBLE_DEVICES": ""}, []),
    "blank": ({"CUDA_VISIBLE_DEVICES": "  "}, []),
    "-1": ({"CUDA_VISIBLE_DEVICES": "-1"}, []),
    "NoDevFiles": ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, []),
    "all": ({"CUDA_VISIBLE_DEVICES": "all"}, []),
    "cut at -1": ({"CUDA_VISIBLE_DEVICES": "2,-1,3"}, [2]),
    "cut at 99": ({"CUDA_VISIBLE_DEVICES": "0,99,1"}, [0]),
    "spaces": ({"CUDA_VISIBLE_DEVICES": " 1 , 2 "}, [1, 2]),
    "comma at the end": ({"CUDA_VISIBLE_DEVICES": "1,2,"}, [1, 2]),
    "plus": ({"CUDA_VISIBLE_DEVICES": "+1"}, [1]),
    "zero in front": ({"CUDA_VISIBLE_DEVICES": "01"}, [1]),
    "reversed, rank 0": ({"CUDA_VISIBLE_DEVICES": "3,1", "LOCAL_RANK": "0"}, [3]),
    "reversed, rank 1": ({"CUDA_VISIBLE_DEVICES": "3,1", "LOCAL_RANK": "1"}, [1]),
    "twice the same": ({"CUDA_VISIBLE_DEVICES": "0,0,1"}, []),
    "words behind numbers": ({"CUDA_VISIBLE_DEVICES": "1gpu2,2ampere"}, [1, 2]),
    "numbers, then a UUID": ({"CUDA_VISIBLE_DEVICES": "0,GPU-00000003"}, [0]),
    "UUIDs": ({"CUDA_VISIBLE_DEVICES": "GPU-00000003,GPU-00000001", "LOCAL_RANK": "0"}, [3]),
    "UUID of several": ({"CUDA_VISIBLE_DEVICES": "GPU-0000"}, []),
    "MIG": ({"CUDA_VISIBLE_DEVICES": "MIG-00000001"}, []),
    "cut at MIG": ({"CUDA_VISIBLE_DEVICES": "1,MIG-x,2"}, [1]),
    "LOCAL_RANK is no number": ({"LOCAL_RANK": "x", "SLURM_LOCALID": "2"}, [2]),
    "LOCAL_RANK is negative": ({"LOCAL_RANK": "-1", "OMPI_COMM_WORLD_LOCAL_RANK": "3"}, [3]),
}
SIXTEEN = {"underscore": ({"CUDA_VISIBLE_DEVICES": "1_0"}, [1])}
FOUR = {"more ranks than GPUs": ({"LOCAL_RANK": "6"}, [])}
PARTITIONED = {
    # GPU 2 is partitioned
    "MIG, rank 5": ({"LOCAL_RANK": "5"}, [5]),
    "MIG, rank 2": ({"LOCAL_RANK": "2"}, []),
    "MIG visible, rank 0": ({"CUDA_VISIBLE_DEVICES": "2,3", "LOCAL_RANK": "0"}, []),
    "MIG visible, rank 1": ({"CUDA_VISIBLE_DEVICES": "2,3", "LOCAL_RANK": "1"}, [3]),
    "MIG, no rank": ({}, [0, 1, 3, 4, 5, 6, 7]),
}
MACHINES = {
    "8": (8, (), MATRIX),
    "16": (16, (), SIXTEEN),
    "4": (4, (), FOUR),
    "mig": (8, (2,), PARTITIONED),
}


def test_visible_devices_and_ranks_settle_whose_a_gpu_is(stage):
    rows = {}
    for machine, (count, mig, matrix) in MACHINES.items():
        found = stage.machine(f"matrix {machine}", count, mig=mig)
        for name, (environment, wanted) in matrix.items():
            job = stage.job(f"matrix: {name}", {**found, **environment})
            # Without a rank all that is visible is reported, but for cards that are partitioned.
            has_rank = any("RANK" in variable for variable in environment)
            counts = {"host_device_count": count, "mig_partitioned_count": len(mig)}
            if not has_rank:
                counts["visible_count"] = len(wanted)
            rows[name] = (job, job.start(), counts, wanted)
    for name, (job, rank, counts, wanted) in rows.items():
        # Two samples of the process itself lie behind the first that could have had a GPU.
        wait_for(lambda j=job: j.has_points(RSS, 3), f"{name}: there were three samples")
        if wanted:
            job.go_on([gpu(index) for index in wanted], 0.0, 1)
        points, attributes = job.points(), job.attributes()
        assert points.names(GPU) == {str(index) for index in wanted}, name
        for index in wanted:
            assert {point.value for point in points.of(gpu(index))} == {10 * index + 1}, name
            for metric in OF_A_GPU:
                assert points.of(gpu(index, metric)), (name, metric)
        assert {key: attributes[f"system/gpu/{key}"] for key in counts} == counts, name
        (report,) = job.reports().values()
        assert [d["gpu"] for d in report["devices"] if d["role"] == "owned"] == wanted, (name, report)
        rank.kill()


# --- T5: eight ranks race -------------------------------------------------------------------------


def test_eight_ranks_report_each_gpu_and_the_node_once(eight):
    job = eight["race"].job
    wait_for(eight["race"].is_settled, "everything had its reporter")
    keys = [gpu(index) for index in EVERY] + [node()]
    points = job.go_on(keys, 0.0, 10)
    points.assert_each_once()
    assert points.names(GPU) == {str(index) for index in EVERY}
    assert points.names(NODE) == {""}
    assert points.names(RSS) == {str(rank.pid) for rank in job.ranks}
    for index in EVERY:
        of_gpu = points.of(gpu(index))
        assert {point.value for point in of_gpu} == {10 * index + 1}
        assert all(b.step == a.step + 1 for a, b in itertools.pairwise(of_gpu)), index
    for name in (NODE, MEMORY):
        assert all(b.step == a.step + 1 for a, b in itertools.pairwise(points.of(node(name)))), name
    for key, labels in points.labels.items():
        kept = {frozenset(name for name, _ in one) for one in labels}
        if key[0] in OF_A_GPU:
            assert kept == {frozenset(("host", "gpu"))}, key
        if key[0] in OF_THE_HOST:
            assert kept == {frozenset(("host", "pid") if "/process/" in key[0] else ("host",))}, key
    reporters = job.reporters()
    assert {pid: rank["rank"] for pid, rank in reporters.reports.items()} == {
        pid: index for index, pid in reporters.gpus().items()
    }, "each rank reports its own"
    attributes = job.attributes()
    wanted = {
        "system/gpu/visible_count": 8,
        "system/gpu/host_device_count": 8,
        "system/gpu/mig_partitioned_count": 0,
        "system/gpu/driver_version": "570.86.15",
        "system/arbitration_mode": "shm",
    }
    assert {key: attributes[key] for key in wanted} == wanted


def show(capsys, what: str, gaps: list[Gap]) -> None:
    with capsys.disabled():
        print(f"\n  kill -9 of {what}:")
        for gap in gaps:
            print(f"    {gap}")


def check(gaps: list[Gap]) -> None:
    for gap in gaps:
        assert gap.ticks <= 2, str(gap)
        assert gap.after.step > gap.before.step, str(gap)


def test_killed_within_the_grace_they_are_replaced_too(eight, capsys):
    one = eight["race"]
    pid = one.job.reporters().node()
    index = next(gpu for gpu, owner in one.job.reporters().gpus().items() if owner == pid)
    one.kill(pid)
    gaps = one.gaps([index], has_node=True)
    show(capsys, "the node's reporter, which owns a GPU, within the grace", gaps)
    check(gaps)


# --- T7: faults of the driver ---------------------------------------------------------------------


def calls(job: Job, function: str, index: int) -> int:
    """How often the driver was asked that of this GPU."""
    lines = (Path(job.environment["LD_LIBRARY_PATH"]) / "calls.log").read_text().splitlines()
    return lines.count(f"{function} {index}")


def test_faults_of_the_driver_cost_their_own_series(faulty):
    job = faulty["faults"]
    wait_for(lambda: job.has_points(NODE, 39), "there were forty samples")
    points = job.points()
    ticks = len(points.of(gpu(0)))
    assert calls(job, "nvmlDeviceGetPowerUsage", 0) == 1, "what a device lacks is asked for once"
    assert not points.of(gpu(0, POWER))
    assert len(points.of(gpu(1, POWER))) == len(points.of(gpu(1)))
    asked = calls(job, "nvmlDeviceGetTemperature", 1)
    assert 5 < asked <= 5 + ticks / 10, "after five failures in a row at most every tenth time"
    assert not points.of(gpu(1, HEAT))
    told = len(points.of(gpu(2, CLOCK)))
    assert abs(told - len(points.of(gpu(2))) / 5) <= 1, "a success now and then keeps a counter alive"
    for index, name in ((0, HEAT), (0, CLOCK), (1, CLOCK), (2, HEAT), (2, POWER)):
        assert abs(len(points.of(gpu(index, name))) - ticks) <= 1, (index, name)


def test_a_driver_that_cannot_be_loaded_is_one_warning(faulty):
    job = faulty["broken"]
    wait_for(lambda: job.has_points(NODE, 30), "there were thirty samples")
    points = job.points()
    assert points.names(GPU) == set()
    for name in OF_THE_HOST:
        (which,) = points.names(name)
        assert len(points.of((name, which))) >= 29, name
    (rank,) = job.ranks
    rank.begin()
    rank.tell("log")
    said = rank.errors.read_text()
    assert said.count("no series of its GPUs") == said.count("Warning:") == 1, said


# --- who comes after the dead ---------------------------------------------------------------------


def test_killed_reporters_are_replaced(eight, capsys):
    for one in eight.values():
        one.outlast_grace()
    launcher, owner, two, forked = (eight[name] for name in ("launcher", "owner", "two", "forked"))
    facts = launcher.job.attributes()
    assert facts["system/gpu/visible_count"] == 0, "the process that reported the node first saw none"
    victims = {}
    for name, one in eight.items():
        now = one.job.reporters()
        others = [pid for pid in now.gpus().values() if pid != now.node()]
        victims[name] = (now.node(), others, {pid: index for index, pid in now.gpus().items()})
    node_pid, _, _ = victims["launcher"]
    launcher.kill(node_pid)
    _, others, gpus = victims["owner"]
    owner.kill(others[0])
    owned = [gpus[others[0]]]
    node_pid, others, gpus = victims["two"]
    two.kill(others[0], node_pid)
    both = [gpus[others[0]], gpus[node_pid]]
    node_pid, others, gpus = victims["forked"]
    dying = [node_pid, *others[:3]]
    children = [
        forked.job.fork(forked.rank_of(pid).begin(), how)
        for pid, how in zip(dying, WAYS_TO_FORK, strict=True)
    ]
    forked.kill(*dying)
    rows = [
        ("the node's reporter, which owns no GPU", launcher.gaps([], has_node=True)),
        ("a GPU's owner", owner.gaps(owned, has_node=False)),
        ("the node's reporter and another GPU's owner at once", two.gaps(both, has_node=True)),
        (
            f"four ranks, the node's reporter among them, whose children live on ({', '.join(WAYS_TO_FORK)})",
            forked.gaps([gpus[pid] for pid in dying], has_node=True),
        ),
    ]
    for what, gaps in rows:
        show(capsys, what, gaps)
        check(gaps)
    for child in children:
        os.kill(child, 0)
    for key in ("system/gpu/visible_count", "system/gpu/host_device_count", "system/arbitration_mode"):
        assert launcher.job.attributes()[key] == facts[key], "facts are written once"


# --- T6: rank 0 alone -----------------------------------------------------------------------------


def test_a_rank_that_is_alone_takes_the_other_gpus_when_nobody_else_came(alone):
    job, two, slow = alone["all"], alone["two"], alone["slow"]
    first = job.ranks[0]

    def has_all(job: Job, gpus: list[int], count: int) -> bool:
        points = job.points()
        return all(len(points.of(gpu(index))) >= count for index in gpus)

    wait_for(lambda: has_all(job, [0, 1, 2, 3], 3), "all four GPUs were reported")
    late = job.start(3, world=4)
    late.begin()
    wait_for(lambda: len(job.points().of(process(late.pid))) >= 4, "the late rank sampled itself")
    wait_for(lambda: has_all(two, [0, 1], 3), "both visible GPUs were reported")
    wait_for(lambda: has_all(slow, [0, 1, 2, 3], 1), "all four GPUs were reported every 10 s")
    # In samples: 45 s are over before the 46th second, and 50 s at every tenth.
    for name, gpus, step_max in (("all", [1, 2, 3], 46), ("two", [1], 46), ("slow", [1, 2, 3], 5)):
        points = alone[name].points()
        points.assert_each_once()
        assert points.names(GPU) == {"0", *(str(index) for index in gpus)}, name
        begin = points.of(gpu(0))[0]
        assert begin.step == 0, name
        firsts = [points.of(gpu(index))[0] for index in gpus]
        assert len({(point.step, point.time_ms) for point in firsts}) == 1, "all of them at once"
        # The first sample is somewhat younger than the sampler.
        assert firsts[0].time_ms - begin.time_ms >= (GRACE_SECONDS - 2) * 1000, name
        assert firsts[0].step <= step_max, name
        hosts = [dict(one)["host"] for index in [0, *gpus] for one in points.labels[gpu(index)]]
        assert len(set(hosts)) == 1, name
    points = job.points()
    of_late = points.of(process(late.pid))
    begin, end = of_late[0].time_ms, of_late[-1].time_ms
    of_third = [p for p in points.of(gpu(3)) if begin <= p.time_ms <= end]
    of_first = [p for p in points.of(process(first.pid)) if begin <= p.time_ms <= end]
    assert [p.step for p in of_third] == [p.step for p in of_first], "one point of GPU 3 a sample, by rank 0"
    assert job.reporters().gpus() == dict.fromkeys(range(4), first.pid)
    assert job.reporters().node() == first.pid
