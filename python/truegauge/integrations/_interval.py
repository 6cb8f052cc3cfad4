"""What a trainer did since it last logged, as Megatron's instruments mean it."""

from __future__ import annotations

import os
import sys
from time import perf_counter

from truegauge import training
from truegauge._truegauge import warn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

BYTES_PER_GIB = 1024**3


class Interval:
    """Sums between two logs of a trainer: taken when it logs, then zeroed.

    Time that is not training (evaluation, checkpoints) is left out. Losses stay where they are, on a
    device perhaps, until the interval is recorded, so that nothing waits for a device in between.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._started = self._mark = clock()
        self._first_step = 0
        self._loss: object = None
        self.losses = 0
        self.skipped = 0
        self.tokens = 0.0

    def begin(self, step: int) -> None:
        """Starts anew after `step` steps."""
        self._started = self._mark = self._clock()
        self._first_step = step
        self._loss = None
        self.losses = self.skipped = 0
        self.tokens = 0.0

    def mark(self) -> None:
        """Says that training was at work until now."""
        self._mark = self._clock()

    def leave_out(self) -> None:
        """Says that the time since the last mark was not training."""
        now = self._clock()
        self._started += now - self._mark
        self._mark = now

    def add_loss(self, loss: object) -> None:
        """Adds the loss of an iteration that was not skipped; a tensor is not waited for."""
        self._loss = loss if self._loss is None else self._loss + loss  # type: ignore[operator]
        self.losses += 1

    def mean_loss(self) -> float | None:
        """Sum of the losses over the iterations that count; None where there was none."""
        if self._loss is None:
            return None
        return float(self._loss) / max(1, self.losses)  # type: ignore[arg-type]

    def record(
        self,
        telemetry: training.Telemetry,
        step: int,
        *,
        loss: object = None,
        grad_norm: object = None,
        learning_rate: object = None,
        tokens: float | None = None,
    ) -> None:
        """Records the interval up to `step`, and starts the next one.

        Args:
            telemetry: Where to.
            step: Steps done.
            loss: The trainer's own mean loss; by default the mean of what was added.
            grad_norm: Norm of the gradients of the last step.
            learning_rate: The learning rate.
            tokens: Tokens of all ranks in the interval; by default what was added up in `tokens`.
        """
        steps, elapsed = step - self._first_step, self._clock() - self._started
        has_time = elapsed > 0
        seen = tokens if tokens is not None else self.tokens
        telemetry.record(
            step_duration_ms=elapsed / steps * 1000 if has_time and steps > 0 else None,
            loss=self.mean_loss() if loss is None else loss,
            tokens_per_sec=seen / elapsed if has_time and seen else None,
            grad_norm=grad_norm,
            skipped_iters=self.skipped,
            learning_rate=learning_rate,
            memory_allocated_gb=memory_allocated_gb(),
            step=step,
        )
        self.begin(step)


def memory_allocated_gb() -> float | None:
    """Peak of the memory that PyTorch allocated on this process's GPU, GiB; None without CUDA."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    return float(torch.cuda.max_memory_allocated() / BYTES_PER_GIB)


def telemetry_for(rank: int, world_size: int, local_rank: int | None) -> tuple[training.Telemetry, bool]:
    """The telemetry that is set up, else one of the callback's own.

    Returns:
        The telemetry, and whether it is the callback's to shut down.
    """
    current = training.current()
    if current is not None:
        return current, False
    own = training.setup(rank=rank, world_size=world_size, local_rank=local_rank)
    if not own.is_exporting and rank == 0 and not own.is_enabled:
        warn(
            "the callback records nothing: no run is open and the export is off (call `truegauge.init()` "
            "before training, or set `MEGATRON_OTEL_ENABLED=1`)"
        )
    return own, True


def local_rank() -> int | None:
    """`LOCAL_RANK`, where the launcher says one."""
    text = os.environ.get("LOCAL_RANK", "")
    return int(text) if text.isdigit() else None
