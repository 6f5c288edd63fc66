"""OTLP: the same totals, under OpenTelemetry's names, to whom the standard variables say."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as wire
from opentelemetry.sdk.metrics import export as otel

from deployments.names import Part
from deployments.observability.exporters import Signal, exporter_kinds
from deployments.observability.metrics.export_otlp import OtlpMetrics, interval_s
from deployments.observability.metrics.registry import METRICS
from deployments.observability.process import ProcessName, resource_of
from tests.deployments.metrics.status import full_status


class Collector(otel.MetricExporter):
    """Keeps what it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[otel.MetricsData] = []
        self.is_shut_down = False

    def export(
        self, metrics_data: otel.MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> otel.MetricExportResult:
        self.heard.append(metrics_data)
        return otel.MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        self.is_shut_down = True


def otlp(exporter: otel.MetricExporter, **labels: str) -> OtlpMetrics:
    process = ProcessName(role=Part.COORDINATOR, id="specdec:cell-0", cell=0)
    return OtlpMetrics(exporter, resource=resource_of(process), model_name="m", labels=labels)


def told(collector: Collector) -> dict[str, otel.Metric]:
    (data,) = collector.heard
    (resource,) = data.resource_metrics
    (scope,) = resource.scope_metrics
    return {metric.name: metric for metric in scope.metrics}


def test_every_metric_is_told_with_its_totals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    collector = Collector()
    otlp(collector, cell="0").export(full_status())
    found = told(collector)
    assert set(found) == {metric.otlp_name for metric in METRICS}
    attributes = collector.heard[0].resource_metrics[0].resource.attributes
    assert attributes["service.name"] == "specdec"
    assert attributes["deployment.environment.name"] == "test"
    assert attributes["service.instance.id"] == "specdec:cell-0"
    assert attributes["specdec.process"] == "coordinator"
    drafts: Any = found["specdec.spec_decode_num_drafts"].data
    assert drafts.is_monotonic
    assert drafts.aggregation_temporality is otel.AggregationTemporality.CUMULATIVE
    (point,) = drafts.data_points
    assert (point.value, point.start_time_unix_nano) == (90, 1_000_000_500_000_000)
    assert dict(point.attributes) == {"cell": "0"}
    (point,) = found["specdec.kv_cache_usage_perc"].data.data_points
    assert point.value == 0.25


def test_genai_s_metrics_have_its_names_attributes_and_buckets() -> None:
    collector = Collector()
    otlp(collector).export(full_status())
    found = told(collector)
    duration: Any = found["gen_ai.server.request.duration"]
    assert duration.unit == "s"
    (point,) = duration.data.data_points
    assert (point.count, point.sum) == (3, 1.5)
    assert point.explicit_bounds[:3] == (0.01, 0.02, 0.04)
    assert point.explicit_bounds[-1] == 81.92
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
    assert dict(point.attributes) == {
        "gen_ai.request.model": "m",
        "gen_ai.provider.name": "specdec",
        "gen_ai.operation.name": "text_completion",
    }
    usage: Any = found["gen_ai.client.token.usage"]
    assert usage.unit == "{token}"
    kinds = {point.attributes["gen_ai.token.type"] for point in usage.data.data_points}
    assert kinds == {"input", "output"}
    assert usage.data.data_points[0].explicit_bounds[-1] == 67108864


def test_an_exporter_that_fails_costs_nothing_but_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    collector = Collector()
    collector.export = lambda *_, **__: otel.MetricExportResult.FAILURE  # type: ignore[method-assign]
    otlp(collector).export(full_status())
    assert "failed to export" in caplog.text


@pytest.mark.parametrize(
    ("environment", "kinds"),
    [
        ({}, []),
        ({"OTEL_METRICS_EXPORTER": "none"}, []),
        ({"OTEL_METRICS_EXPORTER": "console"}, [otel.ConsoleMetricExporter]),
        ({"OTEL_METRICS_EXPORTER": "console", "OTEL_SDK_DISABLED": "true"}, []),
        ({"OTEL_METRICS_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4317"}, []),
    ],
)
def test_the_standard_variables_say_to_whom(
    environment: dict[str, str], kinds: list[type[otel.MetricExporter]]
) -> None:
    assert exporter_kinds(Signal.METRICS, environment) == kinds


def test_the_interval_is_the_standard_one() -> None:
    assert interval_s({}) == 60.0
    assert interval_s({"OTEL_METRIC_EXPORT_INTERVAL": "2500"}) == 2.5
    assert interval_s({"OTEL_METRIC_EXPORT_INTERVAL": "soon"}) == 60.0


def test_what_is_told_can_be_written_as_json() -> None:
    """The console's exporter does so, and every field has to be one that it knows."""
    collector = Collector()
    otlp(collector).export(full_status())
    content = json.loads(collector.heard[0].to_json())
    assert content["resource_metrics"][0]["scope_metrics"][0]["scope"]["name"] == "specdec"


@contextmanager
def listening() -> Iterator[tuple[int, list[wire.ExportMetricsServiceRequest]]]:
    """A collector of OTLP over HTTP in this process: its port, and what it has heard."""
    heard: list[wire.ExportMetricsServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/metrics"
            body = self.rfile.read(int(self.headers["content-length"]))
            heard.append(wire.ExportMetricsServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port, heard
        server.shutdown()
        thread.join()


def test_a_collector_hears_every_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening() as (port, heard):
        environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
        }
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        (kind,) = exporter_kinds(Signal.METRICS)
        exporter = kind()
        told_over = otlp(exporter)
        told_over.export(full_status())
        told_over.close()
    (request,) = heard
    found = {one.name: one for one in request.resource_metrics[0].scope_metrics[0].metrics}
    assert set(found) == {metric.otlp_name for metric in METRICS}
    (first,) = found["gen_ai.server.time_to_first_token"].histogram.data_points
    assert (first.count, first.sum, sum(first.bucket_counts)) == (3, 1.5, 3)
    assert not first.HasField("min")
    assert not first.HasField("max")
    (waiting,) = found["specdec.num_requests_waiting"].gauge.data_points
    assert waiting.as_double == 3 or waiting.as_int == 3
