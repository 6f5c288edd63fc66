"""Replicas that join, die, fall silent, drain, and answer what nobody asked."""

from __future__ import annotations

from typing import Any

import pytest

from specdec_core.config import SpecMethod
from specdec_core.errors import InvalidRequestError
from specdec_core.messages import GroupResult, Role, RowResult, RowStatus
from specdec_core.request import ErrorKind, FinishReason
from specdec_core.scheduler import Drained, SendFree, SendLease, SendReset, SequenceStatus
from tests.scheduler import invariants
from tests.scheduler.cell import Cell, Client, config, request
from tests.scheduler.fake_replica import info


def leased_cell(**limits: Any) -> tuple[Cell, Client]:
    """One request, leased to the only target for its second token."""
    cell = Cell(config(**limits))
    cell.join(info("t1"))
    client = cell.add(request("a"))
    cell.turn()
    cell.advance()
    assert cell.pool.status("a") is SequenceStatus.VERIFYING
    return cell, client


def finish(cell: Cell, *clients: Client) -> None:
    cell.run()
    for client in clients:
        client.check_plain()
        assert client.reason is FinishReason.LENGTH
    invariants.check_empty(cell.pool)


def result_of(cell: Cell, replica_id: str = "t1") -> GroupResult:
    cell.handle(replica_id)
    result = cell.links[replica_id].results.popleft()
    assert isinstance(result, GroupResult)
    return result


def test_sequences_of_a_dead_target_are_replayed_on_another() -> None:
    cell, client = leased_cell()
    cell.join(info("t2"))
    cell.die("t1")
    assert cell.pool.status("a") is SequenceStatus.WAITING
    cell.advance()
    assert cell.leases[-1].replica_id == "t2"
    assert cell.leases[-1].rows[0].base_len == 0
    finish(cell, client)


def test_sequences_of_a_dead_target_wait_until_it_returns() -> None:
    cell, client = leased_cell()
    cell.die("t1")
    cell.turn()
    assert cell.pool.status("a") is SequenceStatus.WAITING
    cell.join(info("t1", incarnation=2))
    finish(cell, client)


def test_a_new_incarnation_replaces_the_older_one_without_a_deregistration() -> None:
    cell, client = leased_cell()
    late = result_of(cell)
    cell.join(info("t1", incarnation=2))
    cell.pool.on_result(late, cell.now)
    cell.pool.deregister("t1", cell.now, incarnation=1)
    assert cell.pool.counters().num_stale_results == 1
    finish(cell, client)


@pytest.mark.parametrize(
    "other",
    [info("t2", vocab_size=6), info("t2", model_digest="x"), info("d", Role.DRAFT, vocab_size=6)],
)
def test_replicas_that_do_not_agree_are_refused(other: object) -> None:
    cell = Cell(config())
    cell.join(info("t1"))
    with pytest.raises(InvalidRequestError, match="t1 has"):
        cell.pool.register(other, cell.now)  # type: ignore[arg-type]
    assert len(cell.pool.counters().replicas) == 1


def test_a_new_incarnation_must_agree_with_the_others_too() -> None:
    cell = Cell(config())
    cell.join(info("t1"))
    cell.join(info("t2"))
    with pytest.raises(InvalidRequestError, match="t2 has"):
        cell.pool.register(info("t1", incarnation=2, vocab_size=6), cell.now)


def test_a_draft_of_another_model_is_welcome() -> None:
    cell = Cell(config())
    cell.join(info("t1"))
    cell.join(info("d", Role.DRAFT, model_digest="small"))
    assert len(cell.pool.counters().replicas) == 2


def stale_results(result: GroupResult) -> dict[str, GroupResult]:
    return {
        "epoch": result._replace(epoch=result.epoch + 1),
        "lease": result._replace(lease_id=result.lease_id + 1),
        "replica": result._replace(replica_id="t2"),
        "unknown replica": result._replace(replica_id="nobody"),
    }


@pytest.mark.parametrize("wrong", ["epoch", "lease", "replica", "unknown replica"])
def test_a_result_that_is_wrong_in_any_way_is_dropped_and_counted(wrong: str) -> None:
    cell, client = leased_cell()
    cell.join(info("t2"))
    result = result_of(cell)
    cell.pool.on_result(stale_results(result)[wrong], cell.now)
    assert cell.pool.status("a") is SequenceStatus.VERIFYING
    assert cell.pool.counters().num_stale_results == 1
    cell.pool.on_result(result, cell.now)
    cell.pool.on_result(result, cell.now)
    assert cell.pool.counters().num_stale_results == 2
    finish(cell, client)


