"""For how long a thread could have gone on and was not let onto a CPU.

A thread that waits for other ranks sleeps. One that the kernel does not let run, because its CPU quota is
used up or other programs have the CPUs, holds up the others itself, also in a collective operation.
"""

from __future__ import annotations

import os
import threading

_PATH = "/proc/thread-self/schedstat"
_BYTES_MAX = 96
_is_known = True


class _File:
    """The open file of a thread; a child of a fork has those of its parent, which it leaves alone."""

    number = -1

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.number = os.open(_PATH, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self.number >= 0 and self.pid == os.getpid():
            os.close(self.number)


_own = threading.local()


def delayed_seconds() -> float:
    """For how long so far this thread has been ready to run and did not, seconds; 0 where that is not known.

    Linux says it of every thread, in nanoseconds, beside the time that it ran.
    """
    global _is_known
    if not _is_known:
        return 0.0
    try:
        file = getattr(_own, "file", None)
        if file is None or file.pid != os.getpid():
            file = _own.file = _File()
        return int(os.pread(file.number, _BYTES_MAX, 0).split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        _is_known = False
        return 0.0


def waited_seconds(elapsed: float, delayed_before: float) -> float:
    """What of a wait was for others: all but the time in which this thread could have gone on.

    Args:
        elapsed: How long it took, seconds.
        delayed_before: `delayed_seconds()` when it began.
    """
    return max(0.0, elapsed - max(0.0, delayed_seconds() - delayed_before))
