"""Which number of drafted tokens makes the most tokens per second."""

from __future__ import annotations

import itertools
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_core.speculation.pass_prices import PassPrices, Price
from specdec_core.speculation.token_selection import (
    CandidateBatch,
    CandidateSize,
    DraftedRow,
    best,
    counts,
    most_likely_first,
)


@cache
def tiled_cost(tile_rows: int = 8) -> PassPrices:
    """10 ms a tile of 8 and 1 ms a row, seen at every size up to 64 rows."""
    cost = PassPrices(tile_rows=tile_rows)
    for _, rows in itertools.product(range(30), range(4, 65)):
        cost.observe(4, rows, 0.010 * -(-rows // 8) + 0.001 * rows)
    return cost


def _expected(chances: list[float]) -> list[float]:
    return list(itertools.accumulate(chances, initial=0.0))


@given(
    st.lists(st.floats(0.0, 1.0), max_size=40),
    st.integers(1, 8),
    st.floats(0.0, 0.05),
)
def test_no_other_number_at_the_end_of_a_step_is_better(
    chances: list[float], num_sequences: int, spent_s: float
) -> None:
    cost = tiled_cost()
    ordered = sorted(chances, reverse=True)
    group = CandidateBatch(num_sequences, _expected(ordered), spent_s)
    found = counts(group, cost)
    assert [found[0].num_kept, found[-1].num_kept] == [0, len(chances)]
    for count in found:
        tokens = num_sequences + sum(ordered[: count.num_kept])
        seconds = spent_s + cost.price(num_sequences, num_sequences + count.num_kept).seconds
        assert count.tokens_per_second <= (1.0 + 1e-9) * tokens / seconds
    chosen = best(found)
    assert all(c.tokens_per_second <= 1.02 * chosen.tokens_per_second + 1e-9 for c in found)


class _EvenCost(PassPrices):
    """1 ms for each drafted row, 10 ms for all others."""

    def price(self, sequences: int, rows: int) -> Price:
        return Price(0.010 + 0.001 * (rows - sequences), 0.0)

    def last_alike(self, rows: int) -> int:
        return rows


@pytest.mark.parametrize(("num_undrafted", "price"), [(3, 1.2), (15, 1.4), (63, 1.6)])
def test_the_more_sequences_gain_nothing_the_more_a_drafted_token_must_earn(
    num_undrafted: int, price: float
) -> None:
    """As a multiple of the time that its row adds."""
    size = num_undrafted + 1
    for share, is_kept in ((0.99, False), (1.01, True)):
        tokens = [share * price * size / 10] * 6
        group = CandidateBatch(size, _expected(tokens), num_undrafted=num_undrafted)
        assert (best(counts(group, _EvenCost())).num_kept > 0) == is_kept


def test_a_tile_that_has_begun_is_filled_and_the_next_one_needs_a_reason() -> None:
    cost = tiled_cost()
    poor = CandidateBatch(4, _expected([0.1] * 20))
    assert best(counts(poor, cost)).num_rows == 4, "a row costs more than a tenth of a token"
    fair = CandidateBatch(4, _expected([0.5] * 20))
    assert best(counts(fair, cost)).num_rows == 8


def test_what_was_spent_on_drafting_makes_another_tile_worth_it() -> None:
    group = CandidateBatch(4, _expected([0.9] * 20), spent_s=0.0)
    without = best(counts(group, tiled_cost())).num_rows
    assert best(counts(group._replace(spent_s=0.1), tiled_cost())).num_rows > without


@pytest.mark.parametrize(
    ("tokens_per_second", "worth", "num_kept"),
    [(101.0, 101.0, 0), (103.0, 103.0, 4), (103.0, 99.0, 0)],
)
def test_drafted_tokens_are_checked_where_they_gain_enough(
    tokens_per_second: float, worth: float, num_kept: int
) -> None:
    none = CandidateSize(0, 8, 100.0, 100.0, 100.0, 1.0)
    found = [none, CandidateSize(4, 12, tokens_per_second, worth, tokens_per_second, 1.0)]
    assert best(found).num_kept == num_kept


def test_the_likeliest_tokens_come_first_and_of_those_alike_who_has_the_most_left() -> None:
    """The sequences behind catch up, and a batch ends sooner."""
    runs = [
        DraftedRow(0, [0.5, 0.25], 10),
        DraftedRow(2, [0.52, 0.27], 30),
        DraftedRow(3, [0.9], 5),
    ]
    assert most_likely_first(runs) == ([3, 2, 0, 2, 0], [0.9, 0.52, 0.5, 0.27, 0.25])


@given(st.lists(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=15), min_size=1, max_size=9))
def test_every_token_is_listed_once_behind_those_before_it(rows: list[list[float]]) -> None:
    runs = [DraftedRow(n, sorted(row, reverse=True), 7 * n % 5) for n, row in enumerate(rows)]
    order, chances = most_likely_first(runs)
    for run in runs:
        own = [chance for row, chance in zip(order, chances, strict=True) if row == run.row]
        assert own == list(run.chances)
    assert all(one >= next_one - 0.1 for one, next_one in itertools.pairwise(chances))
