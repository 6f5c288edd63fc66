"""Covering arrays: few rows in which every two values of every two factors meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Any

Factors = Mapping[str, Sequence[Any]]
Row = dict[str, Any]
Pair = tuple[tuple[str, Any], tuple[str, Any]]


def covering_rows(factors: Factors) -> list[Row]:
    """Rows, deterministic and greedily few, that cover every pair of `pairs_of(factors)`."""
    missing = pairs_of(factors)
    rows: list[Row] = []
    while missing:
        # Dictionaries keep their order, so the first missing pair is the same in every run.
        row = _extended(dict(next(iter(missing))), factors, missing)
        for pair in pairs_in(row):
            missing.pop(pair, None)
        rows.append(row)
    return rows


def pairs_of(factors: Factors) -> dict[Pair, None]:
    """Every pair of values of two different factors, in order."""
    return {
        ((name, value), (other, other_value)): None
        for name, other in combinations(factors, 2)
        for value, other_value in product(factors[name], factors[other])
    }


def pairs_in(row: Row) -> list[Pair]:
    """The pairs that a row covers; its keys are in the order of the factors."""
    return list(combinations(row.items(), 2))


def _extended(row: Row, factors: Factors, missing: Mapping[Pair, None]) -> Row:
    """Give every other factor the value that covers most missing pairs, in the factors' order."""
    for name in factors:
        if name not in row:
            row[name] = max(
                factors[name], key=lambda value: _num_covered(row, name, value, factors, missing)
            )
    return _ordered(row, factors)


def _num_covered(
    row: Row, name: str, value: Any, factors: Factors, missing: Mapping[Pair, None]
) -> int:
    return sum(pair in missing for pair in pairs_in(_ordered({**row, name: value}, factors)))


def _ordered(row: Row, factors: Factors) -> Row:
    return {name: row[name] for name in factors if name in row}
