"""When a group is checked in another size than the best, to learn what passes of it cost."""

from __future__ import annotations

from specdec_core.pool.group_choice import Count
from specdec_core.pool.looking import most_overdue
from specdec_core.pool.step_costs import StepCost

BEST = Count(num_kept=0, num_rows=8, tokens_per_second=100.0, worth=100.0)
WORSE = Count(num_kept=8, num_rows=16, tokens_per_second=80.0, worth=80.0)
"""A look takes a quarter of a pass."""
SIZE = 8


def passes_until_a_look(cost: StepCost, *others: Count) -> tuple[int, Count]:
    """Of the best size, one after another."""
    for number in range(10_000):
        looked_at = most_overdue([BEST, *others], BEST, cost, SIZE)
        if looked_at is not BEST:
            return number, looked_at
        cost.observe(SIZE, BEST.num_rows, 0.02)
    raise AssertionError("nothing is ever looked at")


def test_a_look_comes_the_later_the_more_passes_have_told() -> None:
    """300 passes for each that tells, times the quarter that it takes; the line counts as two."""
    cost = StepCost()
    for evidence in (2, 3, 4):
        assert passes_until_a_look(cost, WORSE) == (300 * evidence // 4, WORSE)
        cost.observe(SIZE, WORSE.num_rows, 0.03)


def test_a_look_comes_the_later_the_more_it_takes() -> None:
    cheap, dear = WORSE, WORSE._replace(tokens_per_second=50.0, worth=50.0)
    assert passes_until_a_look(StepCost(), cheap)[0] == 150
    assert passes_until_a_look(StepCost(), dear)[0] == 600


def test_of_two_sizes_the_one_that_takes_less_is_looked_at_first_and_the_other_next() -> None:
    cost, dearer = StepCost(), Count(num_kept=24, num_rows=32, tokens_per_second=75.0, worth=75.0)
    assert passes_until_a_look(cost, dearer, WORSE) == (150, WORSE)
    cost.observe(SIZE, WORSE.num_rows, 0.03)
    assert passes_until_a_look(cost, dearer, WORSE) == (49, dearer)
