"""The rows that a sequence is leased for: what they feed, and how many positions they need."""

from __future__ import annotations

import pytest

from specdec_core.messages import LeaseRow, is_round
from specdec_core.scheduler.rows import ScheduledRow, fit, plan_drafting, plan_verification
from specdec_core.scheduler.sequence import KVReservation, Sequence
from tests.scheduler.cell import request


def sequence(length: int) -> Sequence:
    return Sequence(0, request("a", (1,) * length, max_tokens=20), arrived_at=0.0)


@pytest.mark.parametrize(("num_draft_tokens", "slot_len"), [(0, 9), (1, 9), (2, 10), (4, 12)])
def test_a_draft_caches_all_that_it_drafts_but_the_last(
    num_draft_tokens: int, slot_len: int
) -> None:
    plan = plan_drafting(sequence(9), KVReservation("d", cached_len=7), num_draft_tokens, 100)
    assert (plan.lease_row.base_len, plan.end_len, plan.num_choices) == (7, 9, num_draft_tokens)
    assert plan.slot_len == slot_len


def test_a_target_caches_the_proposal_and_chooses_once_more() -> None:
    plan = plan_verification(sequence(9), KVReservation("t", cached_len=8), (3, 4), 100)
    assert (plan.lease_row.base_len, plan.end_len, plan.slot_len, plan.num_choices) == (8, 9, 11, 3)


def test_the_last_id_is_fed_even_where_it_is_believed_cached() -> None:
    for plan in (
        plan_verification(sequence(9), KVReservation("t", cached_len=12), (), 100),
        plan_drafting(sequence(9), KVReservation("d", cached_len=12), 1, 100),
    ):
        assert (plan.lease_row.base_len, plan.end_len) == (8, 9)


def test_a_long_catch_up_is_cut_and_chooses_nothing() -> None:
    plan = plan_verification(sequence(9), KVReservation("t", cached_len=2), (3, 4), 4)
    assert (plan.lease_row.base_len, plan.end_len, plan.num_choices, plan.proposal) == (2, 6, 0, ())


@pytest.mark.parametrize(("max_len", "kept"), [(20, 3), (12, 3), (11, 2), (9, 0)])
def test_a_row_gives_up_drafted_tokens_for_lack_of_room(max_len: int, kept: int) -> None:
    plan = fit(
        plan_verification(sequence(9), KVReservation("t", cached_len=8), (3, 4, 5), 100), max_len
    )
    assert (plan.proposal, plan.num_choices) == ((3, 4, 5)[:kept], kept + 1)
    assert plan.slot_len == 9 + kept


def test_a_drafting_row_gives_up_tokens_too() -> None:
    plan = fit(plan_drafting(sequence(9), KVReservation("d", cached_len=8), 4, 100), 10)
    assert (plan.num_choices, plan.slot_len) == (2, 10)


def test_committed_ids_are_never_given_up() -> None:
    plan: ScheduledRow = plan_verification(sequence(9), KVReservation("t", cached_len=8), (3,), 100)
    with pytest.raises(AssertionError, match="9 ids do not fit into 8"):
        fit(plan, 8)


@pytest.mark.parametrize(
    ("num_fed", "num_choices", "expected"),
    [(1, 1, True), (4, 1, True), (5, 1, False), (7, 6, True), (8, 6, False), (1, 0, False)],
)
def test_more_fed_ids_than_a_round_leaves_are_a_catch_up(
    num_fed: int, num_choices: int, expected: bool
) -> None:
    assert is_round(LeaseRow(0, 9, 0, (1,) * num_fed, (), num_choices)) == expected
