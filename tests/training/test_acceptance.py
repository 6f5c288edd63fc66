"""Acceptance length from runs of agreement, by rounds as decoding would take them."""

from __future__ import annotations

import pytest

from specdec_core.training.acceptance import HeldOutAcceptance, acceptance_length

YES, NO = True, False


@pytest.mark.parametrize(
    ("runs", "num_draft_tokens", "expected"),
    [
        ([[NO, NO, NO]], 4, 1.0),
        ([[YES] * 10], 4, 5.0),
        ([[YES] * 10], 1, 2.0),
        ([[YES, NO, YES, YES, NO]], 4, 2.5),
        ([[YES, NO], [NO, NO]], 4, 4 / 3),
        ([], 4, 0.0),
    ],
)
def test_tokens_per_round(runs: list[list[bool]], num_draft_tokens: int, expected: float) -> None:
    assert acceptance_length(runs, num_draft_tokens) == pytest.approx(expected)


def test_the_bound_of_coupled_sampling() -> None:
    assert HeldOutAcceptance(greedy=0, overlap=1.0, length=0).coupled == 1.0
    assert HeldOutAcceptance(greedy=0, overlap=0.5, length=0).coupled == pytest.approx(1 / 3)
