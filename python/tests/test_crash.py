"""What was acknowledged is kept: servers and clients killed, and a disk that is full for a while."""

from __future__ import annotations

import csv
import io
import os
import random
import shutil
import signal
import subprocess
import threading
import urllib.request

import pytest
from conftest import DEADLINE_SECONDS, Server, wait_for

POINTS = 200_000


def exported(server: Server, run_id: str, metric: str) -> list[tuple[int, float]]:
    """Steps and values of every stored point of a metric, in order of step."""
    url = f"{server.url}/api/tg/v1/runs/{run_id}/export?format=csv&metric={metric}"
    with urllib.request.urlopen(url, timeout=60) as answer:
        rows = csv.DictReader(io.TextIOWrapper(answer, "utf-8"))
        return sorted((int(row["step"]), float(row["value"])) for row in rows)


def run_id_of(server: Server, name: str) -> str:
    return next(row["run_id"] for row in server.runs() if row["run"] == name)


def test_server_killed_five_times_stores_each_of_200000_points_once(online, scripts):
    server = online
    process = scripts.start(
        f"""
        import sys
        import truegauge as tg

        tg.init(project_name="p", run_name="crash")
        for step in range({POINTS}):
            tg.log("v", float(step), step=step)
            if step % {POINTS // 10} == {POINTS // 20}:
                print(step, flush=True)
                sys.stdin.readline()
        tg.flush()
        tg.close()
        """,
        **server.environment_of_client(),
    )
    kills = 0
    for line in process.stdout:
        if int(line) // (POINTS // 10) % 2 == 0:
            server.kill()
            kills += 1
        else:
            server.start()
        process.stdin.write("\n")
        process.stdin.flush()
    _, err = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 0, err
    assert kills == 5
    run_id = run_id_of(server, "crash")
    wait_for(lambda: server.series(run_id, "v")[0]["points"] >= POINTS, "every point came")
    assert exported(server, run_id, "v") == [(step, float(step)) for step in range(POINTS)]
    server.kill()
    server.start()
    assert exported(server, run_id, "v") == [(step, float(step)) for step in range(POINTS)]


@pytest.mark.parametrize("seed", range(5))
def test_client_killed_anywhere_leaves_every_flushed_point_once(online, scripts, seed):
    server = online
    process = scripts.start(
        """
        import truegauge as tg

        tg.init(project_name="p", run_name="killed")
        step = 0
        while True:
            for _ in range(997):
                tg.log("v", float(step), step=step)
                step += 1
            tg.flush()
            print(step, flush=True)
        """,
        **server.environment_of_client(),
    )
    # Kills after so many flushes, and then a little later: anywhere in the loop.
    chance = random.Random(seed)
    flushed = 0
    for _ in range(chance.randint(1, 20)):
        flushed = int(process.stdout.readline())
    timer = threading.Timer(chance.uniform(0, 0.05), process.send_signal, (signal.SIGKILL,))
    timer.start()
    rest, _ = process.communicate(timeout=DEADLINE_SECONDS)
    timer.join()
    flushed = int((rest.split() or [flushed])[-1])
    run_id = run_id_of(server, "killed")
    found = exported(server, run_id, "v")
    steps = [step for step, _ in found]
    assert len(set(steps)) == len(steps), "a point is there twice"
    assert set(range(flushed)) <= set(steps), f"{flushed} points were flushed, {len(steps)} are there"
    assert all(step == value for step, value in found)


class SmallDisk:
    """A small filesystem in a mount namespace of its own, reached through a process that keeps it."""

    def __init__(self, folder) -> None:
        mount = f"mount -t tmpfs -o size=400m small {folder} && echo mounted && exec sleep infinity"
        as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
        self.folder = folder
        self.keeper = subprocess.Popen(
            ["unshare", *as_root, "--mount", "--propagation", "private", "sh", "-c", mount],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if self.keeper.stdout.readline().strip() != "mounted":
            pytest.fail(
                f"cannot mount a small filesystem: {self.keeper.stderr.read()}: allow user namespaces"
            )

    def inside(self) -> list[str]:
        """What runs a command in the namespace."""
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        return ["nsenter", f"--target={self.keeper.pid}", *user, "--mount"]

    def run(self, *command: str) -> None:
        subprocess.run([*self.inside(), *command], check=True, capture_output=True)

    def end(self) -> None:
        self.keeper.kill()
        self.keeper.communicate()


class ServerOnSmallDisk(Server):
    """A server whose data directory is on a small disk."""

    def __init__(self, binary, folder, disk: SmallDisk) -> None:
        super().__init__(binary, folder)
        self.disk = disk

    def start(self) -> None:
        listen = self.url.removeprefix("http://")
        command = [*self.disk.inside(), self.binary.resolve(), "up", "--data-dir", f"{self.disk.folder}/data"]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--listen", listen], stdout=log, stderr=log, env=self.environment
            )
        wait_for(self._is_ready, "the server was ready")


@pytest.fixture
def on_small_disk(binary, tmp_path):
    for tool in ("unshare", "nsenter"):
        if shutil.which(tool) is None:
            pytest.fail(f"`{tool}` is missing: apt-get install util-linux")
    folder = tmp_path / "server"
    (folder / "disk").mkdir(parents=True)
    disk = SmallDisk(folder / "disk")
    server = ServerOnSmallDisk(binary, folder, disk)
    server.start()
    yield server
    server.kill()
    disk.end()


def test_full_disk_refuses_writes_serves_reads_and_recovers_by_itself(on_small_disk, scripts):
    server = on_small_disk
    process = scripts.start(
        """
        import sys
        import truegauge as tg

        tg.init(project_name="p", run_name="full")
        for part in range(3):
            for step in range(part * 20_000, part * 20_000 + 20_000):
                tg.log("v", float(step), step=step)
            print(tg.flush(), flush=True)
            sys.stdin.readline()
        tg.close()
        """,
        **server.environment_of_client(),
    )

    def go_on() -> str:
        process.stdin.write("\n")
        process.stdin.flush()
        return process.stdout.readline()

    assert "server" in process.stdout.readline()
    filler = f"{server.disk.folder}/filler"
    server.disk.run("sh", "-c", f"head -c 200m /dev/zero > {filler}")
    assert "spool" in go_on()
    run_id = run_id_of(server, "full")
    assert len(exported(server, run_id, "v")) == 20_000, "reads go on"
    assert server.get("status")["readonly_reason"], "the server says why it refuses"
    server.disk.run("rm", filler)
    go_on()
    process.stdin.write("\n")
    process.stdin.flush()
    _, err = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 0, err
    wait_for(lambda: server.series(run_id, "v")[0]["points"] >= 60_000, "every point came")
    assert exported(server, run_id, "v") == [(step, float(step)) for step in range(60_000)]
    assert server.get("status")["readonly_reason"] is None
