"""A rank that a CPU quota holds back: a real training, a real cgroup, a real server."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from blackbox.cage import Cage
from conftest import ROOT, clean, wait_for

VERDICT_SECONDS = 240
RANK = 2


@pytest.fixture
def cage():
    """A twentieth of a core: less than a step of the example takes in the quota's period of 0.1 s."""
    cage = Cage(cpus=0.05)
    yield cage
    cage.remove()


def started_ranks(server) -> dict[int, int]:
    """Processes of the only run's ranks that have done a step."""
    if not (rows := server.runs()):
        return {}
    run = server.get(f"runs/{rows[0]['run_id']}")
    stepped = {int(s["labels"]["rank"]) for s in server.series(run["run_id"], "train_step_seconds")}
    pids = {s["rank"]: s["pid"] for s in run["sessions"] if s["rank"] is not None}
    return {rank: pid for rank, pid in pids.items() if rank in stepped}


def test_the_rank_of_a_training_under_a_quota_is_named_with_the_cause(server, cage, tmp_path):
    environment = {
        **clean(dict(os.environ)),
        **server.environment_of_client(),
        "TRUEGAUGE_CAPTURE_SYSTEM_METRICS": "true",
    }
    program = ROOT / "examples" / "train_digits_parallel.py"
    command = [sys.executable, program, "--processes", "4", "--seconds", "900", "--run-name", "quota"]
    with (tmp_path / "training.log").open("w") as log:
        training = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
    try:
        pids = wait_for(lambda: len(found := started_ranks(server)) == 4 and found, "four ranks did a step")
        cage.enter(pids[RANK])
        verdict = verdict_with_cause(server, training)
    finally:
        os.killpg(training.pid, 9)
        training.wait()
    assert verdict["claim"] == "Rank 2 is slow"
    assert "rank 2: a CPU quota holds it back for" in verdict["sentence"]
    assert verdict["action"]["word"] == "check_host"
    # How much depends on what else the machine does.
    assert verdict["gain_ratio"] > 0.05


def verdict_with_cause(server, training: subprocess.Popen) -> dict:
    """The verdict on the rank, once its cause is known."""
    run_id = server.the_run()["run_id"]
    told: list[dict] = []
    end = time.monotonic() + VERDICT_SECONDS
    while time.monotonic() < end and training.poll() is None:
        told = server.get(f"runs/{run_id}/health")["verdicts"]
        for row in told:
            if (row["class"], row["ranks"], row["cause"]) == ("straggler", [RANK], "host_data"):
                return row
        time.sleep(0.2)
    pytest.fail(f"rank {RANK} was not named with its cause within {VERDICT_SECONDS} s: {told}")


WAITS = """
    import time
    import truegauge as tg
    with tg.init(project_name="p", run_name="waits"):
        print("ready", flush=True)
        input()
        for number in range(10):
            with tg.step(number) as s, s.phase("wait"):
                begun = time.process_time()
                while time.process_time() - begun < 0.02:
                    pass
"""


def test_time_without_a_cpu_is_no_wait_for_others(server, scripts, cage):
    script = scripts.start(WAITS, **server.environment_of_client())
    # It waits for the cage, and starts up outside, where that takes no minute.
    assert script.stdout.readline() == "ready\n"
    cage.enter(script.pid)
    _, err = script.communicate("go\n", timeout=120)
    assert script.returncode == 0, err
    run_id = server.the_run()["run_id"]
    total = {
        name: sum(value for _, value in server.points(run_id, f"train_step_{name}seconds"))
        for name in ("", "wait_")
    }
    # Work of 0.2 s took 4 s: what a quota takes of them is the rank's own, though it was in its wait.
    assert total[""] > 2.0
    assert total["wait_"] < 0.5 * total[""]


FILES = """
    import os
    import threading
    import truegauge as tg

    def wait():
        with tg.step() as s, s.phase("wait"):
            pass

    def in_threads():
        for _ in range(20):
            thread = threading.Thread(target=wait)
            thread.start()
            thread.join()

    with tg.init(project_name="p", run_name="files", offline=True):
        wait()
        in_threads()
        before = len(os.listdir("/proc/self/fd"))
        in_threads()
        assert len(os.listdir("/proc/self/fd")) <= before
"""


def test_threads_that_wait_leave_no_files_open(scripts):
    _, err = scripts.run(FILES)
    assert "Exception ignored" not in err
