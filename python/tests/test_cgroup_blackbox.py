"""System metrics of the installed package, from outside: made-up machines, a real cgroup, a real disk."""

from __future__ import annotations

import bisect
import contextlib
import itertools
import json
import math
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from blackbox.cage import LIMIT_BYTES, QUOTA_CPUS, Cage
from blackbox.machine import GIB, Machine, Mover
from conftest import DEADLINE_SECONDS, clean, wait_for

CPU = "system/cpu/utilization"
USED = "system/memory/used_bytes"
MEMORY = "system/memory/utilization"
DISK = ["system/disk/total_bytes", "system/disk/free_bytes", "system/disk/utilization"]
RSS = "system/process/rss_bytes"
PROCESS_CPU = "system/process/cpu_utilization"
# Ends when its standard input does, so it never outlives the test.
SAMPLED = """
import sys
import truegauge as tg
run = tg.init(project_name="blackbox", run_name=sys.argv[1], **eval(sys.argv[2]))
print("started", flush=True)
sys.stdin.read()
run.close()
"""


class Sampled:
    """A process that only calls `init`, and what the server has of it."""

    def __init__(
        self, server, folder: Path, name: str, arguments: str, code: str = SAMPLED, **environment
    ) -> None:
        self.server, self.name, self.command = server, name, [sys.executable, "-c", code, name, arguments]
        self.folder = folder
        self.environment = {
            **clean(dict(os.environ)),
            **server.environment_of_client(),
            "HOME": str(folder),
            "TRUEGAUGE_CAPTURE_SYSTEM_METRICS": "true",
            **environment,
        }
        self.process: subprocess.Popen | None = None
        self.errors = folder / f"{name}.stderr"

    def start(self, command: list[str] | None = None) -> Sampled:
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                command or self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=self.environment,
                cwd=self.folder,
            )
        started = self.process.stdout.readline()
        assert started == b"started\n", self.errors.read_text()
        return self

    def stop(self) -> bytes:
        """Ends it; returns what it printed since it started."""
        out, _ = self.process.communicate(timeout=DEADLINE_SECONDS)
        assert self.process.returncode == 0, self.errors.read_text()
        return out

    def __enter__(self) -> Sampled:
        return self

    def __exit__(self, *_) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.communicate()

    def run_id(self) -> str | None:
        return next((row["run_id"] for row in self.server.runs() if row["run"] == self.name), None)

    def ticks(self, metric: str, axis: str = "time") -> list[tuple[float, float]]:
        """Time in ms (or step) and value of each point so far."""
        run_id = self.run_id()
        if run_id is None or not self.server.series(run_id, metric):
            return []
        found = self.server.get(f"runs/{run_id}/points", metric=metric, axis=axis, buckets=2000)["series"]
        (series,) = found
        return list(zip(series["x"], series["last"], strict=True))

    def has_mean(self, metric: str, wanted: float, tolerance: float, after: float = 0.0) -> bool:
        """Whether at least four points since then have a mean this close to the wanted one.

        A point covers the time since the one before, so a mean over neighbours is the rate over all.
        """
        values = [value for at, value in self.ticks(metric) if at >= after]
        return len(values) >= 4 and abs(sum(values) / len(values) - wanted) <= tolerance * wanted


@pytest.fixture
def sampled(server, tmp_path):
    """Makes processes that are ended with the test."""
    with contextlib.ExitStack() as stack:

        def make(name: str, arguments: str = "dict(system_metrics_interval_secs=1.0)", **more) -> Sampled:
            return stack.enter_context(Sampled(server, tmp_path, name, arguments, **more))

        yield make


# --- machines that are not there ------------------------------------------------------------------


def unified_level(machine: Machine, path: str, quota: str, limit: str) -> None:
    machine.write_all(
        path,
        {
            "memory.max": f"{limit}\n",
            "memory.current": f"{4 * GIB}\n",
            "memory.stat": f"anon 1\nfile 2\ninactive_file {GIB}\n",
            "cpu.max": f"{quota}\n",
        },
    )


