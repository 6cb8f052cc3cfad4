"""A callback for the Hugging Face `Trainer`.

Example:
    >>> import truegauge as tg
    >>> from truegauge.integrations.huggingface import TruegaugeCallback
    >>> tg.init(project_name="llm", run_name="finetune")  # doctest: +SKIP
    >>> Trainer(model, args, callbacks=[TruegaugeCallback()], ...).train()  # doctest: +SKIP
"""

from __future__ import annotations

from transformers import TrainerCallback

from truegauge.integrations._interval import Interval, telemetry_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from truegauge import training


class TruegaugeCallback(TrainerCallback):  # type: ignore[misc]
    """Records Megatron's training instruments whenever the `Trainer` logs.

    Loss and gradient norm are the `Trainer`'s own, which it takes before it zeroes its sums; the
    `Trainer` replaces losses that are no finite numbers unless `logging_nan_inf_filter=False`. Time
    spent in evaluation and in saving is not counted as training. Tokens per second need
    `include_num_input_tokens_seen=True` or `tokens_per_step`.

    Args:
        tokens_per_step: Tokens of all ranks in an optimizer step, where the `Trainer` does not count them.
    """

    def __init__(self, *, tokens_per_step: float | None = None) -> None:
        self._tokens_per_step = tokens_per_step
        self._interval = Interval()
        self._telemetry: training.Telemetry | None = None
        self._is_own = False
        self._tokens_seen = 0.0
        self._steps_at_log = 0

    def on_train_begin(self, args: object, state: object, control: object, **kwargs: object) -> None:  # noqa: ARG002
        """Sets telemetry up where nobody has, and starts the first interval."""
        self._telemetry, self._is_own = telemetry_for(
            int(getattr(args, "process_index", 0)),
            int(getattr(args, "world_size", 1)),
            int(getattr(args, "local_process_index", 0)),
        )
        self._begin(state)

    def _begin(self, state: object) -> None:
        self._steps_at_log = int(getattr(state, "global_step", 0))
        self._tokens_seen = float(getattr(state, "num_input_tokens_seen", 0) or 0)
        self._interval.begin(self._steps_at_log)

    def on_step_end(self, args: object, state: object, control: object, **kwargs: object) -> None:  # noqa: ARG002
        """Counts a step that the optimizer skipped."""
        if getattr(kwargs.get("optimizer"), "step_was_skipped", False):
            self._interval.skipped += 1
        self._interval.mark()

    def on_log(
        self,
        args: object,  # noqa: ARG002
        state: object,
        control: object,  # noqa: ARG002
        logs: Mapping[str, object] | None = None,
        **kwargs: object,  # noqa: ARG002
    ) -> None:
        """Records the interval that the `Trainer` logs; its logs of evaluation are not one."""
        telemetry, step = self._telemetry, int(getattr(state, "global_step", 0))
        if telemetry is None or not telemetry.is_exporting or not logs or "loss" not in logs:
            return
        seen = float(getattr(state, "num_input_tokens_seen", 0) or 0)
        tokens: float = seen - self._tokens_seen
        if self._tokens_per_step is not None:
            tokens = self._tokens_per_step * (step - self._steps_at_log)
        self._interval.record(
            telemetry,
            step,
            loss=logs["loss"],
            grad_norm=logs.get("grad_norm"),
            learning_rate=logs.get("learning_rate"),
            tokens=tokens,
        )
        self._tokens_seen, self._steps_at_log = seen, step

    def on_evaluate(self, args: object, state: object, control: object, **kwargs: object) -> None:  # noqa: ARG002
        """Leaves the evaluation out of the interval."""
        self._interval.leave_out()

    def on_save(self, args: object, state: object, control: object, **kwargs: object) -> None:  # noqa: ARG002
        """Leaves the saving out of the interval."""
        self._interval.leave_out()

    def on_train_end(self, args: object, state: object, control: object, **kwargs: object) -> None:  # noqa: ARG002
        """Sends what is left, where the telemetry is this callback's own."""
        if self._telemetry is not None and self._is_own:
            self._telemetry.shutdown()
        self._telemetry = None
