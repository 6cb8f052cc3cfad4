"""`tg.step()`: how long a training step took, on what, and how many tokens it saw."""

from __future__ import annotations

from time import perf_counter

from truegauge._truegauge import warn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

    from truegauge._run import Run

PHASES = ("data", "wait", "checkpoint", "eval")
"""Phases with a series of their own, `train_step_<phase>_seconds`."""


class Step:
    """One training step, as `with tg.step(...) as s:` gives it.

    On leaving it logs `train_step_seconds`, `train_step_tokens` when tokens were named, and
    `train_step_<phase>_seconds` for each phase that was entered. A step left by an exception logs
    none of these: it did not happen.

    Attributes:
        step: The step's number, which `log` calls inside take.
        tokens: Tokens of this process in this step; may be set inside. Summed over ranks.
        global_tokens: Tokens of the whole job in this step; logged by rank 0, so that it counts once.
    """

    __slots__ = ("_outer", "_phases", "_run", "_started", "global_tokens", "step", "tokens")

    def __init__(self, run: Run | None, step: int, tokens: float | None, global_tokens: float | None) -> None:
        self.step = step
        self.tokens = tokens
        self.global_tokens = global_tokens
        self._run = run
        self._phases: dict[str, float] = {}
        self._started = 0.0
        self._outer: int | None = None

    def phase(self, name: str) -> Phase:
        """Times a part of the step.

        Args:
            name: `data`, `wait`, `checkpoint` or `eval`. A phase entered again adds up.

        Returns:
            A context manager.

        Example:
            >>> with tg.step(7) as s, s.phase("data"):  # doctest: +SKIP
            ...     batch = next(loader)
        """
        return Phase(self._phases, name)

    def __enter__(self) -> Step:
        run = self._run
        if run is not None:
            self._outer = run._step
            run._step = self.step
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
            run.log(points, step=self.step)
        run._step = self._outer
        if self._outer is None:
            run.end_step()
        else:
            run.begin_step(self._outer)


class Phase:
    """A part of a step; made by `Step.phase`."""

    __slots__ = ("_name", "_phases", "_started")

    def __init__(self, phases: dict[str, float], name: str) -> None:
        if name not in PHASES:
            warn(f"phase {name!r} is not timed: phases are {', '.join(PHASES)}")
            phases = {}
        self._phases = phases
        self._name = name
        self._started = 0.0

    def __enter__(self) -> Phase:
        self._started = perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        spent = perf_counter() - self._started
        self._phases[self._name] = self._phases.get(self._name, 0.0) + spent