def inherited_limits(folder: Path, mover: Mover) -> Machine:
    """T1: version 2, limits one level above the process."""
    machine = Machine(folder, "0::/pod/c1\n")
    machine.mount("cgroup2", "/", "", "nsdelegate")
    machine.write("cgroup.controllers", "cpuset cpu io memory pids\n")
    unified_level(machine, "pod", "200000 100000", str(16 * GIB))
    unified_level(machine, "pod/c1", "max 100000", "max")
    for level in ("pod", "pod/c1"):
        mover.add(machine, f"{level}/cpu.stat", "usage_usec {}\nuser_usec 1\n", 1e6, 1.5)
    return machine


def v1_memory(machine: Machine, path: str, limit: int, usage: int, inactive: int) -> None:
    machine.write_all(
        path,
        {
            "memory.limit_in_bytes": f"{limit}\n",
            "memory.usage_in_bytes": f"{usage}\n",
            "memory.stat": f"cache 5\ninactive_file 7\ntotal_cache 6\ntotal_inactive_file {inactive}\n",
        },
    )


def v1_cpu(machine: Machine, path: str, quota: int, mover: Mover, cpus: float) -> None:
    machine.write_all(path, {"cpu.cfs_quota_us": f"{quota}\n", "cpu.cfs_period_us": "100000\n"})
    mover.add(machine, f"{path}/cpuacct.usage", "{}\n", 1e9, cpus)


def sibling_trees(folder: Path, mover: Mover) -> Machine:
    """T2 (a): version 1, memory beside co-mounted cpu and cpuacct, limits on the job."""
    machine = Machine(folder, "5:name=systemd:/x\n4:cpuacct,cpu:/job/step\n3:memory:/job/step\n")
    machine.mount("cgroup", "/", "memory", "memory")
    machine.mount("cgroup", "/", "cpu,cpuacct", "cpu,cpuacct")
    v1_memory(machine, "memory/job", 16 * GIB, 11 * GIB, 3 * GIB)
    v1_memory(machine, "memory/job/step", 9223372036854771712, GIB, 0)
    v1_cpu(machine, "cpu,cpuacct/job", 200_000, mover, 1.5)
    v1_cpu(machine, "cpu,cpuacct/job/step", -1, mover, 0.5)
    return machine


def bind_mounted_container(folder: Path, mover: Mover) -> Machine:
    """T2 (b): version 1 in a container, whose path is nowhere under the mount."""
    machine = Machine(folder, "3:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n")
    machine.mount("cgroup", "/docker/abc", "memory", "memory")
    machine.mount("cgroup", "/docker/abc", "cpu,cpuacct", "cpu,cpuacct")
    v1_memory(machine, "memory", 2 * GIB, GIB, 0)
    v1_cpu(machine, "cpu,cpuacct", 50_000, mover, 0.25)
    return machine


def hybrid(folder: Path, mover: Mover) -> Machine:
    """T2 (c): memory is on the unified hierarchy only."""
    machine = Machine(folder, "2:cpu,cpuacct:/job\n1:name=systemd:/job\n0::/job\n")
    machine.mount("cgroup", "/", "cpu,cpuacct", "cpu,cpuacct")
    machine.mount("cgroup2", "/", "unified", "nsdelegate")
    machine.write_all(
        "unified/job",
        {"memory.max": f"{4 * GIB}\n", "memory.current": f"{3 * GIB}\n", "memory.stat": "inactive_file 0\n"},
    )
    v1_cpu(machine, "cpu,cpuacct/job", 100_000, mover, 0.4)
    return machine


def slurm_job(folder: Path, mover: Mover) -> Machine:
    """W1: eight tasks of 6 GiB in a job of 48 GiB, this one using a tenth of the job's CPU."""
    job = "system.slice/slurmstepd.scope/job_7"
    machine = Machine(folder, f"0::/{job}/step_0/user/task_0\n")
    machine.mount("cgroup2", "/", "", "nsdelegate")
    levels = [job, f"{job}/step_0", f"{job}/step_0/user"]
    for level in levels:
        machine.write_all(
            level, {"memory.max": "max\n", "memory.current": f"{42 * GIB}\n", "cpu.max": "max\n"}
        )
        mover.add(machine, f"{level}/cpu.stat", "usage_usec {}\n", 1e6, 1.6)
    machine.write(f"{job}/memory.max", f"{48 * GIB}\n")
    machine.write(f"{job}/cpu.max", "200000 100000\n")
    for task in range(8):
        own = f"{levels[-1]}/task_{task}"
        machine.write_all(own, {"memory.max": "max\n", "memory.current": f"{6 * GIB}\n", "cpu.max": "max\n"})
        mover.add(machine, f"{own}/cpu.stat", "usage_usec {}\n", 1e6, 0.16 if task == 0 else 0.2)
    return machine


