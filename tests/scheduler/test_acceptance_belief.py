"""How much a sequence's own past says of it is learnt from how well it foretold."""

from __future__ import annotations

import random

import pytest

from specdec_core.speculation.acceptance import AcceptanceEstimator, AcceptanceHistory

K = 4


def sequences(
    rates: tuple[float, ...], num_rounds: int, belief: AcceptanceEstimator, is_drawn: bool = False
) -> list[AcceptanceHistory]:
    """One of each rate, after so many rounds."""
    rng = random.Random(7)
    histories = [AcceptanceHistory(is_drawn) for _ in rates]
    for _ in range(num_rounds):
        for rate, history in zip(rates, histories, strict=True):
            num_accepted = next((i for i in range(K) if rng.random() >= rate), K)
            belief.note(history, num_accepted, min(num_accepted + 1, K))
    return histories


def test_sequences_that_are_alike_are_not_told_apart_by_luck() -> None:
    belief = AcceptanceEstimator("ngram")
    histories = sequences((0.9,) * 64, 20, belief)
    newest = sequences((0.9,) * 64, 2, belief)
    for history in histories + newest:
        assert belief.of(history) == pytest.approx(0.9, abs=0.1)


def test_sequences_that_differ_are_told_apart_within_a_few_rounds() -> None:
    belief = AcceptanceEstimator("ngram")
    rates = (0.1, 0.9) * 16
    sequences(rates, 20, belief)
    bad, good = [], []
    for rate, history in zip(rates, sequences(rates, 4, belief), strict=True):
        (good if rate == 0.9 else bad).append(belief.of(history))
    assert sum(bad) / len(bad) < 0.45
    assert sum(good) / len(good) > 0.7


def test_a_sequence_without_a_past_is_like_all_the_others() -> None:
    belief = AcceptanceEstimator("ngram")
    sequences((0.3,) * 8, 50, belief)
    unknown = belief.of(AcceptanceHistory())
    assert unknown == belief.common == pytest.approx(0.3, abs=0.1)


def test_drawn_tokens_are_foretold_by_those_that_were_drawn() -> None:
    belief = AcceptanceEstimator("ngram")
    for _ in range(3):
        sequences((0.7,) * 8, 8, belief)
        sequences((0.3,) * 8, 8, belief, is_drawn=True)
    assert belief.of(AcceptanceHistory()) == pytest.approx(0.7, abs=0.1)
    assert belief.of(AcceptanceHistory(True)) == pytest.approx(0.3, abs=0.1)
