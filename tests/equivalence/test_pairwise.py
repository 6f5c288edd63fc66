"""The covering array covers what it says, with far fewer rows than all combinations."""

from __future__ import annotations

import math

import pytest

from tests.equivalence.pairwise import Factors, covering_rows, pairs_in, pairs_of

FACTORS: list[Factors] = [
    {"a": "xy", "b": "xy"},
    {"a": range(5), "b": range(3), "c": range(3), "d": range(2), "e": range(2)},
    {"a": "x", "b": range(7), "c": "xyz"},
    {name: range(3) for name in "abcdefgh"},
]


@pytest.mark.parametrize("factors", FACTORS)
def test_every_pair_is_covered_by_complete_rows(factors: Factors) -> None:
    rows = covering_rows(factors)
    assert all(list(row) == list(factors) for row in rows)
    assert all(row[name] in factors[name] for row in rows for name in factors)
    covered = {pair for row in rows for pair in pairs_in(row)}
    assert covered == set(pairs_of(factors))


@pytest.mark.parametrize("factors", FACTORS)
def test_the_rows_are_few(factors: Factors) -> None:
    sizes = sorted(len(values) for values in factors.values())
    fewest = sizes[-1] * sizes[-2]
    assert fewest <= len(covering_rows(factors)) <= min(3 * fewest, math.prod(sizes))


def test_pairs_join_different_factors() -> None:
    assert len(pairs_of({"a": "xy", "b": "xyz", "c": "x"})) == 2 * 3 + 2 + 3
    assert covering_rows({"a": "xy", "b": "z"}) == covering_rows({"a": "xy", "b": "z"})
