"""A training as a framework does it, by either library: nemo-lens or ours.

    python trainer.py lens|ours RANK WORLD-SIZE

Everything else is said by `MEGATRON_OTEL_*`, `NEMO_LENS_*` and `OTEL_*`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time

import lines
import values

LIBRARY, RANK, WORLD_SIZE = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
SERVICE = "megatron-lm"
ATTRIBUTES = {
    "dl.tensor_parallel.size": 2,
    "dl.pipeline_parallel.size": 4,
    "dl.sequence_length": 4096,
    "megatron.num_layers": 24,
    "megatron.precision": "bf16",
}

if LIBRARY == "lens":
    from nemo.lens import NemoLensConfig, managed_span, setup_telemetry
    from nemo.lens.instruments.inference import record_inference_metrics
    from nemo.lens.logging_bridge import setup_logging_bridge
    from opentelemetry import metrics

    config = NemoLensConfig.from_env(prefix="MEGATRON_OTEL", fallback_prefix="NEMO_LENS")
    if not os.environ.get("OTEL_SERVICE_NAME"):
        config.service_name = SERVICE
    handle = setup_telemetry(config, rank=RANK, world_size=WORLD_SIZE, resource_attributes=ATTRIBUTES)
    run_id = config.run_id
    recorder = values.Recorder(handle.meter)
else:
    from truegauge.training import managed_span, record_inference_metrics, setup, setup_logging_bridge

    handle = setup(rank=RANK, world_size=WORLD_SIZE, service_name=SERVICE, attributes=ATTRIBUTES)
    run_id = handle.run_id
    recorder = handle.record

logger = logging.getLogger("megatron.training")


def record(number: int) -> None:
    """Records a step."""
    if handle.is_exporting:
        recorder(**values.step(number))


def iterate(number: int) -> None:
    """An iteration."""
    with managed_span("step", "megatron.train.iteration", **{"megatron.iteration": number}):
        record(number)


def train(first: int, last: int) -> None:
    """Iterations, each exported once it ended; a checkpoint that fails; a request that was answered."""
    with managed_span("job", "megatron.train"):
        for number in range(first, last + 1):
            iterate(number)
            flush()
        with (
            contextlib.suppress(OSError),
            managed_span("checkpoint", "megatron.checkpoint.save", prompt="typed", shard=7),
        ):
            raise OSError("disk full")
        logger.warning("checkpoint %d failed", last)
    record_inference_metrics(handle.meter, request_duration_s=0.375, model="llama", input_tokens=128)


def flush() -> None:
    """Exports the metrics, if there is anything to export; the next export has another millisecond."""
    if not handle.is_exporting:
        return
    if LIBRARY == "lens":
        metrics.get_meter_provider().force_flush()
    else:
        handle.force_flush()
    end_ms = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 == end_ms:
        time.sleep(0)


def bridge() -> None:
    """Exports what is logged as well."""
    setup_logging_bridge()


def end(timeout_ms: float = 30_000) -> float:
    """Ends the telemetry; the seconds that took."""
    begin = time.perf_counter()
    handle.shutdown(timeout_ms=timeout_ms)
    return time.perf_counter() - begin


lines.serve(globals())
