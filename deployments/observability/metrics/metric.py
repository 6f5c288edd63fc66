"""What a metric is, and how it becomes the samples that Prometheus knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple

from specdec.v1 import generation_pb2 as pb

LE = "le"
"""Prometheus's label of a bucket: its upper end."""


class Kind(StrEnum):
    """As Prometheus calls them."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"
    """A count and a sum alone."""


class Distribution(NamedTuple):
    """How often what was observed."""

    bounds: tuple[float, ...]
    """Upper ends, ascending; empty in a summary."""
    buckets: tuple[int, ...]
    """Index j: observations of at most bounds[j] and more than the bound before; one more bucket
    than bounds."""
    sum: float

    @property
    def num_observed(self) -> int:
        return sum(self.buckets)


class Point(NamedTuple):
    """A metric's value for one set of labels."""

    value: float | Distribution
    labels: tuple[str, ...] = ()
    """In the order of the metric's."""


class Sample(NamedTuple):
    """A line of a page."""

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
    """Everything that is known of one; its values are those that `read` finds."""

    name: str
    """Without what Prometheus appends for its kind."""
    kind: Kind
    text: str
    read: Read
    labels: tuple[str, ...] = ()
    unit: str = ""
    """As OpenTelemetry writes it: s, {token}."""
    bounds: tuple[float, ...] = ()
    otel_name: str = ""
    is_vllm: bool = False
    """vLLM has the same under `vllm:`."""

    @property
    def otlp_name(self) -> str:
        return self.otel_name or self.name.replace("_", ".", 1)

    @property
    def sample_labels(self) -> dict[str, tuple[str, ...]]:
        """Of every sample that it has, by the sample's name."""
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

    def _of_distribution(self, labels: Mapping[str, str], found: Distribution) -> Iterator[Sample]:
        if self.kind is Kind.HISTOGRAM:
            ends = [*(f"{bound:g}" for bound in found.bounds), "+Inf"]
            for end, at_most in zip(ends, accumulate(found.buckets), strict=True):
                yield Sample(f"{self.name}_bucket", {**labels, LE: end}, at_most)
        yield Sample(f"{self.name}_count", {**labels}, found.num_observed)
        yield Sample(f"{self.name}_sum", {**labels}, found.sum)
