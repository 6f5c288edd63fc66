"""Recorded answers over a table of prices: ids are the recorded ones, seconds the table's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.priced_rounds import Prices, Recorded, asked, measure, run

PRICES = Prices({1: 10.0, 4: 12.0, 8: 20.0}, fixed_ms=1.0, cached_us=0.0)
REPEATING = [3, 4, 5, 6] * 8
"""Prompt lookup is right from the second time on."""
NEW = list(range(50, 82))


def recorded(ids: list[int]) -> dict[str, object]:
    answer = {"temperature": 0.0, "prompt": 0, "ids": ids}
    return {"prompts": [[1, 2, 3]], "answers": [answer], "num_ids": 100}


@pytest.mark.parametrize(
    ("num_rows", "ms"), [(1, 11.0), (2, 11.6667), (4, 13.0), (6, 17.0), (8, 21.0), (16, 41.0)]
)
def test_a_pass_between_two_sizes_costs_in_proportion(num_rows: int, ms: float) -> None:
    assert PRICES.seconds(num_rows, 0) == pytest.approx(ms / 1e3, rel=1e-4)


def test_what_rows_read_has_its_price() -> None:
    prices = replace(PRICES, cached_us=2.0)
    assert prices.seconds(4, 500) == pytest.approx(0.014)


def test_plain_decoding_costs_a_pass_a_token() -> None:
    questions = asked(recorded(NEW), 0.0, count=4)
    model = Recorded(110, PRICES)
    turn = run(questions, model, streams=2, temperature=0.0, is_speculating=False)
    assert (turn.tokens, turn.num_drafted) == (4 * 32, 0)
    # Two waves: their prompts of 4 ids together, then 31 passes of two rows.
    prompts_s, rows_s = PRICES.seconds(8, 0), PRICES.seconds(2, 0)
    assert turn.seconds == pytest.approx(2 * (prompts_s + 31 * rows_s))


def test_an_answer_that_repeats_itself_is_cheaper_with_speculation() -> None:
    cell = measure(recorded(REPEATING), PRICES, 0.05, 0.0, 1, turns=2)
    assert all(ratio > 1.2 for ratio in cell["on_over_off"])
    assert all(share > 0.4 for share in cell["accepted_share"])


def test_an_answer_without_a_repetition_costs_the_same() -> None:
    cell = measure(recorded(NEW), PRICES, 0.05, 0.0, 2, turns=1)
    assert cell["on_over_off"] == pytest.approx([1.0], abs=0.01)


def test_an_answer_that_differs_fails() -> None:
    """A target that keeps what was rejected emits what comes behind it."""

    class Forgetful(Recorded):
        def rollback(self, slot: int, length: int) -> None:
            pass

    broken_off = [*REPEATING[:18], *NEW]
    questions = asked(recorded(broken_off), 0.0, count=1)
    run(questions, Recorded(110, PRICES), streams=1, temperature=0.0, is_speculating=True)
    with pytest.raises(AssertionError):
        run(questions, Forgetful(110, PRICES), streams=1, temperature=0.0, is_speculating=True)
