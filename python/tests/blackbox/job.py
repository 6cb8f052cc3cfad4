"""Ranks of a run as processes of their own, and every point that a server has of the run."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from conftest import DEADLINE_SECONDS, Server, clean, wait_for

INTERVAL_MS = 1000
NODE = "system/cpu/utilization"
RSS = "system/process/rss_bytes"
GPU = "system/gpu/utilization"
RANK = """
import ctypes, multiprocessing, os, signal, sys
import truegauge as tg

def pause():
    signal.pause()

def fork():
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    return child

def fork_that_logs():
    # Python's handlers have run: the child is a process of the run from here on.
    child = os.fork()
    if child == 0:
        tg.log("child", 1.0)
        signal.pause()
        os._exit(0)
    return child

def multiprocess():
    child = multiprocessing.get_context("fork").Process(target=pause)
    child.start()
    return child.pid

def fork_by_c():
    # No handler of Python runs in this child, and it never gets to run any Python code of ours.
    libc = ctypes.PyDLL(None)
    child = libc.fork()
    if child == 0:
        libc.pause()
        os._exit(0)
    return child

def log():
    tg.log("loss", 0.5)

run = tg.init(project_name="scenarios", run_name=sys.argv[1])
tg.log("loss", 0.5)
print("begun", flush=True)
for line in sys.stdin:
    print(globals()[line.strip()](), flush=True)
run.close()
"""
WAYS_TO_FORK = ("fork", "fork_that_logs", "multiprocess", "fork_by_c")


@dataclass(frozen=True, order=True)
class Point:
    """A point as the server keeps it."""

    time_ms: float
    step: int
    value: float


@dataclass
class Rank:
    """A process of a job."""

    process: subprocess.Popen
    errors: Path
    has_begun: bool = False

    @property
    def pid(self) -> int:
        return self.process.pid

    def begin(self) -> Rank:
        """Waits until it has a run."""
        if not self.has_begun:
            assert self.process.stdout.readline() == "begun\n", self.errors.read_text()
            self.has_begun = True
        return self

    def tell(self, what: str) -> str:
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(DEADLINE_SECONDS)


@dataclass
class Job:
    """A run with processes on this machine."""

    server: Server
    folder: Path
    name: str
    environment: dict[str, str]
    ranks: list[Rank] = field(default_factory=list)
    orphans: list[int] = field(default_factory=list)

    def start(self, rank: int | None = None, world: int = 8, **environment: str) -> Rank:
        """Starts a process; does not wait for it."""
        folder = self.folder / self.name
        folder.mkdir(parents=True, exist_ok=True)
        errors = folder / f"{len(self.ranks)}.stderr"
        place = {} if rank is None else {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
        with errors.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-c", RANK, self.name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                env={
                    **clean(dict(os.environ)),
                    **self.server.environment_of_client(),
                    "HOME": str(folder),
                    **self.environment,
                    **place,
                    **environment,
                },
                cwd=folder,
            )
        self.ranks.append(Rank(process, errors))
        return self.ranks[-1]

    def fork(self, rank: Rank, how: str) -> int:
        """Has a rank fork; the child's process ID. It lives until the job ends."""
        self.orphans.append(int(rank.tell(how)))
        return self.orphans[-1]

    def end(self) -> None:
        # Children first: they have the pipes of their parents.
        for orphan in self.orphans:
            with contextlib.suppress(ProcessLookupError):
                os.kill(orphan, signal.SIGKILL)
        for rank in self.ranks:
            rank.process.kill()
            rank.process.communicate()
        # Locks would stay for a week, in case that the run goes on.
        for locks in Path(f"/dev/shm/truegauge-claims-{os.geteuid()}").glob(f"*-{self.run_id()}-*"):
            shutil.rmtree(locks, ignore_errors=True)

    # --- what the server has ----------------------------------------------------------------------

    def run_id(self) -> str | None:
        return next((row["run_id"] for row in self.server.runs() if row["run"] == self.name), None)

    def attributes(self) -> dict[str, object]:
        run_id = self.run_id()
        return self.server.get(f"runs/{run_id}")["attributes"] if run_id else {}

    def reports(self) -> dict[int, dict]:
        """Each process's latest report of what it captures."""
        found = [json.loads(v) for k, v in self.attributes().items() if k.startswith("capture/")]
        return {report["pid"]: report for report in found}

    def reporters(self) -> Reporters:
        """Who reports what now, as far as those who live say."""
        alive = {rank.pid for rank in self.ranks if rank.process.poll() is None}
        return Reporters({pid: report for pid, report in self.reports().items() if pid in alive})

    def points(self) -> Points:
        run_id = self.run_id()
        return Points.read(self.server, run_id) if run_id else Points({})

    def has_points(self, name: str, count: int, series: int = 1) -> bool:
        """Whether so many series of a metric have at least so many points."""
        run_id = self.run_id()
        found = self.server.series(run_id, name) if run_id else []
        return sum(one["points"] >= count for one in found) >= series

    def go_on(self, keys: list[Key], since_ms: float, count: int = 3) -> Points:
        """Waits until each of these series has as many points since then; all points."""

        def have() -> Points | None:
            now = self.points()
            later = [sum(point.time_ms > since_ms for point in now.of(key)) for key in keys]
            return now if min(later) >= count else None

        return wait_for(have, f"{self.name}: {count} more points of {keys}")


