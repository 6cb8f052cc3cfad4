"""What is recorded: the same values for every client, so that what arrives can be told from its number."""

from __future__ import annotations

NAME = "megatron.training."
HISTOGRAM = "step_duration_ms"
COUNTER = "skipped_iters"
KEYS = (
    HISTOGRAM,
    "loss",
    "throughput_tflops",
    "grad_norm",
    COUNTER,
    "learning_rate",
    "tokens_per_sec",
    "memory_allocated_gb",
)


def step(number: int) -> dict[str, float]:
    """The eight values of a step, from 1 on; every third one is skipped."""
    return {
        HISTOGRAM: 240.0 + (number * 67) % 600,
        "loss": 11.0 / (1 + 0.07 * number),
        "throughput_tflops": 381.25 + number % 4,
        "grad_norm": 1.1 + 0.013 * number,
        COUNTER: 2 if number % 3 == 0 else 0,
        "learning_rate": 2.7e-4 / (1 + number),
        "tokens_per_sec": 98_304.0 + 7 * number,
        "memory_allocated_gb": 61.75,
    }


class Recorder:
    """The eight instruments of a meter of OpenTelemetry's."""

    def __init__(self, meter) -> None:
        self.instruments = {}
        for key in KEYS:
            kind = {HISTOGRAM: "histogram", COUNTER: "counter"}.get(key, "gauge")
            make = getattr(meter, f"create_{kind}")
            self.instruments[key] = make(NAME + key, unit="ms" if key == HISTOGRAM else "", description=key)

    def __call__(self, **values: float) -> None:
        for key, value in values.items():
            instrument = self.instruments[key]
            if key == HISTOGRAM:
                instrument.record(value)
            elif key != COUNTER:
                instrument.set(value)
            elif value > 0:
                instrument.add(value)