def test_a_silent_replica_is_fenced_as_a_whole_until_it_has_forgotten_everything() -> None:
    cell, client = leased_cell(lease_ttl_s=5.0)
    assert cell.pool.next_deadline() == 5.0
    late = result_of(cell)
    cell.now = 5.0
    assert cell.advance() == [SendReset("t1", 1)]
    cell.pool.on_result(late, cell.now)
    assert cell.pool.status("a") is SequenceStatus.WAITING
    assert cell.pool.counters().num_stale_results == cell.pool.counters().num_fenced == 1
    assert cell.pool.counters().replicas[0].num_free_blocks == 0
    cell.pool.on_reset_done("t1", 99, cell.now)
    assert cell.advance() == []
    assert cell.pool.next_deadline() is None
    cell.pool.on_reset_done("t1", 1, cell.now)
    assert cell.pool.next_deadline() is None
    assert isinstance(cell.advance()[0], SendLease)
    cell.now = 10.0
    assert cell.advance() == [SendReset("t1", 1)]
    assert cell.pool.counters().num_fenced == 2
    cell.handle("t1")  # the lease, too late
    cell.links["t1"].results.clear()
    finish(cell, client)


def test_a_dead_replica_is_told_nothing() -> None:
    cell, _ = leased_cell()
    cell.pool.abort("a", cell.now)
    cell.die("t1")
    assert not any(isinstance(command, SendFree) for command in cell.advance())


def test_a_lease_behind_another_has_all_its_time_from_when_that_one_is_answered() -> None:
    cell = Cell(config(max_group_size=1, max_open_leases=2, lease_ttl_s=5.0))
    cell.join(info("t1"))
    cell.add(request("a"))
    cell.add(request("b"))
    assert sum(isinstance(command, SendLease) for command in cell.advance()) == 2
    cell.now = 4.0
    cell.pool.on_result(result_of(cell), cell.now)
    assert cell.pool.next_deadline() == 9.0
    cell.now = 8.9
    assert not any(isinstance(command, SendReset) for command in cell.advance())
    cell.now = 9.0
    assert SendReset("t1", 1) in cell.advance()


def test_a_target_whose_passes_take_most_of_a_leases_time_is_not_fenced() -> None:
    cell = Cell(config(max_group_size=1, max_open_leases=2, lease_ttl_s=5.0))
    cell.join(info("t1"))
    clients = [cell.add(request(name)) for name in ("a", "b")]
    cell.advance()
    link = cell.links["t1"]
    while any(client.last is None for client in clients):
        cell.now += 3.0 * isinstance(link.inbox[0], SendLease)
        cell.advance()
        assert cell.pool.counters().num_fenced == 0
        cell.handle("t1")
        if link.results:
            cell.deliver("t1")
        cell.advance()
    finish(cell, *clients)


def test_draining_moves_the_idle_sequences_at_once_and_the_leased_ones_when_they_return() -> None:
    cell = Cell(config(max_group_size=1, window=2))
    cell.join(info("t1"))
    leased, idle = cell.add(request("a")), cell.add(request("b"))
    cell.advance()
    cell.pool.drain("t1", cell.now)
    cell.join(info("t2"))
    commands = cell.advance()
    assert commands[0] == SendFree("t1", (1,)) or SendFree("t1", (1,)) in commands
    assert cell.leases[-1].replica_id == "t2"
    assert cell.drained == []
    cell.pool.on_result(result_of(cell), cell.now)
    commands = cell.advance()
    assert commands.index(SendFree("t1", (0,))) < commands.index(Drained("t1"))
    while cell.links["t1"].inbox:
        cell.handle("t1")
    assert cell.links["t1"].replica.slots == {}
    cell.die("t1")
    finish(cell, leased, idle)
    assert {lease.replica_id for lease in cell.leases[2:]} == {"t2"}


def test_an_idle_replica_is_drained_at_once_and_told_so_once() -> None:
    cell = Cell(config())
    cell.join(info("t1"))
    cell.pool.drain("t1", cell.now)
    cell.pool.drain("t1", cell.now)
    cell.pool.drain("nobody", cell.now)
    assert cell.advance() == [Drained("t1")]


def test_a_draining_replica_that_falls_silent_is_drained_too() -> None:
    cell, client = leased_cell(lease_ttl_s=5.0)
    cell.pool.drain("t1", cell.now)
    cell.now = 5.0
    assert cell.advance() == [SendReset("t1", 1), Drained("t1")]
    cell.pool.on_reset_done("t1", 1, cell.now)
    assert cell.advance() == []
    cell.join(info("t2"))
    finish(cell, client)


def test_a_draining_draft_gives_its_proposal_and_then_its_sequences() -> None:
    cell = Cell(config(SpecMethod.DRAFT_MODEL))
    cell.join(info("t1"))
    cell.join(info("d1", Role.DRAFT))
    client = cell.add(request("a"))
    cell.turn()
    cell.advance()
    cell.pool.drain("d1", cell.now)
    assert cell.advance() == []
    cell.pool.on_result(result_of(cell, "d1"), cell.now)
    assert cell.pool.status("a") is SequenceStatus.PROPOSED
    cell.advance()
    assert cell.drained == ["d1"]
    finish(cell, client)


