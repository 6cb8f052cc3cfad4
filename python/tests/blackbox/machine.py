"""A made-up machine: files that are mounted over the kernel's for one process and nobody else.

Only the process in question sees them, in a mount namespace of its own (`unshare`). The package under test
is the installed one, without any hook.
"""

from __future__ import annotations

import functools
import subprocess
import threading
import time
from pathlib import Path

import pytest

GIB = 1 << 30
ENTER = """
mount --bind "$TG_TREE/cgroup" /sys/fs/cgroup
mount --bind "$TG_TREE/meminfo" /proc/meminfo
mount --bind "$TG_TREE/self_cgroup" /proc/$$/cgroup
mount --bind "$TG_TREE/mountinfo" /proc/$$/mountinfo
exec "$@"
"""


@functools.cache
def namespace() -> tuple[str, ...]:
    """The command that gives a process mounts of its own: as root, else in a user namespace."""
    refusals = []
    for flags in (("-m",), ("-r", "-m")):
        command = ("unshare", *flags, "--propagation", "private")
        try:
            tried = subprocess.run(
                [*command, "mount", "-t", "tmpfs", "none", "/mnt"],
                capture_output=True,
                text=True,
                check=False,
            )
        except FileNotFoundError:
            pytest.fail("there is no `unshare`: install util-linux (`apt-get install util-linux mount`)")
        if tried.returncode == 0:
            return command
        refusals.append(f"`{' '.join(command)}`: {tried.stderr.strip()}")
    pytest.fail(
        "no mount namespace can be made, so made-up machines cannot be tested: run as root, or allow user "
        "namespaces (`sysctl kernel.unprivileged_userns_clone=1`, "
        f"`sysctl kernel.apparmor_restrict_unprivileged_userns=0`). Tried {'; '.join(refusals)}"
    )
    return ()


class Machine:
    """Files of a machine with 64 GiB of memory, half of it free, and no cgroups yet."""

    def __init__(self, folder: Path, membership: str) -> None:
        self.folder = folder
        self.cgroup = folder / "cgroup"
        self.cgroup.mkdir(parents=True)
        self.mounts: list[str] = []
        (folder / "self_cgroup").write_text(membership)
        (folder / "meminfo").write_text("MemTotal:       67108864 kB\nMemAvailable:   33554432 kB\n")
        (folder / "mountinfo").write_text("")

    def mount(self, kind: str, root: str, point: str, options: str) -> None:
        """Adds a hierarchy; `point` lies under `/sys/fs/cgroup`."""
        number = 100 + len(self.mounts)
        place = f"/sys/fs/cgroup/{point}".rstrip("/")
        self.mounts.append(
            f"{number} 99 0:{number} {root} {place} rw,nosuid shared:7 - {kind} {kind} rw,{options}"
        )
        (self.folder / "mountinfo").write_text("\n".join(self.mounts) + "\n")

    def write(self, path: str, text: str) -> Path:
        """Replaces a file of the cgroup tree, so that no reader ever sees half of it."""
        file = self.cgroup / path
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(f".{file.name}.new")
        draft.write_text(text)
        draft.replace(file)
        return file

    def write_all(self, path: str, files: dict[str, str]) -> None:
        for name, text in files.items():
            self.write(f"{path}/{name}", text)

    def command(self, *command: str) -> list[str]:
        """The command that runs `command` on this machine."""
        return [*namespace(), "sh", "-e", "-c", ENTER, "sh", *command]

    def environment(self) -> dict[str, str]:
        return {"TG_TREE": str(self.folder)}


class Mover:
    """Moves CPU counters at a fixed rate per second until it is left."""

    def __init__(self) -> None:
        self.counters: list[tuple[Machine, str, str, float, float]] = []
        self.rates: dict[tuple[str, str], float] = {}
        self.ended = threading.Event()
        self.lock = threading.Lock()
        self.thread = threading.Thread(target=self._move, daemon=True)

    def add(self, machine: Machine, path: str, template: str, unit: float, cpus: float) -> None:
        """`template` with `{}` for the CPU time, `unit` of it to a second, growing by `cpus` a second."""
        with self.lock:
            # Counters start somewhere, and never go back.
            old = [c for c in self.counters if c[0] is machine and c[1] == path]
            start = self._value(old[0]) if old else 1000.0
            self.counters = [c for c in self.counters if c not in old]
            self.counters.append((machine, path, template, unit, cpus))
            self.rates[str(machine.folder), path] = start - cpus * time.monotonic()
            self._write(self.counters[-1])

    def _value(self, counter) -> float:
        machine, path, _, _, cpus = counter
        return self.rates[str(machine.folder), path] + cpus * time.monotonic()

    def _write(self, counter) -> None:
        machine, path, template, unit, _ = counter
        machine.write(path, template.format(int(self._value(counter) * unit)))

    def _move(self) -> None:
        while not self.ended.wait(0.002):
            with self.lock:
                for counter in self.counters:
                    self._write(counter)

    def __enter__(self) -> Mover:
        self.thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.ended.set()
        self.thread.join()
