"""Definition of a metric, and its conversion to Prometheus samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple

from specdec.v1 import generation_pb2 as pb

LE = "le"
"""Prometheus's label for the upper end of a bucket."""


class Kind(StrEnum):
    """Kinds of metrics, by Prometheus's names."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"
    """A count and a sum only."""


class Distribution(NamedTuple):
    """Number of observations in each bucket, and the sum of the observations."""

    bounds: tuple[float, ...]
    """Upper ends, ascending. Empty in a summary."""
    buckets: tuple[int, ...]
    """Counts by bucket, one more than bounds. Bucket j has observations above bounds[j - 1] and at
    most bounds[j]."""
    sum: float

    @property
    def num_observed(self) -> int:
        return sum(self.buckets)


class Point(NamedTuple):
    """A metric's value for one set of labels."""

    value: float | Distribution
    labels: tuple[str, ...] = ()
    """Values of the metric's labels, in the metric's order."""


class Sample(NamedTuple):
    """One line of a metrics page."""

    name: str
    labels: dict[str, str]
    value: float


Read = Callable[[pb.PoolStatusResponse], Iterable[Point]]

_SUFFIXES = {
    Kind.COUNTER: ("_total",),
    Kind.GAUGE: ("",),
    Kind.HISTOGRAM: ("_bucket", "_count", "_sum"),
    Kind.SUMMARY: ("_count", "_sum"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """Definition of one metric. `read` finds its values."""

    name: str
    """Name without the suffix that Prometheus appends for its kind."""
    kind: Kind
    text: str
    read: Read
    labels: tuple[str, ...] = ()
    unit: str = ""
    """Unit in OpenTelemetry's notation: s, {token}."""
    bounds: tuple[float, ...] = ()
    otel_name: str = ""
    is_vllm: bool = False
    """Whether vLLM has the same metric under `vllm:`."""

    @property
    def otlp_name(self) -> str:
        return self.otel_name or self.name.replace("_", ".", 1)

    @property
    def sample_labels(self) -> dict[str, tuple[str, ...]]:
        """Label names of each sample, by the sample's name."""
        return {
            self.name + suffix: (*self.labels, LE) if suffix == "_bucket" else self.labels
            for suffix in _SUFFIXES[self.kind]
        }

    def samples(self, status: pb.PoolStatusResponse) -> Iterator[Sample]:
        for point in self.read(status):
            labels = dict(zip(self.labels, point.labels, strict=True))
            if isinstance(point.value, Distribution):
                yield from self._of_distribution(labels, point.value)
            else:
                (suffix,) = _SUFFIXES[self.kind]
                yield Sample(self.name + suffix, labels, point.value)

    def _of_distribution(
        self, labels: Mapping[str, str], distribution: Distribution
    ) -> Iterator[Sample]:
        if self.kind is Kind.HISTOGRAM:
            ends = [*(f"{bound:g}" for bound in distribution.bounds), "+Inf"]
            for end, at_most in zip(ends, accumulate(distribution.buckets), strict=True):
                yield Sample(f"{self.name}_bucket", {**labels, LE: end}, at_most)
        yield Sample(f"{self.name}_count", {**labels}, distribution.num_observed)
        yield Sample(f"{self.name}_sum", {**labels}, distribution.sum)
