"""Which rows share a pass, how long they wait for each other, and what is counted."""

from __future__ import annotations

import heapq
import itertools
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_core.config import SchedulerConfig, SpecMethod
from specdec_core.messages import GroupLease, Role
from specdec_core.scheduler import SendLease, SequenceStatus
from tests.scheduler.cell import Cell, config, request
from tests.scheduler.fake_replica import info


@pytest.mark.parametrize("most", [1, 2])
def test_a_replica_has_so_many_leases_at_most(most: int) -> None:
    cell = Cell(config(max_group_size=2, max_open_leases=most))
    cell.join(info())
    for i in range(6):
        cell.add(request(str(i)))
    cell.advance()
    cell.advance()
    assert [len(lease.rows) for lease in cell.leases] == [2] * most


def test_behind_a_running_group_only_a_full_one_is_sent() -> None:
    """What is running may fill the other one when it comes back, however long that takes: sent on
    their own, one row and the seven others of a target would take turns for ever."""
    cell = Cell(config(max_group_size=2, max_open_leases=2, max_group_wait_s=0.1))
    cell.join(info())
    cell.add(request("0"))
    cell.advance()
    cell.add(request("1"))
    cell.advance()
    cell.now += 0.2
    cell.advance()
    assert [len(lease.rows) for lease in cell.leases] == [1]
    cell.turn()
    cell.advance()
    assert [len(lease.rows) for lease in cell.leases] == [1, 2]


def test_prefill_chunks_and_decoding_rows_share_a_pass() -> None:
    cell = Cell(config(prefill_chunk=4))
    cell.join(info())
    cell.add(request("a", max_tokens=30))
    cell.turn()
    cell.add(request("b", (1,) * 10))
    cell.turn()
    rows = cell.leases[-1].rows
    assert [(len(row.new_ids), row.num_choices) for row in rows] == [(1, 1), (4, 0)]


def drafting_cell(max_group_wait_s: float = 0.5) -> Cell:
    """Two sequences; "a" is out with the draft, "b" is ready for the target."""
    cell = Cell(config(SpecMethod.DRAFT_MODEL, max_group_wait_s=max_group_wait_s))
    cell.join(info("target"))
    cell.join(info("draft", Role.DRAFT))
    cell.add(request("a", max_tokens=30))
    cell.turn()
    cell.advance()
    assert cell.pool.status("a") is SequenceStatus.DRAFTING
    cell.add(request("b", max_tokens=30, speculation_enabled=False))
    return cell


def test_a_target_waits_for_members_that_are_being_drafted_but_not_beyond_the_bound() -> None:
    cell = drafting_cell(max_group_wait_s=0.5)
    assert cell.advance() == []
    assert cell.pool.next_deadline() == 0.5
    cell.now = 0.5
    (command,) = cell.advance()
    assert isinstance(command, SendLease)
    assert cell.pool.counters().max_wait_s == 0.5
    deadline = cell.pool.next_deadline()
    assert deadline is not None
    assert deadline > 0.5, "a group that has gone asks for no more waking"


def test_a_drafted_member_joins_the_group_that_waited_for_it() -> None:
    cell = drafting_cell()
    cell.advance()
    cell.now = 0.1
    cell.handle("draft")
    cell.deliver("draft")
    (command,) = cell.advance()
    assert isinstance(command, SendLease)
    assert [row.sequence_id for row in command.lease.rows] == [0, 1]


def test_a_draining_replica_no_longer_asks_to_be_woken() -> None:
    cell = drafting_cell(max_group_wait_s=0.5)
    cell.advance()
    cell.pool.drain("target", cell.now)
    cell.advance()
    deadline = cell.pool.next_deadline()
    assert deadline is not None
    assert deadline > 0.5  # the draft's lease alone


def test_a_side_lease_does_not_make_a_ready_row_younger() -> None:
    cell = Cell(config(SpecMethod.DRAFT_MODEL, prefill_chunk=2, max_group_size=1, window=2))
    cell.join(info("target"))
    cell.join(info("draft", Role.DRAFT))
    cell.add(request("a", (1,) * 9))
    cell.add(request("b", (1,) * 9))
    cell.advance()
    for now in (1.0, 2.0):  # the draft answers for both, the target is still busy with "a"
        cell.now = now
        cell.handle("draft")
        cell.deliver("draft")
        cell.advance()
    cell.handle("target")
    cell.deliver("target")
    cell.advance()
    assert cell.leases[-1].rows[0].sequence_id == 1
    assert cell.pool.counters().max_wait_s == 2.0


def test_nobody_waits_when_no_member_can_come_soon() -> None:
    cell = Cell(config(max_group_size=8, max_group_wait_s=100.0))
    cell.join(info())
    cell.add(request("a"))
    assert len(cell.advance()) == 1


