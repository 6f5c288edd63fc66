"""When a group is checked in another size than the best, to learn what passes of it cost."""

from __future__ import annotations

import pytest

from specdec_core.speculation.token_selection import CandidateSize, Exploration


def count(
    num_kept: int, tokens_per_second: float, hope: float, seconds: float = 1.0
) -> CandidateSize:
    return CandidateSize(
        num_kept, 8 + num_kept, tokens_per_second, tokens_per_second, hope, seconds
    )


BEST = count(0, 100.0, 100.0)
HOPEFUL = count(8, 80.0, 110.0)
"""A look takes a fifth of a pass."""


def test_a_size_that_could_not_be_the_best_is_never_looked_at() -> None:
    looks = Exploration()
    for _ in range(1000):
        assert looks.chosen([BEST, count(8, 99.0, 101.0)], BEST) is BEST


def test_looks_take_no_more_than_passes_have_earned() -> None:
    looks, num_looks = Exploration(), 0
    for _ in range(1000):
        num_looks += looks.chosen([BEST, HOPEFUL], BEST) is HOPEFUL
    assert num_looks == pytest.approx((1.0 + 1000 * 0.01) / 0.2, abs=1)


def test_a_look_that_takes_more_than_was_earned_waits() -> None:
    dear = count(24, 40.0, 200.0, seconds=2.5)  # 1.5 passes
    looks = Exploration()
    waited = 0
    while looks.chosen([BEST, dear], BEST) is BEST:
        waited += 1
    assert waited == pytest.approx(50, abs=1)


def test_of_two_sizes_the_one_that_may_gain_most_for_its_price_is_looked_at_first() -> None:
    found = [BEST, HOPEFUL, count(24, 40.0, 115.0)]
    assert Exploration().chosen(found, BEST) is HOPEFUL


def test_what_the_best_itself_may_turn_out_to_be_is_learnt_by_it() -> None:
    unsure = count(4, 100.0, 112.0)
    assert Exploration().chosen([BEST, unsure, HOPEFUL], unsure) is unsure
