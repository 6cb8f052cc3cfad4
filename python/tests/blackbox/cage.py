"""A real cgroup of the host with a limit, for one process."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import pytest

LIMIT_BYTES = 1 << 30
QUOTA_CPUS = 0.5


def _mounts() -> list[tuple[str, set[str], Path]]:
    """Type, options and place of every mounted hierarchy."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            found.append((kind, set(options.split(",")), Path(left.split(" ")[4])))
    return found


class Cage:
    """Memory limited to 1 GiB and CPU to a part of a core, on whichever version controls them here."""

    def __init__(self, cpus: float = QUOTA_CPUS) -> None:
        self.quota_us = int(cpus * 100_000)
        name = f"truegauge-blackbox-{os.getpid()}"
        mounts = _mounts()
        v1 = {
            controller: next(
                (at for kind, options, at in mounts if kind == "cgroup" and controller in options), None
            )
            for controller in ("memory", "cpu", "cpuacct")
        }
        unified = next((at for kind, _, at in mounts if kind == "cgroup2"), None)
        self.is_unified = not all(v1.values())
        if self.is_unified and unified is None:
            pytest.fail("no cgroup filesystem with memory and cpu is mounted: mount one, or run on the host")
        places = dict.fromkeys(v1, unified) if self.is_unified else v1
        self.folders = {controller: place / name for controller, place in places.items()}
        try:
            self._make()
        except OSError as error:
            self.remove()
            pytest.fail(
                f"cannot make a cgroup with a limit: {error}. Run as root, with a writable /sys/fs/cgroup "
                "(in a container: `--privileged --cgroupns=host`)"
            )

    def _make(self) -> None:
        for folder in set(self.folders.values()):
            folder.mkdir()
        if self.is_unified:
            self._write("memory", "memory.max", LIMIT_BYTES)
            self._write("cpu", "cpu.max", f"{self.quota_us} 100000")
        else:
            self._write("memory", "memory.limit_in_bytes", LIMIT_BYTES)
            self._write("cpu", "cpu.cfs_period_us", 100_000)
            self._write("cpu", "cpu.cfs_quota_us", self.quota_us)

    def _write(self, controller: str, name: str, value: object) -> None:
        # Not `write_text`: it would make a file where the kernel shows none.
        with (self.folders[controller] / name).open("r+") as file:
            file.write(str(value))

    def enter(self, pid: int) -> None:
        """Moves a process in."""
        for folder in set(self.folders.values()):
            (folder / "cgroup.procs").write_text(str(pid))

    def enter_command(self) -> str:
        """Shell that moves the shell itself in."""
        return " && ".join(f"echo $$ > '{folder}/cgroup.procs'" for folder in set(self.folders.values()))

    def _field(self, controller: str, name: str, key: str) -> int:
        lines = (self.folders[controller] / name).read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.split()[0] == key)

    def cpu_seconds(self) -> float:
        if self.is_unified:
            return self._field("cpu", "cpu.stat", "usage_usec") / 1e6
        return int((self.folders["cpuacct"] / "cpuacct.usage").read_text()) / 1e9

    def used_bytes(self) -> int:
        usage = "memory.current" if self.is_unified else "memory.usage_in_bytes"
        key = "inactive_file" if self.is_unified else "total_inactive_file"
        return int((self.folders["memory"] / usage).read_text()) - self._field("memory", "memory.stat", key)

    def remove(self) -> None:
        """Removes the cgroups once the kernel has let go of the process in them."""
        end = time.monotonic() + 10
        for folder in set(self.folders.values()):
            while folder.is_dir() and time.monotonic() < end:
                with contextlib.suppress(OSError):
                    folder.rmdir()
                    break
                time.sleep(0.01)