def test_a_draft_does_not_wait_for_sequences_of_another_target() -> None:
    cell = Cell(config(SpecMethod.DRAFT_MODEL, max_group_wait_s=100.0))
    cell.join(info("t1"))
    cell.join(info("t2"))
    cell.join(info("draft", Role.DRAFT))
    cell.add(request("a", max_tokens=30))
    cell.add(request("b", max_tokens=30))
    cell.advance()
    cell.handle("draft")
    cell.deliver("draft")
    cell.handle("t1")
    cell.deliver("t1")
    cell.advance()
    assert cell.leases[-1].role is Role.DRAFT
    assert cell.leases[-1].rows[0].num_choices > 0
    assert cell.pool.status("b") is SequenceStatus.VERIFYING


class Finished(NamedTuple):
    at: float
    order: int
    replica_id: str


def simulate(cell: Cell, arrivals: list[tuple[float, int]], seconds: dict[str, float]) -> None:
    """Virtual time: a lease takes the replica's seconds, messages take none."""
    pending: list[Finished] = []
    order = itertools.count()
    todo = sorted(arrivals)
    while todo or pending or cell.pool.has_work:
        times = [at for at, _ in todo[:1]] + [done.at for done in pending[:1]]
        deadline = cell.pool.next_deadline()
        cell.now = min([*times, *([deadline] if deadline is not None else [])], default=cell.now)
        while todo and todo[0][0] <= cell.now:
            _, index = todo.pop(0)
            cell.add(request(str(len(cell.clients)), (1, 2) * index, 3 + index, seed=index))
        while pending and pending[0].at <= cell.now:
            cell.deliver(heapq.heappop(pending).replica_id)
        for command in cell.advance():
            if isinstance(command, SendLease):
                replica_id = command.lease.replica_id
                at = cell.now + seconds[replica_id]
                heapq.heappush(pending, Finished(at, next(order), replica_id))
        for replica_id, link in cell.links.items():
            while link.inbox:
                cell.handle(replica_id)


@settings(max_examples=25)
@given(
    arrivals=st.lists(st.tuples(st.floats(0, 3), st.integers(1, 8)), min_size=1, max_size=25),
    method=st.sampled_from(SpecMethod),
    max_group_size=st.integers(1, 4),
    max_group_wait_s=st.sampled_from([0.0, 0.05, 0.3]),
    draft_s=st.sampled_from([0.001, 0.05, 0.2]),
    max_prefill_tokens=st.sampled_from([None, None, 1, 7]),
)
def test_every_ready_row_is_dispatched_within_a_bounded_number_of_groups(
    arrivals: list[tuple[float, int]],
    method: SpecMethod,
    max_group_size: int,
    max_group_wait_s: float,
    draft_s: float,
    max_prefill_tokens: int | None,
) -> None:
    window, target_s = 8, 0.05
    limits = SchedulerConfig(
        speculation=config(method).speculation,
        max_group_size=max_group_size,
        window=window,
        prefill_chunk=6,
        max_prefill_tokens=max_prefill_tokens,
        max_group_wait_s=max_group_wait_s,
    )
    cell = Cell(limits)
    cell.join(info("target"))
    cell.join(info("draft", Role.DRAFT))
    simulate(cell, arrivals, {"target": target_s, "draft": draft_s})
    for client in cell.clients.values():
        client.check_plain()
        assert client.last is not None
    # Once overdue, only rows that are older still go first: at most a window of them, and the
    # group that is running when the row becomes overdue.
    # Each group takes the first of those that catch up, and perhaps no other. A prompt has at most
    # three chunks; before it go those of a window, and of as many that came within its yield.
    num_groups = -(-window // max_group_size) + 1
    if max_prefill_tokens:
        num_groups = 2 * window * 3 + 1
    assert cell.pool.counters().max_wait_s <= max_group_wait_s + num_groups * target_s + 1e-9
    num_groups = -(-window // max_group_size) + 1
    assert cell.pool.counters().max_draft_wait_s <= max_group_wait_s + num_groups * draft_s + 1e-9


@settings(max_examples=15)
@given(st.data())
def test_the_pool_is_deterministic(data: st.DataObject) -> None:
    arrivals = data.draw(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 5)), max_size=8))
    assert _leases(arrivals) == _leases(arrivals)


def _leases(arrivals: list[tuple[float, int]]) -> list[GroupLease]:
    cell = Cell(config(SpecMethod.HYBRID, max_group_size=2, window=4))
    for replica_id, role in (("t1", Role.TARGET), ("t2", Role.TARGET), ("draft", Role.DRAFT)):
        cell.join(info(replica_id, role))
    simulate(cell, arrivals, {"t1": 0.05, "t2": 0.05, "draft": 0.02})
    return cell.leases
