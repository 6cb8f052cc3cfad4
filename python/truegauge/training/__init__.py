"""Training telemetry: Megatron's instruments and spans, through OTLP and to a run.

Two ways go out. What is recorded goes to the run that `truegauge.init()` opened, every value with its
step and time. And it goes out by OTLP, to this server or any other backend, when `MEGATRON_OTEL_ENABLED`
or `enabled=True` says so and this rank is one that exports. Nothing here needs OpenTelemetry, and nothing
raises into a training loop.

Example:
    >>> import truegauge as tg
    >>> from truegauge import training
    >>> tg.init(project_name="llm", run_name="pretrain-7b")  # doctest: +SKIP
    >>> telemetry = training.setup(rank=0, world_size=8)  # doctest: +SKIP
    >>> telemetry.record(loss=0.5, grad_norm=1.2, step=1)  # doctest: +SKIP
"""

from truegauge._truegauge import (
    Instrument,
    Meter,
    ShutdownInfo,
    Span,
    StrategyConfig,
    current_traceparent,
    enabled_span_groups,
    is_span_group_enabled,
    managed_span,
    record_training_metrics,
    span_cm,
)
from truegauge.training._groups import (
    MetricSpec,
    metric_groups,
    record_inference_metrics,
    record_metrics,
    register_metric_group,
    unregister_metric_group,
)
from truegauge.training._setup import (
    Telemetry,
    current,
    register_export_strategy,
    register_span_group,
    registered_strategies,
    setup,
    setup_logging_bridge,
    shutdown,
    span_groups,
    unregister_export_strategy,
    unregister_span_group,
)
from truegauge.training._spans import extract_context, inject_context, trace_fn

__all__ = [
    "Instrument",
    "Meter",
    "MetricSpec",
    "ShutdownInfo",
    "Span",
    "StrategyConfig",
    "Telemetry",
    "current",
    "current_traceparent",
    "enabled_span_groups",
    "extract_context",
    "inject_context",
    "is_span_group_enabled",
    "managed_span",
    "metric_groups",
    "record_inference_metrics",
    "record_metrics",
    "record_training_metrics",
    "register_export_strategy",
    "register_metric_group",
    "register_span_group",
    "registered_strategies",
    "setup",
    "setup_logging_bridge",
    "shutdown",
    "span_cm",
    "span_groups",
    "trace_fn",
    "unregister_export_strategy",
    "unregister_metric_group",
    "unregister_span_group",
]
