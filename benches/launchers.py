"""Eight ranks on eight GPUs under real launchers: is each GPU, and the node, reported exactly once?

Starts a server and a driver of its own that plays eight GPUs, then the same small training script under
every launcher that is installed: processes by hand, Open MPI's `mpirun`, MPICH's `mpiexec.hydra`,
`torchrun`, and, where a Slurm cluster of this machine answers, `srun` and both MPIs inside an `sbatch`
script. Where a launcher lets the others live, the process that speaks for the node and a GPU's owner are
killed and the gap is measured. Prints one row for each; exits with 1 when something was reported twice,
not at all, or by the wrong rank.

    benches/launchers.py --python .venv/bin/python --driver target/release/libfake_nvml.so
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RANKS = 8
INTERVAL_SECONDS = 1.0
DEADLINE_SECONDS = 90
SECONDS_WATCHED = 6
RANK = """
import os, sys, time
import truegauge as tg

tg.init(project_name="launchers", run_name=sys.argv[1])
while not os.path.exists(sys.argv[2]):
    tg.log("loss", 0.5)
    time.sleep(0.1)
tg.close()
"""
GPU = """
[[gpu]]
uuid = "GPU-{index:08}"
name = "Fake H100"
bus_id = "00000000:{bus:02X}:00.0"
compute_capability = [9, 0]
mig = false
[gpu.values]
utilization = {value}
utilization_memory = 1
memory_total = 85899345920
memory_used = 1073741824
memory_reserved = 0
temperature = 40
power_mw = 100000
sm_mhz = 1980
"""


def wait_for(condition, what: str):
    end = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.1)
    raise TimeoutError(f"{what}: not within {DEADLINE_SECONDS} s")


class Bench:
    """A server, a driver, and what the ranks are given."""

    def __init__(self, given: argparse.Namespace, folder: Path) -> None:
        self.folder, self.python = folder, given.python
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listen = f"127.0.0.1:{listener.getsockname()[1]}"
        self.url = f"http://{listen}"
        driver = folder / "driver"
        driver.mkdir()
        shutil.copy(given.driver, driver / "libnvidia-ml.so.1")
        gpus = [GPU.format(index=i, bus=0x1B + i, value=10 * i + 1) for i in range(RANKS)]
        scenario = 'driver_version = "570.86.15"\nsteady = true\n' + "".join(gpus)
        (driver / "scenario.toml").write_text(scenario)
        (folder / "rank.py").write_text(RANK)
        self.environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(driver),
            "TRUEGAUGE_URL": self.url,
            "TRUEGAUGE_SPOOL_DIR": str(folder / "spool"),
            "TRUEGAUGE_SYSTEM_METRICS_INTERVAL_SECS": str(INTERVAL_SECONDS),
            "TRUEGAUGE_CAPTURE_SYSTEM_METRICS": "true",
        }
        log = (folder / "server.log").open("wb")
        command = [given.binary, "up", "--data-dir", folder / "data", "--listen", listen]
        quiet = {**os.environ, "TRUEGAUGE_OWN_METRICS": "false", "HOME": str(folder)}
        self.server = subprocess.Popen(command, stdout=log, stderr=log, env=quiet)
        wait_for(lambda: self.get("runs") is not None, "the server was ready")

    def get(self, path: str, **query):
        """The server's answer; None for an error."""
        parameters = "?" + urllib.parse.urlencode(query) if query else ""
        try:
            with urllib.request.urlopen(f"{self.url}/api/tg/v1/{path}{parameters}", timeout=30) as answer:
                return json.load(answer)
        except (urllib.error.URLError, OSError):
            return None

    def run_id(self, name: str) -> str | None:
        """The id of a run, once it is known."""
        return next((r["run_id"] for r in self.get("runs")["runs"] if r["run"] == name), None)

    def reports(self, run_id: str) -> list[dict]:
        """What every rank last said of its capture."""
        attributes = self.get(f"runs/{run_id}")["attributes"]
        return [json.loads(v) for k, v in attributes.items() if k.startswith("capture/")]

    def series(self, run_id: str, metric: str, axis: str) -> list[dict]:
        """Points of a metric, by series."""
        found = self.get(f"runs/{run_id}/points", metric=metric, axis=axis, buckets=2000)
        return found["series"] if found else []


