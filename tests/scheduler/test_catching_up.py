"""A draft replica that lags behind, is short of room, or drafts one token alone."""

from __future__ import annotations

import pytest

from specdec_core.config import SpecMethod
from specdec_core.messages import LeaseRow, Role
from specdec_core.scheduler import SequenceStatus
from tests.scheduler.cell import Cell, config, request
from tests.scheduler.fake_replica import info


def cell_of(num_draft_tokens: int = 3, **limits: float) -> Cell:
    cell = Cell(config(SpecMethod.DRAFT_MODEL, num_draft_tokens, **limits))
    cell.join(info("target"))
    return cell


def with_draft(cell: Cell, max_model_len: int = 1000) -> Cell:
    cell.join(info("draft", Role.DRAFT, max_model_len=max_model_len), agreement=100)
    return cell


def draft_rows(cell: Cell) -> list[LeaseRow]:
    return [row for lease in cell.leases if lease.role is Role.DRAFT for row in lease.rows]


def answer(cell: Cell, replica_id: str) -> None:
    """The replica runs its lease, the pool hears of it."""
    cell.handle(replica_id)
    cell.deliver(replica_id)


def test_the_next_token_does_not_wait_for_a_catch_up_either() -> None:
    cell = with_draft(cell_of())
    cell.add(request("a"))
    cell.advance()
    answer(cell, "target")
    cell.advance()
    assert [lease.role for lease in cell.leases] == [Role.DRAFT, Role.TARGET, Role.TARGET]


def test_a_draft_catches_up_to_the_last_id_and_then_rests() -> None:
    """The target is slow with the prompt's first chunk."""
    cell = with_draft(cell_of(prefill_chunk=2))
    cell.add(request("a", (1, 2, 3, 4, 0)))
    cell.advance()
    for _ in range(5):
        if cell.links["draft"].inbox:
            answer(cell, "draft")
        cell.advance()
    asked = [(len(row.new_ids), row.num_choices) for row in draft_rows(cell)]
    assert asked == [(2, 0), (2, 0), (1, 0)]


def test_a_catch_up_aside_waits_for_nobody() -> None:
    """Not even for the row that its target is about to give back."""
    cell = with_draft(cell_of(max_group_wait_s=100.0))
    cell.add(request("a", max_tokens=30))
    cell.advance()
    answer(cell, "draft")
    cell.add(request("b"))
    cell.advance()
    assert cell.pool.status("a") is SequenceStatus.VERIFYING
    assert cell.leases[-1].role is Role.DRAFT
    (row,) = cell.leases[-1].rows
    assert (row.sequence_id, row.num_choices) == (1, 0)


def test_a_catch_up_of_one_chunk_goes_along_with_the_drafting() -> None:
    """A draft joins when there are 4 ids: at once where the target has them, else afterwards."""
    for is_out in (False, True):
        cell = cell_of(prefill_chunk=4)
        cell.add(request("a", max_tokens=9))
        cell.turn()
        if is_out:
            cell.advance()
        with_draft(cell)
        cell.advance()
        asked = [(len(row.new_ids), row.num_choices) for row in draft_rows(cell)]
        assert asked == ([] if is_out else [(4, 3)])


def test_a_single_drafted_token_is_worth_a_draft_and_owns_its_sequence_too() -> None:
    cell = with_draft(cell_of(num_draft_tokens=1))
    client = cell.add(request("a"))
    cell.turn()
    cell.advance()
    assert cell.pool.status("a") is SequenceStatus.DRAFTING
    cell.now = 2.0
    answer(cell, "draft")
    cell.advance()
    assert cell.leases[-1].rows[0].proposal
    assert cell.pool.counters().max_wait_s == 0.0, "it is ready since its draft has answered"
    cell.run()
    client.check_plain()


@pytest.mark.parametrize(("max_model_len", "asked"), [(3, []), (4, [0]), (5, [0, 1]), (6, [0, 2])])
def test_a_draft_is_asked_for_no_more_than_its_length_allows(
    max_model_len: int, asked: list[int]
) -> None:
    """3 ids, which it reads at once, and a fourth that the target chooses alone."""
    cell = cell_of()
    with_draft(cell, max_model_len)
    client = cell.add(request("a", max_tokens=9))
    cell.run()
    client.check_plain()
    assert [row.num_choices for row in draft_rows(cell)] == asked


def test_a_sequence_too_long_for_the_draft_does_not_keep_others_from_it() -> None:
    cell = cell_of()
    with_draft(cell, max_model_len=8)
    cell.add(request("long", (1, 2, 3, 1, 2, 3, 1, 2)))
    cell.add(request("short"))
    cell.advance()
    assert [row.sequence_id for row in draft_rows(cell)] == [1]
