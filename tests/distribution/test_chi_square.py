"""The judge itself: its p-values are right, and it rejects what it should."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from tests.distribution.chi_square import ChiSquare, goodness_of_fit, survival, total


@pytest.mark.parametrize("degrees", [2, 4, 10, 124, 500])
@pytest.mark.parametrize("ratio", [0.1, 0.9, 1.0, 1.3, 2.0])
def test_survival_of_even_degrees_is_a_poisson_sum(degrees: int, ratio: float) -> None:
    """P(chi-square_2m > 2x) = P(Poisson(x) < m), summed term by term."""
    x = degrees * ratio / 2
    terms = [math.exp(k * math.log(x) - x - math.lgamma(k + 1)) for k in range(degrees // 2)]
    assert survival(2 * x, degrees) == pytest.approx(math.fsum(terms), rel=1e-9)


@pytest.mark.parametrize("statistic", [1e-3, 0.5, 1.0, 3.84, 23.9, 60.0])
def test_survival_of_one_degree_is_the_complementary_error_function(statistic: float) -> None:
    assert survival(statistic, 1) == pytest.approx(math.erfc(math.sqrt(statistic / 2)), rel=1e-9)


def test_survival_ends_at_one_and_zero() -> None:
    assert survival(0.0, 3) == survival(0.0, 0) == 1.0
    assert survival(math.inf, 3) == 0.0
    assert survival(5000.0, 10) == 0.0


def test_a_hand_computed_statistic() -> None:
    """60 throws of a die: (5 + 8 + 9 + 8 + 10 + 20) gives 13.4 on 5 degrees."""
    throws = Counter(dict(enumerate([5, 8, 9, 8, 10, 20])))
    result = goodness_of_fit(throws, dict.fromkeys(range(6), 1 / 6))
    assert result.statistic == pytest.approx(13.4)
    assert result.degrees == 5
    assert result.p_value == pytest.approx(0.0199, abs=1e-4)


def test_an_impossible_outcome_is_rejected_at_once() -> None:
    assert goodness_of_fit(Counter({"a": 10_000, "b": 1}), {"a": 1.0, "b": 0.0}).is_rejected
    assert goodness_of_fit(Counter({"a": 10_000, "c": 1}), {"a": 0.5, "b": 0.5}).is_rejected


def test_rare_outcomes_share_cells_and_are_still_counted() -> None:
    """100 outcomes that expect 0.2 each fill 4 cells of 5."""
    law = {"common": 0.98} | {f"rare {i}": 0.0002 for i in range(100)}
    fair = Counter({"common": 980}) + Counter({f"rare {i}": 1 for i in range(20)})
    assert goodness_of_fit(fair, law).degrees == 4
    assert not goodness_of_fit(fair, law).is_rejected
    assert goodness_of_fit(Counter({"common": 920, "rare 7": 80}), law).is_rejected


def test_p_values_are_uniform_for_the_right_law() -> None:
    """Of 2,000 samples about 200 have p < 0.1; 120 and 280 are 6 standard deviations away."""
    generator = random.Random(0)
    outcomes = list(range(60))
    weights = [0.9**i for i in outcomes]
    law = {i: weight / math.fsum(weights) for i, weight in zip(outcomes, weights, strict=True)}
    samples = [Counter(generator.choices(outcomes, weights, k=600)) for _ in range(2000)]
    p_values = [goodness_of_fit(sample, law).p_value for sample in samples]
    assert 120 < sum(p < 0.1 for p in p_values) < 280
    assert 120 < sum(p > 0.9 for p in p_values) < 280


def test_independent_statistics_add_up() -> None:
    assert total([ChiSquare(1.5, 2), ChiSquare(2.5, 3)]) == ChiSquare(4.0, 5)