@dataclass
class Reporters:
    """What the reports of living processes say."""

    reports: dict[int, dict]

    def node(self) -> int | None:
        return next((pid for pid, report in self.reports.items() if report["node"] == "reports"), None)

    def gpus(self) -> dict[int, int]:
        """The reporter of each GPU."""
        return {
            device["gpu"]: pid
            for pid, report in self.reports.items()
            for device in report["devices"]
            if device["role"] == "owned"
        }


Key = tuple[str, str]
"""A series of a run: its name, and its GPU or process ID if it has one, with any label beside these."""


def gpu(index: int, name: str = GPU) -> Key:
    return (name, str(index))


def process(pid: int, name: str = RSS) -> Key:
    return (name, str(pid))


def node(name: str = NODE) -> Key:
    return (name, "")


@dataclass
class Points:
    """Every point of a run, by series, in order of time."""

    series: dict[Key, list[Point]]
    labels: dict[Key, set[frozenset]] = field(default_factory=dict)

    @staticmethod
    def read(server: Server, run_id: str) -> Points:
        url = f"{server.url}/api/tg/v1/runs/{run_id}/export?format=ndjson"
        with urllib.request.urlopen(url, timeout=30) as answer:
            rows = [json.loads(line) for line in answer.read().splitlines()]
        found = Points({})
        for row in rows:
            labels = row["labels"]
            more = sorted(f"{k}={v}" for k, v in labels.items() if k not in ("host", "gpu", "pid", "rank"))
            key = (row["metric"], ",".join([labels.get("gpu", labels.get("pid", "")), *more]))
            point = Point(int(row["time_ns"]) / 1e6, row["step"], row["value"])
            found.series.setdefault(key, []).append(point)
            found.labels.setdefault(key, set()).add(frozenset(labels.items()))
        for points in found.series.values():
            points.sort()
        return found

    def of(self, key: Key) -> list[Point]:
        return self.series.get(key, [])

    def names(self, name: str) -> set[str]:
        """GPUs or processes that have a series of this metric."""
        return {which for metric, which in self.series if metric == name}

    def assert_each_once(self) -> None:
        """No step twice, none that goes back, no moment twice, in any series of the machine."""
        for key, points in self.series.items():
            if key[0].startswith("system/"):
                steps = [point.step for point in points]
                assert steps == sorted(set(steps)), (key, steps)
                times = [point.time_ms for point in points]
                assert len(set(times)) == len(times), (key, times)

    def gap(self, key: Key, killed_ms: float, successor: int) -> Gap:
        """What a series lacks around a kill."""
        before = [point for point in self.of(key) if point.time_ms <= killed_ms][-1]
        after = next(point for point in self.of(key) if point.time_ms > killed_ms)
        own = [p for p in self.of(process(successor)) if before.time_ms < p.time_ms < after.time_ms]
        return Gap(key, before, after, len(own))


@dataclass
class Gap:
    """Between the last point of a reporter that was killed and the first of whoever comes after it."""

    key: Key
    before: Point
    after: Point
    ticks: int
    """Samples that the successor took of itself meanwhile."""

    def __str__(self) -> str:
        span = (self.after.time_ms - self.before.time_ms) / INTERVAL_MS
        name = f"{self.key[0].removeprefix('system/')} {self.key[1]}".strip()
        return (
            f"{name:<18} {span:5.2f} s between points, {self.ticks} ticks of the successor missed, "
            f"step {self.before.step} -> {self.after.step}"
        )
