"""The history that a K policy reads."""

from __future__ import annotations

from specdec_core.pool import AcceptanceHistory, FixedK


def test_a_round_that_accepted_nothing_counts_and_a_plain_one_does_not() -> None:
    history = AcceptanceHistory()
    for num_drafted, num_accepted in ((0, 0), (4, 0), (4, 3), (2, 0), (0, 0)):
        history.record(num_drafted, num_accepted)
    assert history.histogram == [2, 0, 0, 1]
    assert (history.num_rounds, history.num_drafted, history.num_accepted) == (5, 10, 3)


def test_a_fixed_k_is_the_same_whatever_happened() -> None:
    history = AcceptanceHistory()
    history.record(4, 0)
    assert [FixedK(3).num_draft_tokens(history, num_live) for num_live in (1, 64)] == [3, 3]
