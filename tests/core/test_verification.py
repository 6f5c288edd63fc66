"""Verdicts on hand-made proposals and choices."""

import pytest

from specdec_core.worker.round import verify


def test_every_match_is_accepted_and_the_bonus_token_follows() -> None:
    assert verify((5, 6, 7), (5, 6, 7, 8)) == (5, 6, 7, 8)


def test_the_first_mismatch_is_replaced_by_the_targets_choice() -> None:
    assert verify((5, 6, 7), (5, 9, 7, 8)) == (5, 9)


def test_a_match_after_a_mismatch_is_not_accepted() -> None:
    assert verify((5, 6, 7), (9, 6, 7, 8)) == (9,)


def test_an_empty_proposal_is_plain_decoding() -> None:
    assert verify((), (4,)) == (4,)


def test_one_draft_and_full_acceptance_commit_two_tokens() -> None:
    assert verify((3,), (3, 4)) == (3, 4)


def test_a_missing_choice_is_our_mistake() -> None:
    with pytest.raises(AssertionError, match="chooses once behind every"):
        verify((1, 2), (1, 2))