MACHINES = {
    # name: how it is made, used bytes, memory %, cpu %
    "t1": (inherited_limits, 3 * GIB, 18.75, 75.0),
    "t2a": (sibling_trees, 8 * GIB, 50.0, 75.0),
    "t2b": (bind_mounted_container, GIB, 50.0, 50.0),
    "t2c": (hybrid, 3 * GIB, 75.0, 40.0),
    "slurm": (slurm_job, 42 * GIB, 87.5, 80.0),
}


def test_made_up_machines_are_measured_at_the_level_that_binds(sampled, tmp_path):
    with Mover() as mover:
        running = {}
        for name, (make, *_) in MACHINES.items():
            machine = make(tmp_path / name, mover)
            process = sampled(name, **machine.environment())
            running[name] = (machine, process.start(machine.command(*process.command)))
        for name, (_, used, memory, cpu) in MACHINES.items():
            process = running[name][1]
            wait_for(lambda p=process, c=cpu: p.has_mean(CPU, c, 0.03), f"{name}: CPU was {cpu} % within 3 %")
            assert {value for _, value in process.ticks(USED)} == {used}, name
            assert {value for _, value in process.ticks(MEMORY)} == {memory}, name
        # T1, second part: a smaller quota counts from the next tick on.
        machine, process = running["t1"]
        for level in ("pod", "pod/c1"):
            mover.add(machine, f"{level}/cpu.stat", "usage_usec {}\nuser_usec 1\n", 1e6, 0.25)
        machine.write("pod/cpu.max", "50000 100000\n")
        # The tick in which it changed covers both.
        changed = time.time() * 1000 + 1500
        wait_for(lambda: process.has_mean(CPU, 50.0, 0.03, changed), "t1: CPU was 50 % within 3 %")
        for _, process in running.values():
            process.stop()


# --- a real cgroup --------------------------------------------------------------------------------


BURNING = SAMPLED.replace(
    'print("started", flush=True)',
    'import threading\nheld = bytearray(b"x") * (300 << 20)\nprint("started", flush=True)\n'
    "def burn():\n    while True:\n        pass\nthreading.Thread(target=burn, daemon=True).start()",
)


class Watch:
    """Readings of some counters with their times, every few milliseconds, until it is left."""

    def __init__(self, read) -> None:
        self.read, self.readings, self.ended = read, [], threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self.ended.wait(0.002):
            self.readings.append((time.time() * 1000, *self.read()))

    def __enter__(self) -> Watch:
        self.thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.ended.set()
        self.thread.join()

    def at(self, time_ms: float) -> list[float]:
        """The values at this time, on the line between the readings around it."""
        index = bisect.bisect_left(self.readings, (time_ms,))
        (t0, *before), (t1, *after) = self.readings[index - 1], self.readings[index]
        return [a + (b - a) * (time_ms - t0) / (t1 - t0) for a, b in zip(before, after, strict=True)]


def test_a_process_in_a_real_cgroup_reads_as_its_files(sampled, capsys):
    cage = Cage()
    try:
        process = sampled("caged", code=BURNING)
        shell = f'{cage.enter_command()} && exec "$@"'
        process.start(["sh", "-c", shell, "sh", *process.command])
        with process, Watch(lambda: (cage.cpu_seconds(), cage.used_bytes())) as watch:
            wait_for(lambda: len(process.ticks(CPU)) >= 12, "there were twelve ticks with CPU")
            process.stop()
            # A reading behind the last tick.
            count = len(watch.readings)
            wait_for(lambda: len(watch.readings) > count + 1, "there was another reading")
        cpu, used, memory = process.ticks(CPU), process.ticks(USED), process.ticks(MEMORY)
    finally:
        cage.remove()
    # Ticks that the readings cover: the process had its first one before they began.
    began = watch.readings[0][0]
    used, memory = ([tick for tick in ticks if tick[0] >= began] for ticks in (used, memory))
    cpu = [tick for tick in cpu if tick[0] > used[0][0]]
    first, last = used[0][0], cpu[-1][0]
    by_hand = (watch.at(last)[0] - watch.at(first)[0]) / (last - first) * 1000 / QUOTA_CPUS * 100
    # Every tick covers the time since the one before it.
    spans = [b[0] - a[0] for a, b in itertools.pairwise(used)]
    reported = sum(span * value for span, (_, value) in zip(spans, cpu, strict=True)) / sum(spans)
    with capsys.disabled():
        print(f"\n  cpu {reported:.2f} %, by hand {by_hand:.2f} %", end="")
        print(f"; memory {used[-1][1]:.0f} B, by hand {watch.at(used[-1][0])[1]:.0f} B")
    assert abs(reported - by_hand) <= 0.01 * by_hand
    for (at, bytes_used), (_, percent) in zip(used, memory, strict=True):
        wanted = watch.at(at)[1]
        assert abs(bytes_used - wanted) <= 0.01 * wanted
        assert abs(percent - bytes_used / LIMIT_BYTES * 100) <= 1e-9 * percent


