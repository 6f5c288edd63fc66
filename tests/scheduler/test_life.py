"""One request's way through the pool: statuses, resuming, superseding, aborting, ending."""

from __future__ import annotations

from typing import Any

import pytest

from specdec_core.config import SpecMethod
from specdec_core.messages import EMPTY_HASH, Role, extend_hash
from specdec_core.request import FinishReason
from specdec_core.scheduler import SendFree, SequenceStatus
from tests.scheduler import invariants
from tests.scheduler.cell import Cell, config, request
from tests.scheduler.fake_replica import info, plain_ids


def cell_with_draft(method: SpecMethod = SpecMethod.DRAFT_MODEL, **limits: Any) -> Cell:
    cell = Cell(config(method, **limits))
    cell.join(info("target"))
    cell.join(info("draft", Role.DRAFT), agreement=100)
    return cell


def serve(cell: Cell, replica_id: str) -> None:
    while cell.links[replica_id].inbox:
        cell.handle(replica_id)
    while cell.links[replica_id].results:
        cell.deliver(replica_id)


def reach(cell: Cell, status: SequenceStatus) -> None:
    """Move on until request "a" has this status; long prompts in small chunks pass all of them."""
    for _ in range(100):
        if cell.pool.status("a") is status:
            return
        cell.advance()
        if cell.pool.status("a") is status:
            return
        for replica_id in cell.links:
            serve(cell, replica_id)
            if cell.pool.status("a") is status:
                return
    raise AssertionError(f"never {status}")


STATUSES = [status for status in SequenceStatus if status is not SequenceStatus.FINISHED]


@pytest.mark.parametrize("status", STATUSES)
def test_an_abort_at_any_status_tells_the_client_at_once_and_leaves_nothing(
    status: SequenceStatus,
) -> None:
    cell = cell_with_draft(prefill_chunk=2, max_group_wait_s=0.0)
    client = cell.add(request("a", (1, 2, 3, 4, 0), max_tokens=9))
    reach(cell, status)
    assert cell.pool.abort("a", cell.now)
    cell.advance()
    assert client.reason is FinishReason.ABORT
    assert not cell.pool.abort("a", cell.now)
    cell.run()
    invariants.check_empty(cell.pool)
    assert all(link.replica.slots == {} for link in cell.links.values())
    client.check_plain()


def test_the_free_of_an_aborted_sequence_travels_behind_its_lease() -> None:
    cell = cell_with_draft()
    cell.add(request("a"))
    cell.advance()
    cell.pool.abort("a", cell.now)
    assert SendFree("target", (0,)) in cell.advance()
    assert [type(message).__name__ for message in cell.links["target"].inbox] == [
        "SendLease",
        "SendFree",
    ]


def test_an_unknown_request_cannot_be_aborted() -> None:
    assert not Cell(config()).pool.abort("nobody", 0.0)


def test_a_resumed_request_continues_its_indexes_and_its_budget() -> None:
    fresh = request("a", max_tokens=8)
    expected, _ = plain_ids(fresh)
    cell = cell_with_draft()
    client = cell.add(request("a", max_tokens=8, emitted=expected[:5]))
    cell.run()
    client.check_plain()
    assert client.reason is FinishReason.LENGTH


@pytest.mark.parametrize(
    ("emitted", "stops", "reason"),
    [((4, 2), (2,), FinishReason.STOP), ((4, 3), (), FinishReason.LENGTH)],
)
def test_a_request_that_is_complete_already_ends_at_once(
    emitted: tuple[int, ...], stops: tuple[int, ...], reason: FinishReason
) -> None:
    cell = Cell(config())
    client = cell.add(request("a", max_tokens=2, stop_token_ids=stops, emitted=emitted))
    cell.advance()
    assert client.reason is reason
    assert not cell.pool.has_work


def test_a_second_attempt_supersedes_the_first_which_hears_no_more() -> None:
    cell = cell_with_draft()
    first = cell.add(request("a"))
    cell.advance()
    second = cell.add(request("a"))
    cell.run()
    assert first.last is None
    second.check_plain()
    assert second.reason is FinishReason.LENGTH
    invariants.check_empty(cell.pool)


def test_what_the_older_attempt_had_still_to_say_is_not_told_to_the_new_one() -> None:
    cell = cell_with_draft()
    cell.add(request("a"))
    cell.advance()
    serve(cell, "target")
    second = cell.add(request("a"))  # checks that its first index is 0
    cell.run()
    second.check_plain()


