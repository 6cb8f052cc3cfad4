"""A backend for OTLP over HTTP, made of OpenTelemetry's own message classes: keeps what it is sent."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from conftest import wait_for
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

MESSAGES = {
    "/v1/metrics": ExportMetricsServiceRequest,
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/logs": ExportLogsServiceRequest,
}


def plain(attributes) -> dict[str, object]:
    """Attributes as a dict."""
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in attributes}


class Receiver:
    """Keeps requests by path; `url` is where to send."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, object]] = []
        self.headers: list[dict[str, str]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                receiver.headers.append({k.lower(): v for k, v in self.headers.items()})
                receiver.requests.append((self.path, MESSAGES[self.path].FromString(body)))
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_of_a_request):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def of(self, path: str) -> list:
        return [message for found, message in self.requests if found == path]

    def resources(self) -> list[dict[str, object]]:
        return [plain(r.resource.attributes) for m in self.of("/v1/metrics") for r in m.resource_metrics]

    def metrics(self) -> dict[str, list]:
        """Metrics by name, oldest first."""
        found: dict[str, list] = {}
        for message in self.of("/v1/metrics"):
            for resource in message.resource_metrics:
                for scope in resource.scope_metrics:
                    for metric in scope.metrics:
                        found.setdefault(metric.name, []).append(metric)
        return found

    def spans(self) -> list:
        return [
            span
            for message in self.of("/v1/traces")
            for resource in message.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def records(self) -> list[tuple[str, object]]:
        return [
            (scope.scope.name, record)
            for message in self.of("/v1/logs")
            for resource in message.resource_logs
            for scope in resource.scope_logs
            for record in scope.log_records
        ]

    def wait_for(self, condition, what: str):
        return wait_for(condition, what)


def value_of(point) -> float:
    """A number point's value."""
    return getattr(point, point.WhichOneof("value"))


def gauge(metric) -> float:
    """The only value of a gauge."""
    (point,) = metric.gauge.data_points
    return value_of(point)


def total(metric) -> float:
    """The only value of a sum."""
    (point,) = metric.sum.data_points
    return value_of(point)
