"""Buckets and quantiles beside the plain list of what was observed."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from deployments.observability.metrics.histogram import BOUNDS_S, Histogram, quantile


def observed(values: list[float]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.observe(value)
    return histogram


def test_every_bucket_holds_what_is_above_the_bound_before_and_at_most_its_own() -> None:
    rng = random.Random(0)
    values = [*BOUNDS_S, *(10 ** rng.uniform(-5, 1) for _ in range(500))]
    ends = [0.0, *BOUNDS_S, float("inf")]
    expected = [sum(lower < value <= upper for value in values) for lower, upper in pairwise(ends)]
    found = observed(values)
    assert found.buckets == expected
    assert found.sum_s == pytest.approx(sum(values))


def test_less_than_nothing_is_nothing() -> None:
    found = observed([-0.5, 0.0])
    assert (found.buckets[0], found.sum_s) == (2, 0.0)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 0.99])
def test_a_quantile_lies_in_the_bucket_of_the_value_that_has_its_rank(share: float) -> None:
    rng = random.Random(1)
    values = sorted(rng.lognormvariate(-6.0, 1.0) for _ in range(999))
    exact = values[round(share * len(values)) - 1]
    lower = max((bound for bound in BOUNDS_S if bound < exact), default=0.0)
    upper = min(bound for bound in BOUNDS_S if bound >= exact)
    assert lower <= quantile(BOUNDS_S, observed(values).buckets, share) <= upper


def test_above_the_last_bound_nothing_is_known_but_that_bound() -> None:
    assert quantile(BOUNDS_S, observed([5.0, 7.0]).buckets, 0.5) == BOUNDS_S[-1]