def test_a_stop_inside_an_accepted_proposal_cuts_what_follows() -> None:
    expected, _ = plain_ids(request("a", max_tokens=8))
    stop = expected[3]
    cell = cell_with_draft()
    client = cell.add(request("a", max_tokens=8, stop_token_ids=(stop,)))
    cell.run()
    client.check_plain()
    assert client.reason is FinishReason.STOP
    assert client.token_ids == list(expected[: expected.index(stop) + 1])


def test_a_token_behind_the_stop_was_not_accepted() -> None:
    """One plain token, then a proposal of 3 that the target agrees with; the stop is its second."""
    expected, _ = plain_ids(request("a", max_tokens=8))
    assert expected[2] not in expected[:2]
    cell = cell_with_draft()
    client = cell.add(request("a", max_tokens=8, stop_token_ids=(expected[2],)))
    cell.run()
    assert client.last is not None
    assert client.last.stats is not None
    assert (client.last.stats.num_drafted, client.last.stats.num_accepted) == (3, 2)
    assert cell.pool.counters().accepted_per_position == (1, 1)


def test_a_proposal_is_spent_once_it_was_verified() -> None:
    cell = cell_with_draft()
    cell.add(request("a", max_tokens=30))
    reach(cell, SequenceStatus.PROPOSED)
    reach(cell, SequenceStatus.VERIFYING)
    serve(cell, "target")
    assert cell.pool.status("a") is SequenceStatus.READY


def test_a_stop_id_in_the_prompt_ends_nothing() -> None:
    cell = cell_with_draft()
    expected, _ = plain_ids(request("a", (3, 3, 3), max_tokens=1))
    stop = next(token for token in range(5) if token != expected[0])
    client = cell.add(request("a", (3, 3, 3), max_tokens=1, stop_token_ids=(stop,)))
    cell.run()
    assert client.reason is FinishReason.LENGTH


def test_rows_carry_the_hash_of_what_the_replica_should_cache_and_the_rest_of_the_ids() -> None:
    cell = Cell(config(prefill_chunk=2))
    cell.join(info())
    client = cell.add(request("a", (1, 2, 3, 4, 0, 1), max_tokens=2))
    cell.run()
    rows = [lease.rows[0] for lease in cell.leases]
    ids = (1, 2, 3, 4, 0, 1, *client.token_ids)
    assert [(row.base_len, len(row.new_ids), row.num_choices) for row in rows] == [
        (0, 4, 0),
        (4, 2, 1),
        (6, 1, 1),
    ]
    for row in rows:
        assert row.base_hash == extend_hash(EMPTY_HASH, ids[: row.base_len])
        assert row.new_ids == ids[row.base_len : row.end_len]


def test_parameters_travel_on_first_use_only() -> None:
    cell = cell_with_draft()
    cell.add(request("a"))
    cell.run()
    for replica_id in ("target", "draft"):
        rows = [lease.rows[0] for lease in cell.leases if lease.replica_id == replica_id]
        assert rows[0].rules is not None
        assert all(row.rules is None for row in rows[1:])


def test_the_last_event_carries_the_stats() -> None:
    cell = cell_with_draft()
    client = cell.add(request("a", max_tokens=9))
    cell.run()
    assert client.last is not None
    stats = client.last.stats
    assert stats is not None
    # One plain token first, then twice three accepted drafts and the bonus token.
    assert (stats.num_rounds, stats.num_drafted, stats.num_accepted) == (3, 6, 6)
    assert stats.acceptance_histogram == (0, 0, 0, 2)
    counters = cell.pool.counters()
    assert counters.num_committed == 9
    assert counters.accepted_per_position == (2, 2, 2)
    assert counters.num_sequence_rounds == 3
    assert counters.num_proposed_rounds == 2


def test_no_two_leases_have_one_number() -> None:
    """A late result would be taken for the answer to another lease. None is negative: uint64."""
    cell = cell_with_draft()
    cell.add(request("a", max_tokens=9))
    cell.run()
    numbers = [lease.lease_id for lease in cell.leases]
    assert len(set(numbers)) == len(numbers) > 4
    assert min(numbers) >= 0


def test_a_drafter_forgets_a_request_that_is_aborted_while_no_replica_is_left() -> None:
    cell = Cell(config(SpecMethod.NGRAM))
    cell.join(info())
    cell.add(request("a", max_tokens=40))
    cell.turn()
    cell.turn()
    cell.die("target")
    cell.pool.abort("a", cell.now)
    cell.advance()
    invariants.check_empty(cell.pool)
