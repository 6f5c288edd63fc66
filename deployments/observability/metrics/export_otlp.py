"""Export every metric through OpenTelemetry, as the standard OTEL_* variables say.

The totals are cumulative already, so they go to the SDK's exporters unchanged. The SDK's own
histograms would have to observe everything a second time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.metrics import export as otel
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from deployments.observability.metrics.metric import Distribution, Kind, Metric, Point
from deployments.observability.metrics.registry import METRICS
from deployments.observability.tracing import names
from deployments.version import package_version
from specdec.v1 import generation_pb2 as pb

logger = logging.getLogger(__name__)

_NS = 1_000_000_000
_DEFAULT_MS = 60_000.0
_GEN_AI = "gen_ai."
_OWN_NAMES = {"gen_ai_token_type": "gen_ai.token.type"}
"""OpenTelemetry's names of attributes that Prometheus must name differently."""
_UNKNOWN: Any = None
"""Minimum and maximum observation. Totals do not contain them."""


class OtlpMetrics:
    """Sends metrics to one exporter. `labels` are attributes of all of them; `resource` identifies
    the sender."""

    def __init__(
        self,
        exporter: otel.MetricExporter,
        *,
        resource: Resource,
        model_name: str,
        labels: Mapping[str, str],
    ) -> None:
        self._exporter = exporter
        self._labels = dict(labels)
        self._gen_ai = {
            names.REQUEST_MODEL: model_name,
            names.PROVIDER_NAMES[0]: names.PROVIDER,
            names.OPERATION: "text_completion",  # chats too: the scheduler sees token IDs
        }
        self._resource = resource

    def export(self, status: pb.PoolStatusResponse) -> None:
        """Export the metrics. This waits for the collector, so call it outside an event loop."""
        scope = InstrumentationScope("specdec", package_version())
        metrics = [self._metric(metric, status) for metric in METRICS]
        metric_data = [metric for metric in metrics if metric.data.data_points]
        scopes = [otel.ScopeMetrics(scope, metric_data, "")]
        data = otel.MetricsData([otel.ResourceMetrics(self._resource, scopes, "")])
        if self._exporter.export(data) is not otel.MetricExportResult.SUCCESS:
            logger.warning("failed to export metrics over OTLP")

    def close(self) -> None:
        """Shut the exporter down. Nothing is exported after this."""
        self._exporter.shutdown()

    def _metric(self, metric: Metric, status: pb.PoolStatusResponse) -> otel.Metric:
        start_ns, now_ns = int(status.started_unix_s * _NS), time.time_ns()
        points: list[Any] = []
        for point in metric.read(status):
            common = (self._attributes(metric, point), start_ns, now_ns)
            if isinstance(point.value, Distribution):
                points.append(_of_distribution(point.value, *common))
            else:
                points.append(otel.NumberDataPoint(*common, point.value))
        return otel.Metric(metric.otlp_name, metric.text, metric.unit, _data(metric, points))

    def _attributes(self, metric: Metric, point: Point) -> dict[str, str]:
        own = (_OWN_NAMES.get(label, label) for label in metric.labels)
        conventions = self._gen_ai if metric.otlp_name.startswith(_GEN_AI) else {}
        return {**self._labels, **conventions, **dict(zip(own, point.labels, strict=True))}


def _of_distribution(
    distribution: Distribution, attributes: dict[str, str], start_ns: int, now_ns: int
) -> otel.HistogramDataPoint:
    return otel.HistogramDataPoint(
        attributes,
        start_ns,
        now_ns,
        count=distribution.num_observed,
        sum=distribution.sum,
        bucket_counts=distribution.buckets,
        explicit_bounds=distribution.bounds,
        min=_UNKNOWN,
        max=_UNKNOWN,
    )


def _data(metric: Metric, points: list[Any]) -> otel.Sum | otel.Gauge | otel.Histogram:
    cumulative = otel.AggregationTemporality.CUMULATIVE
    if metric.kind is Kind.COUNTER:
        return otel.Sum(points, cumulative, is_monotonic=True)
    if metric.kind is Kind.GAUGE:
        return otel.Gauge(points)
    return otel.Histogram(points, cumulative)


def interval_s(environment: Mapping[str, str]) -> float:
    """Return the export interval in seconds. An invalid value gives the default, as in the SDK."""
    given = environment.get("OTEL_METRIC_EXPORT_INTERVAL", "")
    try:
        return max(float(given or _DEFAULT_MS), 1.0) / 1000
    except ValueError:
        logger.warning(
            "OTEL_METRIC_EXPORT_INTERVAL=%s is not a number of milliseconds; using the default",
            given,
        )
        return _DEFAULT_MS / 1000
