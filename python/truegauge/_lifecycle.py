"""What happens to open runs when a process ends, forks or is told to stop.

- End of the process: every open run of this process is closed, within the bound of `close`. A run is
  `failed` when an exception reached the top, else `finished`.
- SIGTERM: the same, then the default action, so the exit status is the one the sender expects. Only
  where nobody else handles SIGTERM and only when `init()` runs in the main thread. Python calls a
  handler between two instructions: a main thread inside a long call of C code answers after it.
- Ctrl-C: nothing is caught; an uncaught `KeyboardInterrupt` is an exception like others.
- Fork: a child inherits nothing. Its first call to a run begins a session of its own; a child that
  never calls one does nothing at all.
"""

from __future__ import annotations

import atexit
import os
import sys
from _thread import get_ident
from contextlib import suppress
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, TracebackType

    from truegauge._run import Run
    from truegauge.training._setup import Telemetry

open_runs: list[Run] = []
"""Runs that `close()` or `shutdown()` has not ended, oldest first."""
open_telemetry: list[Telemetry] = []
"""Training telemetry that exports and that `shutdown()` has not ended."""

_uncaught: str | None = None
_installed = False
_owns_sigterm = False
_masks: dict[int, set[int]] = {}
"""Signals that a thread had blocked, while it forks."""
_watches_multiprocessing = False


def install() -> None:
    """Makes the process's end known to its runs.

    The second and later calls only look again whether SIGTERM is free.
    """
    global _installed
    _take_sigterm()
    _watch_child_of_multiprocessing()
    if _installed:
        return
    _installed = True
    atexit.register(close_all)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=_before_fork, after_in_parent=_let_sigterm_through, after_in_child=_after_fork
        )
    previous = sys.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        global _uncaught
        if not is_interactive():
            _uncaught = describe(error)
        previous(kind, error, trace)

    sys.excepthook = excepthook


def is_interactive() -> bool:
    """Whether a person types here: a notebook, IPython or the interpreter's prompt."""
    if hasattr(sys, "ps1"):
        return True
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None


def describe(error: BaseException) -> str:
    """An exception in a line of at most 500 characters."""
    try:
        text = str(error)
    except Exception:  # its own `__str__` is broken
        text = ""
    name = type(error).__name__
    return (f"{name}: {text}" if text else name)[:500]


def close_all(reason: str | None = None) -> None:
    """Ends this process's open runs within the bound of one `close`.

    Args:
        reason: Why they failed; by default the exception that ends the process, if one does.
    """
    error = sys.exc_info()[1]
    if reason is None and error is not None and not is_clean_exit(error):
        reason = describe(error)
    reason = reason or _uncaught
    started = monotonic()
    # First, since its last values may go to a run.
    for telemetry in [telemetry for telemetry in open_telemetry if telemetry.is_own]:
        with suppress(Exception, KeyboardInterrupt):
            telemetry.shutdown()
    for run in [run for run in open_runs if run.is_own]:
        left = max(0.5, run.close_timeout_secs - (monotonic() - started))
        # The process is ending: nothing may stop it.
        with suppress(Exception, KeyboardInterrupt):
            run._end("failed" if reason else "finished", reason or "", left)


def is_clean_exit(error: BaseException) -> bool:
    """Whether an exception is `sys.exit()` with a status of success."""
    return isinstance(error, SystemExit) and error.code in (None, 0)


def _take_sigterm() -> None:
    global _owns_sigterm
    import signal
    import threading

    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _on_sigterm)
        _owns_sigterm = True


def _on_sigterm(number: int, _frame: FrameType | None) -> None:
    import signal

    close_all("ended by SIGTERM")
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _before_fork() -> None:
    """Before a fork: holds SIGTERM back until the child has let go of the handler.

    Python forgets in a child which signals came before it knew that it is one: a SIGTERM of those first
    moments would be lost there, and whoever sent it would wait for ever.
    """
    _watch_multiprocessing()
    if _owns_sigterm:
        import signal

        _masks[get_ident()] = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _let_sigterm_through() -> None:
    mask = _masks.pop(get_ident(), None)
    if mask is not None:
        import signal

        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _after_fork() -> None:
    """In a forked child: lets go of everything that is the parent's."""
    global _uncaught, _owns_sigterm
    _uncaught = None
    for run in open_runs:
        run.after_fork()
    for telemetry in open_telemetry:
        telemetry.after_fork()
    if _owns_sigterm:
        import signal

        _owns_sigterm = False
        if signal.getsignal(signal.SIGTERM) is _on_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _let_sigterm_through()


def _watch_multiprocessing() -> None:
    """Before a fork: has children of `multiprocessing` close their runs.

    They leave by `os._exit`, past `atexit`, but run the finalizers of that package.
    """
    global _watches_multiprocessing
    util = sys.modules.get("multiprocessing.util")
    if util is not None and not _watches_multiprocessing:
        _watches_multiprocessing = True
        util.register_after_fork(close_all, _close_at_end_of_child)


def _watch_child_of_multiprocessing() -> None:
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        _close_at_end_of_child(None)


def _close_at_end_of_child(_registered: object) -> None:
    import multiprocessing.util

    multiprocessing.util.Finalize(None, close_all, exitpriority=-100)
