"""What a draft could wait for."""

from __future__ import annotations

import pytest

from specdec_core.messages import Role
from specdec_core.scheduler.ready_queue import ReadyQueue
from specdec_core.scheduler.rows import plan_drafting
from specdec_core.scheduler.sequence import KVReservation, Sequence
from tests.scheduler.cell import request


@pytest.mark.parametrize(
    ("num_draft_tokens", "out_on", "expected"),
    [(3, "the target", True), (3, "another", False), (0, "the target", False)],
    ids=["one of the same target is out", "one of another target is out", "a row that catches up"],
)
def test_a_draft_waits_for_rows_of_the_targets_that_its_own_are_of(
    num_draft_tokens: int, out_on: str, expected: bool
) -> None:
    ready_queue, sequence = ReadyQueue(Role.DRAFT, 4), Sequence(0, request("a"), 0.0)
    sequence.target, sequence.draft = KVReservation("the target"), KVReservation("the draft")
    ready_queue.enqueue(plan_drafting(sequence, sequence.draft, num_draft_tokens, chunk=8))
    assert not ready_queue.may_gain_rows
    ready_queue.mark_in_flight(1, out_on)
    assert ready_queue.may_gain_rows == expected
    ready_queue.remove(1)
    assert not ready_queue.may_gain_rows
