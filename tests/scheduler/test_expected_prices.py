"""Prices that are told: between and beyond the sizes that were timed."""

from __future__ import annotations

import pytest

from specdec_core.speculation.pass_prices import PriceTable, row_prices
from specdec_core.step_times import StepTime

GRID = [(n, n * tokens) for n in (1, 8, 32) for tokens in (1, 2, 5)]


def seconds(sequences: int, rows: int, cached: int = 0) -> float:
    return 0.010 + 0.0005 * rows + 0.0001 * sequences + 1e-6 * sequences * cached


def times(*sizes: tuple[int, int], cached: int = 0) -> list[StepTime]:
    return [StepTime(n, rows, seconds(n, rows, cached), cached) for n, rows in sizes]


@pytest.mark.parametrize(("sequences", "rows"), [(1, 3), (4, 12), (16, 16), (20, 60), (64, 128)])
def test_straight_prices_are_found_between_and_beyond_the_sizes(sequences: int, rows: int) -> None:
    found = PriceTable(times(*GRID)).at(sequences, rows, 0.0)
    assert found == pytest.approx(seconds(sequences, rows), rel=0.01)


def test_a_number_of_sequences_timed_once_grows_with_its_rows_as_the_others_do() -> None:
    table = PriceTable(times(*GRID, (16, 16), (64, 64)))
    assert table.at(16, 48, 0.0) == pytest.approx(seconds(16, 48))
    assert table.at(64, 192, 0.0) == pytest.approx(seconds(64, 192))


def test_without_drafted_rows_more_rows_cost_what_more_sequences_do() -> None:
    table = PriceTable(times((1, 1), (8, 8), (32, 32)))
    assert table.at(8, 32, 0.0) == pytest.approx(seconds(32, 32))


def test_cached_tokens_cost_what_two_lengths_have_shown() -> None:
    table = PriceTable([*times(*GRID), *times((8, 8), cached=400)])
    assert table.at(8, 16, 200.0) == pytest.approx(seconds(8, 16, 200))
    assert PriceTable(times(*GRID)).at(8, 16, 200.0) == pytest.approx(seconds(8, 16))


def test_rows_never_make_a_pass_shorter() -> None:
    table = PriceTable([StepTime(1, 1, 0.012), StepTime(1, 2, 0.011), StepTime(1, 5, 0.013)])
    assert table.at(1, 2, 0.0) == table.at(1, 1, 0.0) == 0.012


def test_the_log_says_what_a_drafted_row_costs_and_where_it_cannot_pay() -> None:
    told = row_prices([StepTime(n, rows, 0.002 * rows if n > 1 else 0.01) for n, rows in GRID])
    assert "0.00 at 1, " in told
    assert "1.00 at 32 (pays only if it is nearly certain)" in told
    assert row_prices([]) == ""
