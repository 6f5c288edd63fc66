"""The best fixed K and the policy's share of it, on answers and prices made by hand."""

from __future__ import annotations

import pytest

from benchmarks.copying_oracle import measure, numbered, oracle_table, shipped
from benchmarks.priced_passes import RowPrices
from benchmarks.priced_rounds import Question
from deployments.simulation.step_costs import parse_step_ms
from specdec_core.config import KPolicyName, default_draft_tokens

TEXT = tuple(range(40))
COPY = Question((*TEXT, 50, 51), (*TEXT[2:], 60))
"""A prompt that ends with new tokens, and the text again."""
NEW = Question(tuple(range(40)), tuple(range(40, 80)))
FREE_ROWS = RowPrices(parse_step_ms("10+0.001"), fixed_s=0.0, cached_s=0.0)
DEAR_ROWS = RowPrices(parse_step_ms("0.001+10"), fixed_s=0.0, cached_s=0.0)


def found(question: Question, prices: RowPrices) -> dict[str, object]:
    return measure([question] * 4, prices, 1, (0, 1, 4, 8), shipped(8), noise=0.0, turns=1)


def test_ids_are_numbered_as_they_come() -> None:
    assert numbered([900, 7, 900], [5, 7]) == Question((0, 1, 0), (2, 1))


def test_where_rows_are_free_the_longest_k_is_best_for_a_copy() -> None:
    """After the first token 37 copied ones and a new one: four rounds of nine, and one of two."""
    cell = found(COPY, FREE_ROWS)
    assert cell["best_fixed_k"] == 8
    assert cell["fixed"]["0"] == 1.0
    assert 1 < cell["fixed"]["1"] < cell["fixed"]["4"] < cell["fixed"]["8"] == cell["oracle"]
    assert cell["oracle"] == pytest.approx(38 / 5, rel=0.01)
    assert cell["policy_over_oracle"] == pytest.approx(cell["policy"] / cell["oracle"])
    assert cell["policy"] > 2


def test_where_a_row_costs_a_pass_no_k_gains_and_the_policy_loses_nothing() -> None:
    cell = found(NEW, DEAR_ROWS)
    assert (cell["best_fixed_k"], cell["oracle"]) == (0, 1.0)
    assert cell["policy"] == pytest.approx(1.0, abs=0.01)


def test_the_policy_ships_its_own_k_and_has_a_line_in_the_table() -> None:
    usual = default_draft_tokens(KPolicyName.GOODPUT, has_gpu=False)
    assert shipped(None).num_draft_tokens == usual
    assert shipped(3).num_draft_tokens == 3
    table = oracle_table([{"category": "edit", **found(COPY, FREE_ROWS)}])
    assert table.row_count == 1
    assert [column.header for column in table.columns][-3:] == ["best K", "policy", "/ best"]
