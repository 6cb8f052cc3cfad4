"""What a process costs, as the kernel counts it."""

from __future__ import annotations

import os
from pathlib import Path


def cpu_seconds(pid: int) -> float:
    """User and system CPU of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mib(pid: int) -> float:
    """Largest resident size so far."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    line = next(line for line in lines if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def written_bytes(pid: int) -> int:
    """Bytes that the process has had written to the disk so far."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    line = next(line for line in lines if line.startswith("write_bytes"))
    return int(line.split()[1])


def disk_bytes(folder: Path) -> int:
    """Bytes on the disk of all files beneath `folder`."""
    found = 0
    for path in folder.rglob("*"):
        try:
            if path.is_file():
                found += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue  # Files come and go beneath a running server.
    return found
