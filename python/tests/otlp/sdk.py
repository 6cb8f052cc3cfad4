"""OpenTelemetry's own library for Python: records, and tells what its exporters put on the wire.

    python sdk.py http|grpc RESOURCE-AS-JSON

Everything else is said by `OTEL_*`.
"""

from __future__ import annotations

import json
import sys

import lines
import values
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link

PROTOCOL = sys.argv[1]
if PROTOCOL == "http":
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
else:
    from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

HOUR_MS = 3_600_000
exports: list[dict] = []


def told(point) -> dict:
    """A data point as plain values."""
    found = {"start_ns": point.start_time_unix_nano or 0, "time_ns": point.time_unix_nano}
    for key in ("value", "count", "sum", "bucket_counts", "explicit_bounds", "scale", "zero_count"):
        if hasattr(point, key):
            found[key] = getattr(point, key)
    found["exemplars"] = [
        {
            "value": one.value,
            "time_ns": one.time_unix_nano,
            "trace": f"{one.trace_id:032x}" if one.trace_id else None,
            "span": f"{one.span_id:016x}" if one.span_id else None,
        }
        for one in getattr(point, "exemplars", ())
    ]
    return found


class Exporter(OTLPMetricExporter):
    """The exporter as it is; notes what goes through it."""

    def export(self, metrics_data, *arguments, **named):
        points = {
            metric.name: told(point)
            for resource in metrics_data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in metric.data.data_points
        }
        result = super().export(metrics_data, *arguments, **named)
        exports.append({"points": points, "result": result.name})
        return result


resource = Resource.create(json.loads(sys.argv[2]))
reader = PeriodicExportingMetricReader(
    Exporter(), export_interval_millis=HOUR_MS, export_timeout_millis=HOUR_MS
)
meters = MeterProvider(resource=resource, metric_readers=[reader])
tracers = TracerProvider(resource=resource)
tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(), schedule_delay_millis=HOUR_MS))
tracer = tracers.get_tracer("nemo.lens")
recorder = values.Recorder(meters.get_meter("nemo.lens"))
spans: list[dict] = []


def note(span) -> None:
    """Keeps what is to be found again of a span that ended."""
    context = span.get_span_context()
    spans.append(
        {
            "name": span.name,
            "trace": f"{context.trace_id:032x}",
            "id": f"{context.span_id:016x}",
            "start_ns": span.start_time,
            "end_ns": span.end_time,
            "iteration": span.attributes.get("megatron.iteration"),
        }
    )


def record(number: int, **instead: float) -> None:
    """Records a step without a span."""
    recorder(**{**values.step(number), **instead})


def iterate(number: int) -> None:
    """Records a step within its spans, and exports the metrics once they ended."""
    with tracer.start_as_current_span("megatron.train.iteration") as outer:
        outer.set_attribute("megatron.iteration", number)
        with tracer.start_as_current_span("megatron.train.optimizer") as inner:
            record(number)
        note(inner)
    note(outer)
    flush()


OF_A_KIND = {"name.of": "first", "is_on": True, "number": 3, "share": 0.5, "list": ["a", "b"]}
now = {"bytes": 0, "celsius": 0.0, "lanes": 0}


def kinds() -> None:
    """Makes an instrument of every kind that the eight are not."""
    from opentelemetry.metrics import Observation

    meter = meters.get_meter("app", "1.2")
    recorder.instruments["queue"] = meter.create_up_down_counter("app.queue", unit="{request}")
    meter.create_observable_counter("app.sent", [lambda _: [Observation(now["bytes"], OF_A_KIND)]], unit="By")
    meter.create_observable_gauge("app.heat", [lambda _: [Observation(now["celsius"])]], unit="Cel")
    meter.create_observable_up_down_counter("app.lanes", [lambda _: [Observation(now["lanes"])]])


def flush() -> str:
    """Exports the metrics; how that ended."""
    meters.force_flush(HOUR_MS)
    return exports[-1]["result"] if exports else "nothing"


def span(name: str, attributes: dict[str, object]) -> None:
    """A span with attributes; an event and a link have them as well."""
    with tracer.start_as_current_span("megatron.train") as before:
        link = Link(before.get_span_context(), attributes)
    with tracer.start_as_current_span(name, attributes=attributes, links=[link]) as one:
        one.add_event("gen_ai.user.message", attributes)
    note(one)


def log(*bodies: object, event: str | None = None, **attributes: object) -> list[dict]:
    """Log records within a span; sent at once."""
    from opentelemetry._logs import SeverityNumber
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

    loggers = LoggerProvider(resource=resource)
    loggers.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
    written = []
    with tracer.start_as_current_span("megatron.checkpoint.save") as one:
        context = one.get_span_context()
        for number, body in enumerate(bodies, 1):
            time_ns = one.start_time + number * 1_000_003
            loggers.get_logger("megatron.training").emit(
                timestamp=time_ns,
                severity_number=SeverityNumber.WARN,
                severity_text="WARNING",
                body=body,
                attributes=attributes,
                event_name=event,
            )
            trace, span = f"{context.trace_id:032x}", f"{context.span_id:016x}"
            written.append({"time_ns": str(time_ns), "body": body, "trace": trace, "span": span})
    loggers.shutdown()
    return written


def end() -> None:
    """Exports what is left and ends."""
    tracers.shutdown()
    meters.shutdown()


lines.serve(globals())
