"""Who reports a GPU and the node, between processes that fork, are killed and come again."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest
from conftest import wait_for
from gpus import driver

RANK = """
    import ctypes, os, signal, sys
    import truegauge as tg

    run = tg.init(project_name="p")
    tg.log("loss", 0.5)
    print("begun", flush=True)
    for line in sys.stdin:
        if line == "fork by C\\n":
            # No handler of Python runs in this child, and it never gets to run any Python code of ours.
            libc = ctypes.PyDLL(None)
            child = libc.fork()
            if child == 0:
                libc.pause()
                os._exit(0)
            print(child, flush=True)
        if line == "fork\\n":
            child = os.fork()
            if child == 0:
                signal.pause()
                os._exit(0)
            print(child, flush=True)
        if line == "close\\n":
            tg.close()
            print("closed", flush=True)
"""


class Job:
    """Ranks of one run on one machine."""

    def __init__(self, server, scripts, environment: dict[str, str]) -> None:
        self.server, self.scripts, self.environment = server, scripts, environment
        self.processes: list[subprocess.Popen] = []
        self.orphans: list[int] = []

    def start(self, rank: int) -> subprocess.Popen:
        given = {**self.server.environment_of_client(), **self.environment}
        process = self.scripts.start(RANK, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", **given)
        self.processes.append(process)
        assert process.stdout.readline() == "begun\n"
        return process

    def tell(self, process: subprocess.Popen, what: str) -> str:
        process.stdin.write(what + "\n")
        process.stdin.flush()
        return process.stdout.readline().strip()

    def fork(self, process: subprocess.Popen, how: str) -> int:
        self.orphans.append(int(self.tell(process, how)))
        return self.orphans[-1]

    def reports(self) -> dict[int, dict]:
        """Each rank's latest report by its process."""
        run = next(iter(self.server.runs()), None)
        attributes = self.server.get(f"runs/{run['run_id']}")["attributes"] if run else {}
        found = [json.loads(v) for k, v in attributes.items() if k.startswith("capture/")]
        return {report["pid"]: report for report in found}

    def owns(self, process: subprocess.Popen, gpu: int) -> bool:
        devices = self.reports().get(process.pid, {}).get("devices", [])
        return any(device["gpu"] == gpu and device["role"] == "owned" for device in devices)

    def speaks_for_the_node(self, process: subprocess.Popen) -> bool:
        return self.reports().get(process.pid, {}).get("node") == "reports"

    def steps(self, name: str, **labels) -> list[float]:
        run_id = self.server.the_run()["run_id"]
        if not self.server.series(run_id, name):
            return []
        return [step for step, _ in self.server.points(run_id, name, **labels)]

    def end(self) -> None:
        for orphan in self.orphans:
            os.kill(orphan, signal.SIGKILL)
        for process in self.processes:
            process.kill()
            process.communicate()


@pytest.fixture
def job(server, scripts, tmp_path):
    job = Job(server, scripts, driver(tmp_path / "driver", 2))
    yield job
    job.end()


@pytest.mark.parametrize("how", ["fork", "fork by C"])
def test_killed_owner_is_followed_although_its_child_lives(job, how):
    first = job.start(0)
    wait_for(lambda: job.speaks_for_the_node(first) and job.owns(first, 0), "the first rank's roles")
    orphan = job.fork(first, how)
    second = job.start(1)
    wait_for(lambda: job.owns(second, 1), "the second rank's GPU")
    assert not job.speaks_for_the_node(second)
    before = wait_for(lambda: job.steps("system/cpu/utilization"), "points of the node")
    first.kill()
    first.wait()
    os.kill(orphan, 0)
    wait_for(lambda: job.speaks_for_the_node(second), "the second rank speaks for the node")
    wait_for(lambda: job.owns(second, 0), "the GPU of the rank that was killed has its next owner")
    os.kill(orphan, 0)
    wait_for(lambda: len(job.steps("system/cpu/utilization")) > len(before) + 1, "the node goes on")
    for name in ("system/cpu/utilization", "system/gpu/utilization"):
        steps = job.steps(name, **({"gpu": "0"} if "gpu" in name else {}))
        assert steps == sorted(set(steps)), "no step twice, none goes back"
    values = {
        v for _, v in job.server.points(job.server.the_run()["run_id"], "system/gpu/utilization", gpu="0")
    }
    assert values == {1.0}


def test_closed_owner_is_followed_although_its_child_lives(job):
    first = job.start(0)
    wait_for(lambda: job.speaks_for_the_node(first) and job.owns(first, 0), "the first rank's roles")
    job.fork(first, "fork")
    second = job.start(1)
    wait_for(lambda: job.owns(second, 1), "the second rank's GPU")
    assert job.tell(first, "close") == "closed"
    wait_for(lambda: job.speaks_for_the_node(second), "the second rank speaks for the node")
