"""Every metric on the port that Ray has on each node, as `ray_<name>`.

All of them are set as gauges, counters and buckets too. Ray's own counters cannot begin at zero,
and its histograms take one observation at a time and tell their sums as guessed from the buckets;
totals that are set are exact, are there from the start, and end with the series they belong to. To
Prometheus only the word behind `# TYPE` differs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ray.util import metrics

from deployments.observability.metrics.registry import METRICS
from specdec.v1 import generation_pb2 as pb

PERIOD_S = 5.0
"""Ray passes gauges on every 10 s, and drops what was not set again in 20."""
_AT_ONCE = 32
"""Samples between two looks at the loop: setting one takes microseconds."""


class RayPort:
    """One coordinator's series. `labels` are those of all of them."""

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
