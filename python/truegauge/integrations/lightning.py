"""A callback for Lightning's `Trainer`.

Example:
    >>> import truegauge as tg
    >>> from truegauge.integrations.lightning import TruegaugeCallback
    >>> tg.init(project_name="llm", run_name="pretrain")  # doctest: +SKIP
    >>> Trainer(callbacks=[TruegaugeCallback(tokens_per_step=4096)]).fit(model)  # doctest: +SKIP
"""

from __future__ import annotations

from contextlib import suppress

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    from pytorch_lightning.callbacks import Callback

from truegauge.integrations._interval import Interval, local_rank, telemetry_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from truegauge import training


class TruegaugeCallback(Callback):  # type: ignore[misc]
    """Records Megatron's training instruments every `log_every_n_steps` of the `Trainer`.

    The loss is the mean over the iterations of the interval whose step was taken; one whose
    `training_step` returned None or whose optimizer step a gradient scaler left out is a skipped one.
    Losses are added up where they are and read once an interval. Time spent in validation and in
    checkpoints is not counted as training.

    Args:
        tokens_per_step: Tokens of all ranks in an optimizer step: a number, or a function that tells
            those of all ranks in a batch, such as `lambda batch: batch["input_ids"].numel() * world_size`.
    """

    def __init__(self, *, tokens_per_step: float | Callable[[Any], float] | None = None) -> None:
        self._tokens_per_step = tokens_per_step
        self._interval = Interval()
        self._telemetry: training.Telemetry | None = None
        self._is_own = False
        self._grad_norm: object = None
        self._learning_rate: object = None
        self._begun = 0
        self._taken = 0
        self._step_at_log = 0
        self._hooks: list[Any] = []

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Sets telemetry up where nobody has, and starts the first interval."""
        self._telemetry, self._is_own = telemetry_for(
            int(trainer.global_rank), int(trainer.world_size), local_rank()
        )
        if not self._telemetry.is_exporting:
            return
        for optimizer in trainer.optimizers:
            register = getattr(optimizer, "register_step_post_hook", None)
            if register is not None:
                self._hooks.append(register(self._step_taken))
        self._step_at_log = int(trainer.global_step)
        self._interval.begin(self._step_at_log)

    def _step_taken(self, *_of_the_hook: object) -> None:
        self._taken += 1

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:  # noqa: ARG002
        """Takes what a step changes: the learning rate, and the norm of the gradients before clipping."""
        if self._telemetry is None or not self._telemetry.is_exporting:
            return
        self._begun += 1
        if (trainer.global_step + 1) % max(1, trainer.log_every_n_steps) == 0:
            self._learning_rate = optimizer.param_groups[0].get("lr")
            self._grad_norm = _norm(optimizer)

    def on_train_batch_end(
        self,
        trainer: Any,
        pl_module: Any,  # noqa: ARG002
        outputs: Any,
        batch: Any,
        batch_idx: int,  # noqa: ARG002
    ) -> None:
        """Adds the batch to the interval, and records that when the trainer logs."""
        telemetry, interval = self._telemetry, self._interval
        if telemetry is None or not telemetry.is_exporting:
            return
        interval.mark()
        loss = outputs.get("loss") if hasattr(outputs, "get") else outputs
        is_skipped = loss is None or (bool(self._hooks) and self._begun > self._taken)
        if is_skipped:
            interval.skipped += 1
        elif loss is not None:
            # Lightning divides the loss by the batches that make a step.
            batches = int(getattr(trainer, "accumulate_grad_batches", 1) or 1)
            interval.add_loss(loss.detach() * batches if hasattr(loss, "detach") else loss * batches)
        self._begun = self._taken = 0
        if callable(self._tokens_per_step):
            with suppress(Exception):
                interval.tokens += float(self._tokens_per_step(batch))
        self._record(telemetry, int(trainer.global_step), int(trainer.log_every_n_steps))

    def _record(self, telemetry: training.Telemetry, step: int, every: int) -> None:
        # Several optimizers count several steps at once, and may pass over the multiple itself.
        if every < 1 or step // every == self._step_at_log // every:
            return
        tokens = None
        if self._tokens_per_step is not None and not callable(self._tokens_per_step):
            tokens = self._tokens_per_step * (step - self._step_at_log)
        self._interval.record(
            telemetry, step, grad_norm=self._grad_norm, learning_rate=self._learning_rate, tokens=tokens
        )
        self._step_at_log = step
        self._grad_norm = self._learning_rate = None

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Leaves the validation out of the interval."""
        self._interval.leave_out()

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:  # noqa: ARG002
        """Leaves the time up to here out: a checkpoint is being made."""
        self._interval.leave_out()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """Sends what is left, where the telemetry is this callback's own."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        if self._telemetry is not None and self._is_own:
            self._telemetry.shutdown()
        self._telemetry = None


def _norm(optimizer: Any) -> object:
    """Norm of all gradients of an optimizer as a tensor; None where there are none."""
    import torch

    grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    if not grads:
        return None
    device = grads[0].device
    norms = [torch.linalg.vector_norm(grad.detach().float()).to(device) for grad in grads]
    return torch.linalg.vector_norm(torch.stack(norms))
