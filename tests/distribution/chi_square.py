"""Pearson's chi-square test, exact enough for p-values of 1e-12, in the standard library alone.

Significance. Every test of this folder rejects at p < SIGNIFICANCE. The folder makes fewer than
1,000 such decisions, so by Bonferroni's bound a correct program fails with probability below 1e-3
for one choice of seeds. The seeds are fixed: a run that passes once passes always.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple, TypeVar

SIGNIFICANCE = 1e-6
MIN_EXPECTED = 5.0
"""Cells that expect fewer are pooled: below, the statistic is not chi-square distributed."""

Outcome = TypeVar("Outcome", bound=Hashable)


class ChiSquare(NamedTuple):
    """A statistic with its degrees of freedom. Those of independent samples add up."""

    statistic: float
    degrees: int

    @property
    def p_value(self) -> float:
        return survival(self.statistic, self.degrees)

    @property
    def is_rejected(self) -> bool:
        return self.p_value < SIGNIFICANCE

    def __str__(self) -> str:
        return f"chi-square {self.statistic:.1f} on {self.degrees} degrees, p = {self.p_value:.2g}"


def goodness_of_fit(observed: Counter[Outcome], law: Mapping[Outcome, float]) -> ChiSquare:
    """Counts against the probabilities of every possible outcome, which must add up to 1.

    An outcome that the law rules out gives an infinite statistic: once is too often.
    """
    assert observed, "no samples say nothing"
    assert math.isclose(math.fsum(law.values()), 1.0, abs_tol=1e-9), "not a distribution"
    if any(law.get(outcome, 0.0) == 0.0 for outcome in observed):
        return ChiSquare(math.inf, 1)
    cells = _cells_that_expect_enough(observed, law)
    statistic = math.fsum((count - expected) ** 2 / expected for expected, count in cells)
    return ChiSquare(statistic, len(cells) - 1)


def _cells_that_expect_enough(
    observed: Counter[Outcome], law: Mapping[Outcome, float]
) -> list[tuple[float, int]]:
    """(expected, observed) of every cell. Outcomes are taken from the rarest on.

    Which of them share a cell depends on the law alone: looking at the counts would bias the test.
    """
    cells: list[tuple[float, int]] = []
    expected, count = 0.0, 0
    for outcome in sorted(law, key=lambda outcome: (law[outcome], repr(outcome))):
        expected += law[outcome] * observed.total()
        count += observed[outcome]
        if expected >= MIN_EXPECTED:
            cells.append((expected, count))
            expected, count = 0.0, 0
    if expected > 0.0:  # only when all outcomes together expect too little for another cell
        rest_expected, rest_count = cells.pop() if cells else (0.0, 0)
        cells.append((expected + rest_expected, count + rest_count))
    return cells


def total(parts: Iterable[ChiSquare]) -> ChiSquare:
    """The test of all parts at once, when their samples are independent of each other."""
    listed = list(parts)
    return ChiSquare(
        math.fsum(part.statistic for part in listed), sum(part.degrees for part in listed)
    )


def survival(statistic: float, degrees: int) -> float:
    """P(chi-square with `degrees` degrees of freedom > statistic)."""
    if degrees == 0:
        return 1.0
    return regularised_upper_gamma(degrees / 2, statistic / 2)


def regularised_upper_gamma(a: float, x: float) -> float:
    """Q(a, x) = Gamma(a, x) / Gamma(a): the series below x = a + 1, the continued fraction above.

    Both converge within a few multiples of sqrt(a) terms there (Numerical Recipes, section 6.2).
    """
    assert a > 0
    assert x >= 0
    if math.isinf(x):
        return 0.0
    if x == 0:
        return 1.0
    scale = math.exp(a * math.log(x) - x - math.lgamma(a))
    return 1.0 - scale * _lower_series(a, x) if x < a + 1 else scale * _upper_fraction(a, x)


def _lower_series(a: float, x: float) -> float:
    term = result = 1.0 / a
    n = 0
    while term > result * 1e-16:
        n += 1
        term *= x / (a + n)
        result += term
    return result


def _upper_fraction(a: float, x: float) -> float:
    """Lentz's method; no denominator of this fraction is 0 for x > a + 1."""
    b = x + 1 - a
    c, d = math.inf, 1.0 / b
    result = d
    for n in range(1, 10_000):
        numerator = -n * (n - a)
        b += 2
        d = 1.0 / (numerator * d + b)
        c = b + numerator / c
        result *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return result
