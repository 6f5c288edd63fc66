"""`GET /metrics`: every metric in Prometheus's format, the same through any ingress.

A metric that vLLM has too has vLLM's name and meaning, under `specdec_`. `--metrics-compat vllm`
repeats these metrics under `vllm:`. Dashboards and load generators made for vLLM then work
unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.registry import Collector

from deployments.names import MetricsCompat
from deployments.observability.metrics import metric as ours
from deployments.observability.metrics.registry import CELL, METRICS, MODEL_NAME
from specdec.v1 import generation_pb2 as pb

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_OWN, _VLLM = "specdec_", "vllm:"


def metrics_page(status: pb.PoolStatusResponse, model_name: str, compat: MetricsCompat) -> bytes:
    """Return the page, in Prometheus's text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Page(status, model_name, compat))
    return generate_latest(registry)


class _Page(Collector):
    """Metrics of a service of one cell, or the samples of every cell with its number.

    A counter summed over cells would fall when one of them is away.
    """

    def __init__(
        self, status: pb.PoolStatusResponse, model_name: str, compat: MetricsCompat
    ) -> None:
        common = {MODEL_NAME: model_name}
        self._cells = [({**common, CELL: str(one.cell)}, one) for one in status.cells]
        self._cells = self._cells or [(common, status)]
        self._has_vllm_names = compat is MetricsCompat.VLLM

    def collect(self) -> Iterator[Metric]:
        for metric in METRICS:
            yield self._family(metric, _OWN)
            if metric.is_vllm and self._has_vllm_names:
                yield self._family(metric, _VLLM)

    def _family(self, metric: ours.Metric, prefix: str) -> Metric:
        family = Metric(metric.name.replace(_OWN, prefix, 1), metric.text, metric.kind)
        for labels, status in self._cells:
            for name, own, value in metric.samples(status):
                family.add_sample(name.replace(_OWN, prefix, 1), labels | own, value)
        return family