# --- disk -----------------------------------------------------------------------------------------


def test_the_root_filesystem_reads_as_df_prints_it(sampled):
    def df_percent() -> int:
        out = subprocess.run(["df", "-P", "/"], capture_output=True, text=True, check=True).stdout
        return int(out.splitlines()[1].split()[4].rstrip("%"))

    def read() -> tuple:
        stat = os.statvfs("/")
        used = stat.f_blocks - stat.f_bfree
        percent = used / (used + stat.f_bavail) * 100
        return float(stat.f_blocks * stat.f_frsize), float(stat.f_bavail * stat.f_frsize), percent

    process = sampled("disk")
    percents = {df_percent()}
    with Watch(read) as watch:
        process.start()

        def agrees() -> bool:
            """Whether a tick has, all at once, the numbers the disk had around it: others write to it."""
            percents.add(df_percent())
            for ticks in zip(*(process.ticks(name) for name in DISK), strict=False):
                at, (total, free, percent) = ticks[0][0], (value for _, value in ticks)
                near = [r for r in list(watch.readings) if at - 50 <= r[0] <= at + 1000]
                if any(r[1] == total and r[2] == free and abs(r[3] - percent) < 1e-9 for r in near):
                    return math.ceil(percent) in percents
            return False

        wait_for(agrees, "a tick had total, free and utilization of the disk as statvfs has them")
        process.stop()


# --- cadence, parsing and the process's own numbers -----------------------------------------------


SHORT = """
import sys, time
import truegauge as tg
run = tg.init(project_name="blackbox", run_name=sys.argv[1], **eval(sys.argv[2]))
print("started", flush=True)
time.sleep(0.3)
run.close()
"""


def test_a_run_of_a_third_of_a_second_has_one_tick_without_rates(sampled):
    # At the interval that is the default, so that no slow machine fits in a second one.
    process = sampled("short", "{}", code=SHORT).start()
    process.stop()
    singles = [USED, MEMORY, *DISK, RSS]
    found = {name: len(process.ticks(name)) for name in [*singles, CPU, PROCESS_CPU]}
    assert found == {**dict.fromkeys(singles, 1), CPU: 0, PROCESS_CPU: 0}


def test_all_points_of_a_tick_share_step_and_time_and_an_interval_is_at_least_a_second(sampled):
    process = sampled("paced", "dict(system_metrics_interval_secs=0.2)").start()
    wait_for(lambda: len(process.ticks(RSS)) >= 4, "there were four ticks")
    process.stop()
    times = {
        name: [at for at, _ in process.ticks(name)] for name in [USED, MEMORY, *DISK, RSS, CPU, PROCESS_CPU]
    }
    steps = {name: [at for at, _ in process.ticks(name, "step")] for name in times}
    # From 0 on, or behind those that a run of this name left on this machine before.
    assert steps[RSS] == list(range(steps[RSS][0], steps[RSS][0] + len(steps[RSS])))
    for name in times:
        first = 1 if name in (CPU, PROCESS_CPU) else 0
        assert times[name] == times[RSS][first:], name
        assert steps[name] == steps[RSS][first:], name
    # The clock is read in whole milliseconds.
    assert all(b - a >= 999 for a, b in itertools.pairwise(times[RSS])), times[RSS]


