"""Histogram of durations: counts by bucket, and the sum."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

BOUNDS_S = (
    *(0.0001, 0.00015, 0.0002, 0.0003, 0.0004, 0.0005, 0.0007),
    *(0.001, 0.00125, 0.0015, 0.00175, 0.002, 0.0025, 0.003, 0.004, 0.005, 0.007),
    *(0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0),
)
"""Upper ends in seconds, ascending. The last bucket has none. Finest around the 2 ms that a round
may pay."""


class Histogram:
    """Histogram of constant size. An observation changes one bucket's count and the sum."""

    __slots__ = ("bounds", "buckets", "sum_s")

    def __init__(self, bounds: Sequence[float] = BOUNDS_S) -> None:
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration. A negative difference between intervals of two clocks counts as 0."""
        if seconds < 0.0:
            seconds = 0.0
        self.buckets[bisect_left(self.bounds, seconds)] += 1
        self.sum_s += seconds

    def add(self, buckets: Sequence[int], sum_s: float) -> None:
        """Add the observations of another histogram. Raises ValueError if its buckets differ."""
        if len(buckets) != len(self.buckets):
            raise ValueError(f"{len(buckets)} buckets are added to {len(self.buckets)}")
        for index, count in enumerate(buckets):
            self.buckets[index] += count
        self.sum_s += sum_s


def quantile(bounds_s: Sequence[float], buckets: Sequence[int], share: float) -> float:
    """Return the value below which `share` of the observations lie.

    Observations count as spread evenly within their bucket, as in Prometheus. The result is at most
    the highest bound.
    """
    wanted = share * sum(buckets)
    seen = 0
    for index, upper in enumerate(bounds_s):
        count = buckets[index]
        if count and seen + count >= wanted:
            lower = bounds_s[index - 1] if index else 0.0
            return lower + (upper - lower) * (wanted - seen) / count
        seen += count
    return bounds_s[-1]
