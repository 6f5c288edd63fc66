"""Prices of verification rows, from a clock that the passes move."""

from __future__ import annotations

import pytest

from benchmarks.row_prices import SEQUENCES, TOKENS, prices, table
from tests.fakes import TokenListModel


def test_a_drafted_row_costs_its_share_of_a_plain_token() -> None:
    model = TokenListModel()

    def clock() -> float:
        """10 ms for each pass, and 1 ms for each token in it."""
        return 0.010 * model.num_passes + 0.001 * model.num_fed

    found = prices(model, 8, 3, clock=clock)
    assert [(one.sequences, one.tokens) for one in found] == [
        (sequences, tokens) for sequences in SEQUENCES for tokens in TOKENS
    ]
    for one in found:
        plain = 0.010 + 0.001 * one.sequences
        assert one.median_s == pytest.approx(0.010 + 0.001 * one.sequences * one.tokens)
        if one.tokens == 1:
            assert one.drafted_row is None
        else:
            assert one.drafted_row == pytest.approx(0.001 * one.sequences / plain)
    assert model.num_slots == 0
    assert len(table(found).splitlines()) == len(found) + 1
