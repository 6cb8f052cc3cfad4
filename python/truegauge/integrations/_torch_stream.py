"""Waits on a GPU's stream: pairs of events, read when they are done, and the steps that wait for them."""

from __future__ import annotations

import sys
import threading
from collections import deque
from time import monotonic, sleep, time

from truegauge._truegauge import warn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from truegauge._run import Run
    from truegauge._step import Step

SPANS_MAX = 65_536
"""Most pairs that are not done at a time."""
TICK_SECONDS = 0.25
"""How often it is looked whether some are, while a program does no step."""
DRAIN_SECONDS = 2.0
"""How long the end of a run waits for those that are not."""


class Stream:
    """Pairs of events, and steps whose points are held until their waits are known.

    A server takes a step with what it knows of it, so a wait must not come later than the step's time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: deque[tuple[Any, Any, Step | None, Callable[[], None]]] = deque()
        self._open: dict[Step, int] = {}
        self._held: deque[tuple[Run, Step, dict[str, float], float]] = deque()
        self._spare: list[Any] = []
        self._thread: threading.Thread | None = None
        self._captures = 0

    def serve(self, run: Run) -> None:
        """Has a run's steps wait for their waits."""

        def hold(step: Step, points: dict[str, float]) -> bool:
            try:
                return self.hold(run, step, points)
            except Exception as error:
                self._give_up(run, step)
                warn(f"waits on the GPU's stream are not measured any more: {error!r:.200}")
                return False

        run._holder = hold
        run._drains = self.drain

    def pause(self) -> None:
        """Asks the device nothing: in the capture of a graph, any thread that asks for an event ends it."""
        with self._lock:
            self._captures += 1

    def resume(self) -> None:
        """Ends what `pause` began."""
        with self._lock:
            self._captures -= 1

    def mark(self) -> Any:
        """An event on the current stream; None while too many are not done."""
        if len(self._spans) >= SPANS_MAX:
            return None
        with self._lock:
            event = self._spare.pop() if self._spare else None
        if event is None:
            event = sys.modules["torch"].cuda.Event(enable_timing=True)
        event.record()
        return event

    def forget(self, event: Any) -> None:
        """Takes an event back that nothing was measured with."""
        if event is not None:
            with self._lock:
                self._spare.append(event)

    def add(self, start: Any, step: Step | None, completed: Callable[[], None]) -> None:
        """Measures from `start` to now, on the current stream."""
        end = self.mark()
        if end is None:
            self.forget(start)
            return
        with self._lock:
            self._spans.append((start, end, step, completed))
            if step is not None:
                self._open[step] = self._open.get(step, 0) + 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._tick, name="truegauge-waits", daemon=True)
                self._thread.start()

    def hold(self, run: Run, step: Step, points: dict[str, float]) -> bool:
        """Takes the points of a step that has ended, unless all of its waits are known."""
        self.poll()
        with self._lock:
            if step not in self._open and not self._held:
                self._finish(step, points)
                return False
            self._held.append((run, step, points, time()))
            run._held_step = step.step
        self.poll()
        return True

    def poll(self, is_last: bool = False) -> None:
        """Reads what is done, and logs the steps of which all is known."""
        with self._lock:
            while self._spans and (is_last or self._is_done(self._spans[0][1])):
                start, end, step, completed = self._spans.popleft()
                is_done = self._is_done(end)
                if is_done:
                    completed()
                if step is not None:
                    left = self._open.pop(step) - 1
                    if left:
                        self._open[step] = left
                    if is_done and not step._waits_are_told:
                        step.wait(start.elapsed_time(end) / 1000.0)
                if is_done:
                    self._spare += (start, end)
            while self._held and self._held[0][1] not in self._open:
                run, step, points, ended = self._held.popleft()
                self._finish(step, points)
                run.log(points, step=step.step, timestamp=ended)

    def drain(self) -> None:
        """Logs what is held, after a bounded wait for the GPU."""
        end = monotonic() + DRAIN_SECONDS
        while self._held and monotonic() < end:
            self.poll()
            if self._held:
                sleep(0.01)
        self.poll(is_last=True)

    def _is_done(self, event: Any) -> bool:
        return not self._captures and bool(event.query())

    def _give_up(self, run: Run, step: Step) -> None:
        """Logs what is held as it is; `step` is logged by who asked."""
        run._holder = None
        with self._lock:
            held, self._held = self._held, deque()
            self._spans.clear()
            self._open.clear()
        for of, other, points, ended in held:
            if other is not step:
                of.log(points, step=other.step, timestamp=ended)

    def _finish(self, step: Step, points: dict[str, float]) -> None:
        # Streams of their own overlap: no step waits longer than it takes.
        waited = step._phases.get("wait")
        if waited is not None:
            points["train_step_wait_seconds"] = min(waited, points.get("train_step_seconds", waited))

    def _tick(self) -> None:
        while True:
            sleep(TICK_SECONDS)
            try:
                self.poll()
            except Exception:
                # The device is gone: the program hears of it where it uses it.
                return