@pytest.mark.parametrize("have", [0, 1, 3, 100])
def test_a_kv_miss_is_met_with_the_ids_that_are_missing(have: int) -> None:
    cell, client = leased_cell()
    slot = cell.links["t1"].replica.slots[0]
    if have == 0:
        cell.links["t1"].replica.reset()
    else:
        slot.ids[: len(slot.ids)] = slot.ids[: min(have, 2)]
    result_of(cell)  # what the replica would have said
    miss = RowResult(sequence_id=0, status=RowStatus.KV_MISS, cached_len=have)
    lease = cell.leases[-1]
    answer = GroupResult(lease_id=lease.lease_id, epoch=77, replica_id="t1", rows=(miss,))
    cell.pool.on_result(answer, cell.now)
    cell.advance()
    row = cell.leases[-1].rows[0]
    assert row.base_len == (have if have < lease.rows[0].base_len else 0)
    assert (row.rules is not None) is (row.base_len == 0)
    assert cell.pool.counters().num_kv_misses == 1
    finish(cell, client)


def test_every_miss_is_counted_and_starts_lower() -> None:
    cell, client = leased_cell()
    for have in (2, 1):
        result_of(cell)
        lease = cell.leases[-1]
        miss = RowResult(sequence_id=0, status=RowStatus.KV_MISS, cached_len=have)
        answer = GroupResult(lease_id=lease.lease_id, epoch=77, replica_id="t1", rows=(miss,))
        cell.pool.on_result(answer, cell.now)
        cell.advance()
        assert cell.leases[-1].rows[0].base_len == have
    assert cell.pool.counters().num_kv_misses == 2
    finish(cell, client)


def test_a_replica_that_forgot_even_the_parameters_gets_them_again() -> None:
    cell = Cell(config(prefill_chunk=1))
    cell.join(info("t1"))
    client = cell.add(request("a"))
    cell.advance()
    cell.handle("t1")
    cell.links["t1"].replica.reset()
    cell.answer_with("t1", RowStatus.OK, cached_len=0)
    cell.turn()  # from nothing, without parameters: a miss
    cell.turn()
    assert [lease.rows[0].rules is None for lease in cell.leases] == [False, True, False]
    finish(cell, client)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (RowResult(sequence_id=0, status=RowStatus.FAILED, error="all -inf"), "all -inf"),
        (RowResult(sequence_id=0, status=RowStatus.NO_ROOM), "no_room"),
        (RowResult(sequence_id=0, status=RowStatus.KV_MISS), "kv_miss"),
        (RowResult(sequence_id=9), "left the row out"),
        (RowResult(sequence_id=0, tokens=(1, 2), num_accepted=1), "does not belong"),
        (RowResult(sequence_id=0, tokens=(), num_accepted=0), "does not belong"),
    ],
)
def test_a_row_that_cannot_be_run_ends_its_request_alone(row: RowResult, message: str) -> None:
    cell = Cell(config(max_group_size=1, window=1))
    cell.join(info("t1"))
    failing, other = cell.add(request("a")), cell.add(request("b"))
    cell.advance()
    answer = result_of(cell)._replace(rows=(row,))
    cell.pool.on_result(answer, cell.now)
    finish(cell, other)
    assert failing.reason is FinishReason.ERROR
    assert failing.last is not None
    assert message in str(failing.last.error)
    assert failing.last.error_kind is ErrorKind.FAILED
    assert cell.links["t1"].replica.slots == {}


def test_a_row_that_asks_what_no_target_can_do_is_its_client_s_mistake() -> None:
    cell = Cell(config())
    cell.join(info("t1"))
    client = cell.add(request("a"))
    cell.advance()
    row = RowResult(sequence_id=0, status=RowStatus.INVALID, error="no such grammar")
    cell.pool.on_result(result_of(cell)._replace(rows=(row,)), cell.now)
    cell.advance()
    assert client.last is not None
    assert (client.last.error_kind, client.last.error) == (ErrorKind.INVALID, "no such grammar")


def test_a_row_that_is_not_ready_is_leased_again_as_it_was() -> None:
    cell, client = leased_cell()
    for _ in range(3):
        before = cell.leases[-1].rows[0]
        cell.handle("t1")
        cell.answer_with("t1", RowStatus.NOT_READY)
        cell.advance()
        assert cell.leases[-1].rows[0] == before._replace(rules=None)
    assert cell.pool.counters().num_kv_misses == 0
    finish(cell, client)
    client.check_plain()
