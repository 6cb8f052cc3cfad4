"""Our sampler and metrana's, each beside a main thread that is busy with Python, on this machine.

Counts what one tick costs its own thread: CPU, time until it is done, system calls. Run it with a Python that
has both packages; `strace` counts the calls, and they are left out where it is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

WARM_SECONDS = 3
CHILD_SECONDS = 120
OURS = "truegauge-syste"
"""The kernel keeps 15 characters of a thread's name."""


def our_thread() -> int:
    """Starts our sampler; its thread."""
    import truegauge as tg

    options = {"offline": True, "capture_system_metrics": True, "system_metrics_interval_secs": 1.0}
    tg.init(project_name="bench", run_name="sampler", **options)
    end = time.monotonic() + WARM_SECONDS
    while time.monotonic() < end:
        for task in Path("/proc/self/task").iterdir():
            if (task / "comm").read_text().strip() == OURS:
                return int(task.name)
    raise SystemExit(f"no thread is called `{OURS}`: does this build capture?")


def their_thread(walls: list[float]) -> int:
    """Starts metrana's sampler; its thread. The time of each tick goes to `walls`."""
    import metrana
    from metrana.system import sampler

    sample = sampler.SystemMetricsSampler._sample_once

    def timed(self) -> None:
        begin = time.perf_counter()
        sample(self)
        walls.append(time.perf_counter() - begin)

    sampler.SystemMetricsSampler._sample_once = timed
    names = {"workspace_name": "w", "project_name": "bench", "run_name": "sampler", "api_key": "k"}
    metrana.init(
        **names,
        init_mode="offline",
        disk=os.environ["HOME"],
        log_level="OFF",
        system_metrics_interval_secs=1.0,
    )
    (thread,) = [one for one in threading.enumerate() if one.name == "metrana-system-metrics"]
    return thread.native_id


def schedule(thread: str) -> tuple[int, int]:
    """CPU of a thread and how long it waited for a core, nanoseconds."""
    cpu, waited, _ = Path(f"/proc/self/task/{thread}/schedstat").read_text().split()
    return int(cpu), int(waited)


def child(which: str, seconds: int) -> None:
    """Keeps the main thread busy, prints what the sampler's cost meanwhile, goes on for `strace`.

    Ours waits for nothing but a core, so its ticks take their CPU and that; theirs waits for the interpreter
    too, and is timed from inside.
    """
    walls: list[float] = []
    thread = str(our_thread() if which == "truegauge" else their_thread(walls))

    def busy(for_seconds: float) -> None:
        end = time.monotonic() + for_seconds
        while time.monotonic() < end:
            sum(range(1000))

    busy(WARM_SECONDS)
    del walls[:]
    before = schedule(thread)
    busy(seconds)
    cpu, waited = (now - then for now, then in zip(schedule(thread), before, strict=True))
    wall_ms = statistics.median(walls) * 1e3 if walls else (cpu + waited) / seconds / 1e6
    print(json.dumps({"thread": int(thread), "cpu_ms": cpu / seconds / 1e6, "wall_ms": wall_ms}), flush=True)
    busy(CHILD_SECONDS)


def calls(thread: int, seconds: int) -> float | None:
    """System calls a second of a thread."""
    if shutil.which("strace") is None:
        return None
    command = ["timeout", "-s", "INT", str(seconds), "strace", "-c", "-p", str(thread)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 30, check=False).stderr
    totals = [line.split() for line in told.splitlines() if line.endswith("total")]
    return int(totals[0][3]) / seconds if totals else None


def measure(which: str, seconds: int) -> dict[str, float | None]:
    """What a tick of one sampler costs."""
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "HOME": home, "TRUEGAUGE_SPOOL_DIR": home}
        command = [sys.executable, "-W", "ignore", __file__, "--child", which, "--seconds", str(seconds)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
            try:
                found = json.loads(process.stdout.readline())
                found["calls"] = calls(found["thread"], seconds)
            finally:
                process.kill()
    return found


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=15, help="how long each is watched")
    parser.add_argument("--child", choices=["truegauge", "metrana"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child, arguments.seconds)
        return
    ours, theirs = (measure(which, arguments.seconds) for which in ("truegauge", "metrana"))
    print(f"{'one tick, main thread busy':<34} {'truegauge':>10} {'metrana':>10} {'ratio':>7}")
    rows = (("CPU, ms", "cpu_ms"), ("until it is done, ms", "wall_ms"), ("system calls", "calls"))
    for what, key in rows:
        if ours[key] is not None and theirs[key] is not None:
            print(f"{what:<34} {ours[key]:>10.3f} {theirs[key]:>10.3f} {ours[key] / theirs[key]:>7.3f}")


if __name__ == "__main__":
    main()
