"""A leak is told from noise."""

from __future__ import annotations

import random

import pytest

from benchmarks.overload.trend import fit, second_half

SECONDS = [10.0 * place for place in range(180)]


def noisy(slope_per_s: float, seed: int = 0, level: float = 1000.0) -> list[float]:
    rng = random.Random(seed)
    return [level + slope_per_s * second + rng.gauss(0, 3) for second in SECONDS]


def test_a_straight_line_is_found_exactly() -> None:
    trend = fit([0.0, 10.0, 20.0, 30.0], [5.0, 6.0, 7.0, 8.0])
    assert trend.per_hour == pytest.approx(360.0)
    assert trend.error_per_hour == pytest.approx(0.0, abs=1e-9)
    assert trend.level == pytest.approx(6.5)


@pytest.mark.parametrize("seed", range(20))
def test_noise_does_not_grow(seed: int) -> None:
    assert not second_half(SECONDS, noisy(0.0, seed)).grows


@pytest.mark.parametrize("seed", range(20))
def test_a_leak_of_a_hundred_in_half_an_hour_does(seed: int) -> None:
    trend = second_half(SECONDS, noisy(100 / SECONDS[-1], seed))
    assert trend.grows
    assert trend.per_hour == pytest.approx(200, rel=0.2)


def test_what_fills_up_in_the_first_half_is_not_a_leak() -> None:
    values = [min(1000.0, 10 * second) for second in SECONDS]
    assert not second_half(SECONDS, values).grows


def test_one_more_file_every_minute_is_a_leak() -> None:
    assert second_half(SECONDS, [60.0 + second // 60 for second in SECONDS]).grows


def test_two_samples_make_no_line() -> None:
    with pytest.raises(ValueError, match="2 samples are too few"):
        fit([0.0, 1.0], [1.0, 1.0])
