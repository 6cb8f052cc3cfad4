"""A machine with GPUs for tests: the fake driver, loaded by the name of the real one."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = "libfake_nvml.so"
GPU = """
[[gpu]]
uuid = "GPU-{index:08}"
name = "Fake H100"
bus_id = "00000000:{bus:02X}:00.0"
compute_capability = [9, 0]
mig = {mig}
[gpu.values]
utilization = {utilization}
utilization_memory = 1
memory_total = 85899345920
memory_used = 1073741824
memory_reserved = 0
temperature = {temperature}
power_mw = 100000
sm_mhz = 1980
"""


def driver(folder: Path, count: int, mig: tuple[int, ...] = ()) -> dict[str, str]:
    """Puts a driver with `count` GPUs into a folder; the environment in which it is found.

    Utilisation tells which GPU it is: ten times its index and one. The run's name is nobody else's, since
    runs of one name meet in `/dev/shm` whoever starts them.
    """
    built = [ROOT / "target" / profile / LIBRARY for profile in ("release", "debug")]
    found = [path for path in built if path.exists()]
    if not found:
        pytest.fail("there is no fake driver: `cargo build -p fake-nvml`")
    folder.mkdir(parents=True, exist_ok=True)
    newest = max(found, key=lambda path: path.stat().st_mtime)
    shutil.copy(newest, folder / "libnvidia-ml.so.1")
    cards = [
        GPU.format(
            index=index,
            bus=0x1B + index,
            mig=str(index in mig).lower(),
            utilization=10 * index + 1,
            temperature=40 + index,
        )
        for index in range(count)
    ]
    (folder / "scenario.toml").write_text('driver_version = "570.86.15"\n' + "".join(cards))
    return {"LD_LIBRARY_PATH": str(folder), **ON, "TRUEGAUGE_RUN": f"run-{uuid.uuid4().hex}"}


ON = {
    "TRUEGAUGE_CAPTURE_SYSTEM_METRICS": "true",
    "TRUEGAUGE_SYSTEM_METRICS_INTERVAL_SECS": "1",
}
"""Autocapture at its fastest."""
