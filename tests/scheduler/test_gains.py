"""What tokens drafted in a row earn."""

from __future__ import annotations

import pytest

from specdec_core.speculation.token_selection import (
    chances_in_a_row,
    expected_accepted,
    num_worthwhile,
)


def test_a_token_needs_all_before_it() -> None:
    assert chances_in_a_row(0.5, 3) == [0.5, 0.25, 0.125]
    assert expected_accepted(0.5, 3) == 0.875


@pytest.mark.parametrize(
    ("rate", "price", "limit", "count"),
    [(0.5, 0.2, 5, 2), (0.5, 0.2, 1, 1), (0.5, 0.5, 5, 0), (0.9, 0.0, 4, 4), (0.0, 0.0, 4, 0)],
)
def test_tokens_are_worth_their_price_as_far_as_their_chance_exceeds_it(
    rate: float, price: float, limit: int, count: int
) -> None:
    assert num_worthwhile(rate, price, limit) == count