def sampler_threads(pid: int) -> dict[str, float]:
    """CPU seconds of each sampler thread of a process."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().startswith("truegauge-syste"):
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            found[task.name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def system_attributes(process: Sampled) -> set[str]:
    attributes = process.server.get(f"runs/{process.run_id()}")["attributes"]
    return {key for key in attributes if key.startswith("system/")}


def test_intervals_that_are_no_interval_are_thirty_seconds(sampled):
    values = ["nan", "inf", "", "30s"]
    running = [
        sampled(f"interval{i}", "{}", TRUEGAUGE_SYSTEM_METRICS_INTERVAL_SECS=value).start()
        for i, value in enumerate(values)
    ]
    # One that ticks every second measures that the others had time to tick again.
    clock = sampled("clock").start()
    wait_for(lambda: len(clock.ticks(RSS)) >= 4, "three seconds had passed")
    for value, process in zip(values, running, strict=True):
        (cpu,) = sampler_threads(process.process.pid).values()
        assert cpu <= 0.03, f"{value!r}: a waiting thread used {cpu} s in 3 s"
        process.stop()
        assert len(process.ticks(RSS)) == 1, value
    clock.stop()


@pytest.mark.parametrize("value", ["false", "0", "off"])
@pytest.mark.parametrize("variable", ["TRUEGAUGE_CAPTURE_SYSTEM_METRICS", "METRANA_CAPTURE_SYSTEM_METRICS"])
def test_a_switch_that_is_off_leaves_no_trace(sampled, variable, value):
    unset = {"TRUEGAUGE_CAPTURE_SYSTEM_METRICS": ""}
    process = sampled("off", **{**unset, variable: value}).start()
    run_id = wait_for(process.run_id, "the run was there")
    assert sampler_threads(process.process.pid) == {}
    process.stop()
    metrics = process.server.get(f"runs/{run_id}/metrics")["metrics"]
    assert [m["display"] for m in metrics if m["display"].startswith("system/")] == []
    assert list(system_attributes(process)) == []
    attributes = process.server.get(f"runs/{run_id}")["attributes"]
    (report,) = (value for key, value in attributes.items() if key.startswith("capture/"))
    assert json.loads(report)["state"] == "off", "and that is all that is said"


def test_a_switch_that_is_empty_is_on(sampled):
    process = sampled("on", TRUEGAUGE_CAPTURE_SYSTEM_METRICS="").start()
    wait_for(lambda: process.ticks(RSS), "the first tick arrived")
    assert len(sampler_threads(process.process.pid)) == 1
    process.stop()
    assert "system/platform" in system_attributes(process)


BUSY = """
import json, sys, threading, time, hashlib
import truegauge as tg
ended = threading.Event()
run = tg.init(project_name="blackbox", run_name=sys.argv[1], **eval(sys.argv[2]))
readings = []
def watch():
    while not ended.wait(0.002):
        readings.append((time.time() * 1000, time.process_time()))
def burn(block=bytes(1 << 20)):
    # Hashing a large block lets go of the interpreter's lock.
    while not ended.is_set():
        hashlib.sha256(block).digest()
threads = [threading.Thread(target=t) for t in (watch, burn, burn, burn)]
for thread in threads:
    thread.start()
print("started", flush=True)
sys.stdin.read()
ended.set()
for thread in threads:
    thread.join()
run.close()
print(json.dumps(readings))
"""


def test_busy_threads_count_as_the_process_own_clock_counts_them(sampled):
    process = sampled("busy", code=BUSY).start()
    wait_for(lambda: len(process.ticks(PROCESS_CPU)) >= 5, "there were five ticks with CPU")
    readings = json.loads(process.stop())
    ticks, times = process.ticks(PROCESS_CPU), [at for at, _ in process.ticks(RSS)]
    # The last ones may lie behind the last reading.
    times = [at for at in times if readings[0][0] <= at <= readings[-1][0]]
    first, last = (bisect.bisect_left(readings, [at, 0.0]) for at in (times[0], times[-1]))
    reported = sum(
        value * (at - before) for (at, value) in ticks for before in [_before(times, at)] if before
    )
    # A tick lies between two readings, which are far apart where the machine is busy with other things.
    least = readings[last - 1][1] - readings[first][1]
    most = readings[last][1] - readings[max(first - 1, 0)][1]
    # On two cores both are more than one.
    assert 0.97e5 * least <= reported <= 1.03e5 * most


def _before(times: list[float], at: float) -> float | None:
    """The tick before this one, when both are among the times."""
    index = times.index(at) if at in times else 0
    return times[index - 1] if index > 0 else None
