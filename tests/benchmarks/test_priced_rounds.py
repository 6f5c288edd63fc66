"""Recorded answers over a table of prices: ids are the recorded ones, seconds the table's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.priced_passes import Bill, PassSize, RowPrices
from benchmarks.priced_rounds import (
    OFF,
    SHIPPED,
    Answers,
    Question,
    asked,
    measure,
    recorded_target,
    run,
)
from deployments.simulation.step_costs import parse_step_ms

PRICES = RowPrices(parse_step_ms("1:10,4:12,8:20"), fixed_s=1e-3, cached_s=0.0)
VOCAB = 110
REPEATING = [3, 4, 5, 6] * 8
"""Prompt lookup is right from the second time on."""
NEW = list(range(50, 82))


def recorded(ids: list[int]) -> Answers:
    return Answers({0.0: [Question((1, 2, 3), tuple(ids))]}, num_ids=100)


@pytest.mark.parametrize(
    ("num_rows", "ms"), [(1, 11.0), (2, 11.6667), (4, 13.0), (6, 17.0), (8, 21.0), (16, 37.0)]
)
def test_a_pass_costs_its_rows_and_what_every_pass_costs(num_rows: int, ms: float) -> None:
    assert PRICES.seconds(PassSize(1, num_rows, 0)) == pytest.approx(ms / 1e3, rel=1e-4)


def test_what_rows_read_has_its_price() -> None:
    prices = replace(PRICES, cached_s=2e-6)
    assert prices.seconds(PassSize(4, 4, 500)) == pytest.approx(0.014)


def test_plain_decoding_costs_a_pass_a_token() -> None:
    questions, bill = asked(recorded(NEW), 0.0, count=4), Bill(PRICES)
    target = recorded_target(questions, VOCAB, bill)
    turn = run(questions, target, bill, streams=2, temperature=0.0, speculation=OFF)
    assert (turn.tokens, turn.num_drafted) == (4 * 32, 0)
    # Two waves: their prompts of 4 ids together, then 31 passes of two rows.
    prompts_s, rows_s = PRICES.seconds(PassSize(2, 8, 0)), PRICES.seconds(PassSize(2, 2, 0))
    assert turn.seconds == pytest.approx(2 * (prompts_s + 31 * rows_s))
    assert turn.decoding_s == pytest.approx(2 * 31 * rows_s)


def test_an_answer_that_repeats_itself_is_cheaper_with_speculation() -> None:
    cell = measure(recorded(REPEATING), PRICES, 0.05, 0.0, 1, turns=2)
    assert all(ratio > 1.2 for ratio in cell["on_over_off"])
    assert all(share > 0.4 for share in cell["accepted_share"])


def test_an_answer_without_a_repetition_costs_the_same() -> None:
    cell = measure(recorded(NEW), PRICES, 0.05, 0.0, 2, turns=1)
    assert cell["on_over_off"] == pytest.approx([1.0], abs=0.01)


def test_an_answer_that_differs_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that keeps what was rejected emits what comes behind it."""
    questions = asked(recorded([*REPEATING[:18], *NEW]), 0.0, count=1)
    bill = Bill(PRICES)
    target = recorded_target(questions, VOCAB, bill)
    run(questions, target, bill, streams=1, temperature=0.0, speculation=SHIPPED)
    monkeypatch.setattr(target, "rollback", lambda slot, length: None)
    with pytest.raises(AssertionError):
        run(questions, target, bill, streams=1, temperature=0.0, speculation=SHIPPED)