class Watched:
    """One run under one launcher."""

    def __init__(self, bench: Bench, launcher: str) -> None:
        self.bench, self.name = bench, launcher.replace(" ", "-")
        self.stop = bench.folder / f"stop-{self.name}"
        self.command = [bench.python, str(bench.folder / "rank.py"), self.name, str(self.stop)]
        self.faults: list[str] = []
        self.killed: int | None = None

    def owners(self) -> dict[int, int]:
        """The rank that owns each GPU, as the ranks report it now."""
        found = {}
        for report in self.bench.reports(self.run_id):
            for device in report["devices"]:
                if device["role"] == "owned":
                    found[device["gpu"]] = report["rank"]
        return found

    def speaker(self) -> dict | None:
        """The rank that speaks for the node and lives."""
        for report in self.bench.reports(self.run_id):
            if report["node"] == "reports" and report["rank"] != self.killed:
                return report
        return None

    def settle(self) -> None:
        """Waits until every rank has its role, and sees whether it is the right one."""
        self.run_id = wait_for(lambda: self.bench.run_id(self.name), f"{self.name}: a run")
        wait_for(lambda: len(self.bench.reports(self.run_id)) >= RANKS, f"{self.name}: {RANKS} ranks report")
        wait_for(lambda: len(self.owners()) == RANKS and self.speaker(), f"{self.name}: all is owned")
        if self.owners() != {rank: rank for rank in range(RANKS)}:
            self.faults.append(f"owners by GPU: {self.owners()}")

    def kill_the_speaker(self) -> None:
        """Kills the node's reporter, which owns a GPU too."""
        before = self.speaker()
        os.kill(before["pid"], signal.SIGKILL)
        self.killed = before["rank"]
        wait_for(self.speaker, f"{self.name}: another one speaks for the node")

    def judge(self) -> dict[str, object]:
        """What the server has of it, and what is wrong with that."""
        gpus = self.bench.series(self.run_id, "system/gpu/utilization", "step")
        labels = sorted(s["labels"]["gpu"] for s in gpus)
        if labels != [str(gpu) for gpu in range(RANKS)]:
            self.faults.append(f"GPU series: {labels}")
        for series in gpus:
            if set(series["last"]) != {10 * int(series["labels"]["gpu"]) + 1}:
                self.faults.append(f"GPU {series['labels']['gpu']}: values {set(series['last'])}")
        node = self.bench.series(self.run_id, "system/memory/used_bytes", "step")
        if len(node) != 1:
            self.faults.append(f"{len(node)} series of the node")
        processes = self.bench.series(self.run_id, "system/process/rss_bytes", "step")
        if len(processes) != RANKS:
            self.faults.append(f"{len(processes)} series of processes")
        twice = 0
        for series in [*gpus, *node, *processes]:
            twice += sum(count - 1 for count in series["count"])
            if any(b <= a for a, b in zip(series["x"], series["x"][1:], strict=False)):
                self.faults.append(f"a step goes back: {series['labels']}")
        if twice:
            self.faults.append(f"{twice} points share a step")
        times = self.bench.series(self.run_id, "system/memory/used_bytes", "time")
        gaps = [b - a for s in times for a, b in zip(s["x"], s["x"][1:], strict=False)]
        return {
            "launcher": self.name,
            "GPUs": len(gpus),
            "node": len(node),
            "processes": len(processes),
            "points": sum(sum(s["count"]) for s in [*gpus, *node, *processes]),
            "twice": twice,
            "longest gap of the node, ticks": round(max(gaps, default=0) / 1000 / INTERVAL_SECONDS, 1),
            "killed": "" if self.killed is None else f"rank {self.killed}",
            "faults": "; ".join(self.faults) or "none",
        }


