"""A line through weighted points in few dimensions, whose slopes are never negative."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_PRIOR_SPREAD = 0.02
"""Standard deviation of a coordinate, relative to its mean, at which data and prior count the
same."""


class Point(NamedTuple):
    at: tuple[float, ...]
    value: float
    weight: float


def fit_line(points: Sequence[Point], first_share: float) -> tuple[float, list[float]]:
    """Return the base and the slopes of the least-squares line; none is negative.

    If the points do not determine a slope, the first coordinate makes `first_share` of the mean
    value and the others nothing.
    """
    total, mean_value, mean = _means(points)
    size = len(mean)
    square, product = _moments(points, mean, mean_value, total)
    for i in range(size):
        ridge = (_PRIOR_SPREAD * mean[i]) ** 2
        square[i][i] += ridge
        if i == 0:
            product[i] += ridge * first_share * mean_value / mean[i]
    slopes = _non_negative(square, product)
    base = mean_value - sum(slope * at for slope, at in zip(slopes, mean, strict=True))
    if base >= 0.0:
        return base, slopes
    for i in range(size):
        product[i] += mean[i] * mean_value  # moments about the origin, through which the line goes
        for j in range(size):
            square[i][j] += mean[i] * mean[j]
    return 0.0, _non_negative(square, product)


def _means(points: Sequence[Point]) -> tuple[float, float, list[float]]:
    """Return the total weight, and the means of values and coordinates."""
    total = sum_value = 0.0
    sums = [0.0 for _ in points[0].at]
    for at, value, weight in points:
        total += weight
        sum_value += value * weight
        for i, x in enumerate(at):
            sums[i] += x * weight
    return total, sum_value / total, [one / total for one in sums]


def _moments(
    points: Sequence[Point], mean: Sequence[float], mean_value: float, total: float
) -> tuple[list[list[float]], list[float]]:
    size = range(len(mean))
    square = [[0.0 for _ in size] for _ in size]
    product = [0.0 for _ in size]
    for at, value, weight in points:
        off = [x - middle for x, middle in zip(at, mean, strict=True)]
        share, off_value = weight / total, value - mean_value
        for i in size:
            part, row = share * off[i], square[i]
            product[i] += part * off_value
            for j in size:
                row[j] += part * off[j]
    return square, product


def _non_negative(square: Sequence[Sequence[float]], product: Sequence[float]) -> list[float]:
    """Return the slopes of least squares. The most negative slope is left out, one by one, until
    none is negative."""
    slopes = [0.0 for _ in product]
    active = [i for i in range(len(product)) if square[i][i] > 0.0]
    while active:
        found = _solve(
            [[square[i][j] for j in active] for i in active], [product[i] for i in active]
        )
        least, index = min(zip(found, active, strict=True))
        if least >= 0.0:
            for i, slope in zip(active, found, strict=True):
                slopes[i] = slope
            break
        active.remove(index)
    return slopes


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Solve by Gauss's elimination. The ridge keeps the matrix positive definite, so no row is
    swapped."""
    size = len(right)
    for i in range(size):
        for row in range(i + 1, size):
            factor = matrix[row][i] / matrix[i][i]
            right[row] -= factor * right[i]
            for column in range(i, size):
                matrix[row][column] -= factor * matrix[i][column]
    found = [0.0 for _ in right]
    for i in reversed(range(size)):
        known = sum(matrix[i][j] * found[j] for j in range(i + 1, size))
        found[i] = (right[i] - known) / matrix[i][i]
    return found
