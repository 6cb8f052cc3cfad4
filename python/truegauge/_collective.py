"""A collective operation that a program tells of itself."""

from __future__ import annotations

from time import perf_counter

from truegauge._runnable import delayed_seconds, waited_seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

    from truegauge._run import Run


class Collective:
    """One collective operation, entered; made by `Run.collective`.

    As a context manager it is done when the block is left, and the block's time is a wait of the step that is
    open. A block left by an exception was not done.
    """

    __slots__ = ("_delayed", "_group", "_number", "_run", "_started")

    def __init__(self, run: Run | None, number: int, group: str) -> None:
        self._run = run
        self._number = number
        self._group = group
        self._started = self._delayed = 0.0

    def done(self) -> None:
        """Says that the operation is completed."""
        if self._run is not None:
            self._run.note_collective(self._number, self._group, True)

    def __enter__(self) -> Collective:
        self._delayed = delayed_seconds()
        self._started = perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        step = None if self._run is None else self._run._open_step
        if step is not None:
            step.wait(waited_seconds(perf_counter() - self._started, self._delayed))
        if kind is None:
            self.done()