def watch(bench: Bench, launcher: str, start, *, kills: bool) -> dict[str, object]:
    watched = Watched(bench, launcher)
    processes = start(watched.command, bench.environment)
    try:
        watched.settle()
        time.sleep(SECONDS_WATCHED)
        if kills:
            watched.kill_the_speaker()
            time.sleep(SECONDS_WATCHED)
    except TimeoutError as error:
        return {"launcher": watched.name, "faults": str(error)}
    finally:
        watched.stop.touch()
        for process in processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
    return watched.judge()


def by_hand(command: list[str], environment: dict[str, str]) -> list[subprocess.Popen]:
    def rank(number: int) -> dict[str, str]:
        return {"RANK": str(number), "LOCAL_RANK": str(number), "WORLD_SIZE": str(RANKS)}

    return [subprocess.Popen(command, env={**environment, **rank(n)}) for n in range(RANKS)]


def under(*launcher: str):
    return lambda command, environment: [subprocess.Popen([*launcher, *command], env=environment)]


def in_batch(*launcher: str):
    """Inside a script that Slurm runs as a task of its own."""

    def start(command: list[str], environment: dict[str, str]) -> list[subprocess.Popen]:
        line = " ".join([*launcher, *command])
        script = textwrap.dedent(f"""\
            #!/bin/sh
            exec {line}
        """)
        path = Path(command[1]).with_name(f"batch-{command[2]}.sh")
        path.write_text(script)
        submit = ["sbatch", "--wait", f"--ntasks={RANKS}", "--overcommit", f"--output={path}.out", str(path)]
        return [subprocess.Popen(submit, env=environment, stdout=subprocess.DEVNULL)]

    return start


def launchers() -> list[tuple[str, object, bool]]:
    """Name, how it starts, and whether the other ranks outlive one."""
    found = [("by hand", by_hand, True)]
    mpirun = (
        "mpirun.openmpi",
        "--oversubscribe",
        "--allow-run-as-root",
        "--enable-recovery",
        "-np",
        str(RANKS),
    )
    hydra = ("mpiexec.hydra", "-launcher", "fork", "-n", str(RANKS))
    if shutil.which(mpirun[0]):
        found.append(("mpirun of Open MPI", under(*mpirun), True))
    if shutil.which(hydra[0]):
        found.append(("mpiexec of MPICH", under(*hydra), False))
    if shutil.which("torchrun"):
        # Both said, since Torch 1.13 stumbles over its own defaults under Python 3.11.
        torchrun = ("torchrun", f"--nproc_per_node={RANKS}", "--no_python", "--redirects=1", "--tee=1")
        found.append(("torchrun", under(*torchrun), False))
    if shutil.which("sinfo") and subprocess.run(["sinfo", "-h"], capture_output=True, check=False).stdout:
        srun = ("srun", f"--ntasks={RANKS}", "--overcommit", "--kill-on-bad-exit=0", "--quiet")
        found.append(("srun", under(*srun), True))
        if shutil.which(mpirun[0]):
            found.append(("mpirun in sbatch", in_batch(*mpirun), True))
        if shutil.which(hydra[0]):
            found.append(("mpiexec in sbatch", in_batch(*hydra), False))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has the package")
    parser.add_argument("--binary", default=ROOT / "target/release/truegauge", type=Path)
    parser.add_argument("--driver", default=ROOT / "target/release/libfake_nvml.so", type=Path)
    parser.add_argument("--only", help="names of launchers that contain this text")
    given = parser.parse_args()
    given.python = str(Path(given.python).absolute())
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(given, Path(folder))
        try:
            for name, start, kills in launchers():
                if not given.only or given.only in name:
                    rows.append(watch(bench, name, start, kills=kills))
                    print(json.dumps(rows[-1]), flush=True)
        finally:
            bench.server.terminate()
            bench.server.wait()
    return int(any(row["faults"] != "none" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
