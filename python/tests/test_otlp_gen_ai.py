"""OpenTelemetry's metrics of generative AI, as its own library sends them: an engine among the others."""

from __future__ import annotations

import pytest
from conftest import wait_for
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from otlp_peers import doors

REQUEST = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "acme",
    "gen_ai.request.model": "chat-8b",
    "gen_ai.response.model": "chat-8b-2026-09",
}
TTFT = (0.001, 0.01, 0.1, 0.5, 1.0, 2.5)
TOKENS = (1, 16, 256, 4096)
COUNT = 40


@pytest.fixture
def served(binary, tmp_path):
    with doors(binary, tmp_path) as opened:
        yield opened


def serve(served, temporality: AggregationTemporality) -> None:
    """Serves requests twice and exports what was recorded each time."""
    exporter = OTLPMetricExporter(
        endpoint=f"http://{served.addresses['http']}/v1/metrics",
        preferred_temporality={Histogram: temporality},
    )
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=float("inf"))
    resource = Resource.create({"service.name": "gateway", "service.instance.id": "gateway-0"})
    provider = MeterProvider([reader], resource, shutdown_on_exit=False)
    meter = provider.get_meter("gen_ai")
    seconds = {
        name: meter.create_histogram(name, unit="s", explicit_bucket_boundaries_advisory=TTFT)
        for name in (
            "gen_ai.server.time_to_first_token",
            "gen_ai.server.time_per_output_token",
            "gen_ai.server.request.duration",
            "gen_ai.client.operation.duration",
        )
    }
    usage = meter.create_histogram(
        "gen_ai.client.token.usage", unit="{token}", explicit_bucket_boundaries_advisory=TOKENS
    )
    for _ in range(2):
        for _ in range(COUNT):
            seconds["gen_ai.server.time_to_first_token"].record(0.25, REQUEST)
            seconds["gen_ai.server.time_per_output_token"].record(0.02, REQUEST)
            seconds["gen_ai.server.request.duration"].record(0.75, REQUEST)
            seconds["gen_ai.client.operation.duration"].record(2.0, REQUEST)
            usage.record(100, REQUEST | {"gen_ai.token.type": "input"})
            usage.record(30, REQUEST | {"gen_ai.token.type": "output"})
        assert provider.force_flush()
    provider.shutdown()


@pytest.mark.parametrize(
    "temporality",
    [AggregationTemporality.CUMULATIVE, AggregationTemporality.DELTA],
    ids=lambda one: one.name.lower(),
)
def test_gen_ai_histograms_are_an_engine(served, temporality):
    serve(served, temporality)
    of = 'engine="gen_ai",model="chat-8b-2026-09",job="gateway",instance="gateway-0"'

    def value(name: str, more: str = "") -> float:
        (row,) = served.query(f"{name}{{{of}{more}}}")
        return float(row["value"][1])

    assert value("tg_engine_ttft_seconds_count") == 2 * COUNT
    assert value("tg_engine_ttft_seconds_bucket", ',le="0.5"') == 2 * COUNT
    assert value("tg_engine_ttft_seconds_bucket", ',le="0.1"') == 0
    assert value("tg_engine_tpot_seconds_sum") == pytest.approx(2 * COUNT * 0.02)
    assert value("tg_engine_e2e_seconds_sum") == pytest.approx(2 * COUNT * 0.75), "the server's comes first"
    assert value("tg_engine_prompt_tokens_total") == 2 * COUNT * 100
    assert value("tg_engine_output_tokens_total") == 2 * COUNT * 30
    # What came stays as it came.
    (row,) = served.query("gen_ai_server_time_to_first_token_seconds_count")
    assert row["metric"]["gen_ai_request_model"] == "chat-8b"

    def listed() -> dict | None:
        models = served.server.get("engines")["models"]
        return next((one for one in models if one["values"]["ttft_p50"]["value"] is not None), None)

    model = wait_for(listed, "the model is listed with its latencies")
    assert model["model"] == "chat-8b-2026-09"
    assert model["engines"] == ["gen_ai"]
    assert 0.1 < model["values"]["ttft_p50"]["value"] <= 0.5
    assert model["values"]["kv_usage"]["value"] is None
