"""Export every metric on the port that Ray has on each node, as `ray_<name>`.

All metrics are set as gauges, including counters and buckets. Ray's own counters cannot begin at
zero. Its histograms take one observation at a time and estimate their sums from the buckets. Totals
set as gauges are exact, exist from the start, and end with their series. For Prometheus only the
word after `# TYPE` differs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ray.util import metrics

from deployments.observability.metrics.registry import METRICS
from specdec.v1 import generation_pb2 as pb

PERIOD_S = 5.0
"""Seconds between exports. Ray forwards gauges every 10 s, and drops those that were not set again
in 20 s."""
_AT_ONCE = 32
"""Number of samples set between two yields to the event loop. Setting one takes microseconds."""


class RayPort:
    """Series of one coordinator. All of them have `labels`."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = dict(labels)
        self._gauges: dict[str, metrics.Gauge] = {}
        for metric in METRICS:
            for name, own in metric.sample_labels.items():
                gauge = metrics.Gauge(name, metric.text, (*own, *self._labels))
                self._gauges[name] = gauge.set_default_tags(self._labels)

    async def tell(self, status: pb.PoolStatusResponse) -> None:
        samples = (sample for metric in METRICS for sample in metric.samples(status))
        for number, (name, labels, value) in enumerate(samples, 1):
            self._gauges[name].set(float(value), labels)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
