"""`tg.step()`: how long a training step took, on what, and how many tokens it saw."""

from __future__ import annotations

from math import inf
from time import perf_counter

from truegauge._runnable import delayed_seconds, waited_seconds
from truegauge._truegauge import warn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

    from truegauge._run import Run

PHASES = ("data", "wait", "checkpoint", "eval")
"""Phases with a series of their own, `train_step_<phase>_seconds`."""
LONG_PHASES = {"checkpoint": 1.0, "eval": 2.0}
"""Phases that are told when they begin, as `train_step_phase`, so that a run in one is not taken for hung."""


class Step:
    """One training step, as `with tg.step(...) as s:` gives it.

    On leaving it logs `train_step_seconds`, `train_step_tokens` when tokens were named, and
    `train_step_<phase>_seconds` for each phase that was entered. A step left by an exception logs
    none of these: it did not happen. `train_step_phase` is logged at once, when a checkpoint or an
    evaluation begins (1 and 2) and ends (0); it is 3 once no step was open for five seconds.

    Attributes:
        step: The step's number, which `log` calls inside take.
        tokens: Tokens of this process in this step; may be set inside. Summed over ranks.
        global_tokens: Tokens of the whole job in this step; logged by rank 0, so that it counts once.
    """

    __slots__ = (
        *("_around", "_outer", "_phases", "_run", "_started", "_waits_are_told"),
        *("global_tokens", "step", "tokens"),
    )

    def __init__(self, run: Run | None, step: int, tokens: float | None, global_tokens: float | None) -> None:
        self.step = step
        self.tokens = tokens
        self.global_tokens = global_tokens
        self._run = run
        self._phases: dict[str, float] = {}
        self._started = 0.0
        self._outer: int | None = None
        self._around: Step | None = None
        self._waits_are_told = False

    def wait(self, seconds: float) -> None:
        """Adds time that was spent waiting for other ranks, which something else measured.

        It counts as the phase `wait`.

        Args:
            seconds: How long, seconds. What is negative, infinite or no number adds nothing.

        Example:
            >>> s.wait(start.elapsed_time(end) / 1000)  # two CUDA events  # doctest: +SKIP
        """
        try:
            spent = float(seconds)
        except (TypeError, ValueError, OverflowError):
            warn(f"`wait` is {seconds!r:.80}, wanted are seconds: it is not counted")
            return
        if 0.0 <= spent < inf:
            self._phases["wait"] = self._phases.get("wait", 0.0) + spent

    def phase(self, name: str) -> Phase:
        """Times a part of the step.

        Args:
            name: `data`, `wait`, `checkpoint` or `eval`. A phase entered again adds up. Time in `wait`
                in which this thread could have gone on, but was not let onto a CPU, is not counted: in it
                others waited for this rank.

        Returns:
            A context manager.

        Example:
            >>> with tg.step(7) as s, s.phase("data"):  # doctest: +SKIP
            ...     batch = next(loader)
        """
        if name == "wait":
            self._waits_are_told = True
        return Phase(self._phases, name, self._run)

    def __enter__(self) -> Step:
        run = self._run
        if run is not None:
            self._outer = run._step
            run._step = self.step
            self._around, run._open_step = run._open_step, self
            run.begin_step(self.step)
        self._started = perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        seconds = perf_counter() - self._started
        run = self._run
        if run is None:
            return
        if kind is None:
            points: dict[str, float] = {"train_step_seconds": seconds}
            for name, spent in self._phases.items():
                points[f"train_step_{name}_seconds"] = spent
            if self.tokens is not None:
                points["train_step_tokens"] = self.tokens
            elif self.global_tokens is not None and not run.rank:
                points["train_step_tokens"] = self.global_tokens
            if run._holder is None or not run._holder(self, points):
                run.log(points, step=self.step)
        run._step = self._outer
        run._open_step = self._around
        if self._outer is None:
            run.end_step()
        else:
            run.begin_step(self._outer)


class Phase:
    """A part of a step; made by `Step.phase`."""

    __slots__ = ("_delayed", "_name", "_phases", "_run", "_started")

    def __init__(self, phases: dict[str, float], name: str, run: Run | None = None) -> None:
        if name not in PHASES:
            warn(f"phase {name!r} is not timed: phases are {', '.join(PHASES)}")
            phases = {}
        self._phases = phases
        self._name = name
        self._run = run if name in LONG_PHASES else None
        self._started = self._delayed = 0.0

    def __enter__(self) -> Phase:
        if self._run is not None:
            self._run.log({"train_step_phase": LONG_PHASES[self._name]})
        if self._name == "wait":
            self._delayed = delayed_seconds()
        self._started = perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        spent = perf_counter() - self._started
        if self._name == "wait":
            spent = waited_seconds(spent, self._delayed)
        self._phases[self._name] = self._phases.get(self._name, 0.0) + spent
        if self._run is not None:
            self._run.log({"train_step_phase": 0.0})
