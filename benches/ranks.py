"""What autocapture costs a node with many ranks: CPU of all of them together, as a share of one core.

`python benches/ranks.py [--ranks 64] [--gpus 8] [--seconds 60]`. The ranks are Python processes that do
nothing but `init`, on a machine with a fake driver (`cargo build --release -p fake-nvml`) whose GPUs have
every family of readings. Three jobs, one after the other: without autocapture, with a sample every 30 s, and
every second. CPU is read thread by thread, in nanoseconds, from the kernel's scheduler.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from process import cpu_seconds

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
import demo  # noqa: E402  the same way of starting a server

BIN = ROOT / "target/release/truegauge"
DRIVER = ROOT / "target/release/libfake_nvml.so"
WHOLE_GPU = ROOT / "crates/collect/examples/whole_gpu.toml"
RANK = """
import sys
import truegauge as tg
run = tg.init(project_name="bench", run_name=sys.argv[1])
print("begun", flush=True)
sys.stdin.read()
"""
THREADS = {"truegauge-syste": "sampler", "truegauge-send": "delivery", "tg-gpu": "driver"}
"""What threads are for, by how their names begin."""


def machine(folder: Path, gpus: int) -> dict[str, str]:
    """Puts the driver into a folder; the environment in which it is found."""
    folder.mkdir()
    shutil.copy(DRIVER, folder / "libnvidia-ml.so.1")
    head = 'driver_version = "570.86.15"\nsteady = true\n'
    device = WHOLE_GPU.read_text()
    cards = [f'[[gpu]]\nuuid = "GPU-{index}"\nname = "Fake H100"\n{device}\n' for index in range(gpus)]
    (folder / "scenario.toml").write_text(head + "".join(cards))
    return {"LD_LIBRARY_PATH": str(folder)}


def cpu_by_part(pids: list[int]) -> dict[str, float]:
    """CPU seconds so far of all these processes, by what their threads are for."""
    found: dict[str, float] = defaultdict(float)
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            name = (task / "comm").read_text().strip()
            part = next((part for begin, part in THREADS.items() if name.startswith(begin)), "Python")
            found[part] += int((task / "schedstat").read_text().split()[0]) / 1e9
    return found


def private_mib(pid: int) -> float:
    """Memory that belongs to this process alone."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) / 1024


def start(ranks: int, name: str, environment: dict[str, str]) -> list[subprocess.Popen]:
    """Starts the ranks and waits until all have a run."""
    processes = []
    for rank in range(ranks):
        place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", RANK, name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **environment, **place},
            )
        )
    for process in processes:
        process.stdout.readline()
    return processes


def samples(url: str, name: str) -> int:
    """Points of the machine's series that the server has of a run."""
    rows = demo.get(f"{url}/api/tg/v1/runs")["runs"]
    run_id = next(row["run_id"] for row in rows if row["run"] == name)
    metrics = demo.get(f"{url}/api/tg/v1/runs/{run_id}/metrics")["metrics"]
    return sum(one["points"] for one in metrics if one["display"] == "system/process/rss_bytes")


def measure(args: argparse.Namespace, folder: Path, url: str, server: int, interval: int) -> None:
    """One job with a sample every `interval` seconds, none at 0; prints its figures."""
    name = f"every-{interval}-{os.getpid()}"
    environment = {
        "HOME": str(folder),
        "TRUEGAUGE_URL": url,
        "TRUEGAUGE_SPOOL_DIR": str(folder / "spool"),
        "TRUEGAUGE_CAPTURE_SYSTEM_METRICS": "true" if interval else "false",
        "TRUEGAUGE_SYSTEM_METRICS_INTERVAL_SECS": str(interval or 30),
        **machine(folder / name, args.gpus),
    }
    processes = start(args.ranks, name, environment)
    pids = [process.pid for process in processes]
    try:
        # Files are opened, and roles settled, in the first samples.
        time.sleep(6)
        taken = samples(url, name)
        before, its, begin = cpu_by_part(pids), cpu_seconds(server), time.monotonic()
        time.sleep(args.seconds)
        after, seconds = cpu_by_part(pids), time.monotonic() - begin
        taken, its = samples(url, name) - taken, cpu_seconds(server) - its
        parts = {part: (after[part] - before[part]) / seconds for part in sorted(after)}
        memory = sum(private_mib(pid) for pid in pids) / len(pids)
    finally:
        for process in processes:
            process.kill()
            process.wait()
        # Locks would stay for a week, in case that the run goes on.
        for locks in Path(f"/dev/shm/truegauge-claims-{os.geteuid()}").glob(f"{name}-*"):
            shutil.rmtree(locks, ignore_errors=True)
    title = f"a sample every {interval} s" if interval else "without autocapture"
    each = f", {sum(parts.values()) * seconds / taken * 1e6:,.0f} us a sample" if taken else ""
    named = ", ".join(f"{part} {share:.3%}" for part, share in parts.items())
    print(f"{title:<24} {sum(parts.values()):.2%} of a core{each} ({taken} samples; {named})")
    print(f"{'':<24} {memory:.1f} MiB of its own a rank; the server beside it {its / seconds:.2%} of a core")


def main() -> int:
    """Runs the three jobs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=64, help="processes (default: 64)")
    parser.add_argument("--gpus", type=int, default=8, help="GPUs (default: 8)")
    parser.add_argument("--seconds", type=int, default=60, help="how long each job is measured (default: 60)")
    parser.add_argument("--intervals", type=int, nargs="*", default=[0, 30, 1], help="seconds; 0 is off")
    args = parser.parse_args()
    if not DRIVER.exists():
        raise SystemExit(f"there is no `{DRIVER}`: `cargo build --release -p fake-nvml`")
    with tempfile.TemporaryDirectory(prefix="truegauge-ranks-", dir=ROOT / "target") as folder:
        server, url = demo.start_server(BIN, Path(folder) / "data", Path(folder) / "server.log")
        print(f"{args.ranks} ranks on {args.gpus} GPUs, {args.seconds} s each")
        try:
            for interval in args.intervals:
                measure(args, Path(folder), url, server.pid, interval)
        finally:
            demo.stop(server)
    return 0


if __name__ == "__main__":
    sys.exit(main())
