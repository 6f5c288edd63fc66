"""What a decision leaves behind: nothing that grows, and no work that is done twice."""

from __future__ import annotations

import gc
import random
import sys
import weakref
from typing import Any, NoReturn

import pytest

from benchmarks.pool_rate import Cell as BenchCell
from benchmarks.pool_rate import World
from specdec_core.config import SpecMethod
from specdec_core.messages import LeaseRow, Role
from specdec_core.scheduler import SendReset
from specdec_core.scheduler import batch_builder as dispatch
from specdec_core.scheduler.equal_length import LengthBuckets, choose_by_length
from specdec_core.scheduler.ready_queue import ReadyQueue
from specdec_core.scheduler.rows import ScheduledRow
from specdec_core.scheduler.sequence import Sequence
from tests.scheduler.cell import Cell, config, request
from tests.scheduler.fake_replica import info


@pytest.mark.parametrize("num_targets", [1, 3])
def test_every_plan_that_is_made_is_leased(
    num_targets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[ScheduledRow] = []
    original = dispatch.plan_verification

    def counted(*args: Any, **settings: Any) -> ScheduledRow:
        plans.append(original(*args, **settings))
        return plans[-1]

    monkeypatch.setattr(dispatch, "plan_verification", counted)
    cell = Cell(config(SpecMethod.NGRAM, max_group_size=3, window=12))
    for index in range(num_targets):
        cell.join(info(f"t{index}"))
    for index in range(20):
        cell.add(request(str(index), (1, 2) * (1 + index % 4), 5 + index, seed=index))
    cell.run()
    assert len(plans) == sum(len(lease.rows) for lease in cell.leases) > 100


@pytest.mark.parametrize("num_decisions", [300, pytest.param(2000, marks=pytest.mark.nightly)])
def test_memory_does_not_grow_while_sequences_come_and_go(num_decisions: int) -> None:
    """8 sequence-rounds a decision, of 64 sequences: a block kept per round, or per ten, would
    show."""
    world = World(BenchCell(64, 2, 8), answer_lens=(8, 24))
    blocks, tracked = [], []
    for _ in range(3):
        for _ in range(num_decisions):
            world.decide()
        gc.collect()
        blocks.append(sys.getallocatedblocks())
        tracked.append(len(gc.get_objects()))
    assert world.num_added > num_decisions / 2
    assert blocks[2] - blocks[1] < 0.8 * num_decisions
    assert tracked[2] - tracked[1] < 0.2 * num_decisions


class NotWalked(dict[int, Sequence]):
    """Sequences that may be asked for one by one alone."""

    def __iter__(self) -> NoReturn:
        raise AssertionError("a decision looks at every sequence")

    values = items = keys = __iter__  # type: ignore[assignment]


@pytest.mark.parametrize("method", [SpecMethod.NGRAM, SpecMethod.HYBRID])
def test_no_decision_looks_at_every_sequence_though_many_wait(method: SpecMethod) -> None:
    cell = Cell(config(method, max_group_size=2, window=6))
    cell.join(info("target"))
    cell.join(info("draft", Role.DRAFT))
    for index in range(30):
        cell.add(request(str(index), (1, 2) * (1 + index % 4), 5 + index, seed=index))
    cell.advance()
    for replica in cell.pool._replicas.by_id.values():
        replica.sequences = NotWalked(replica.sequences)
    cell.run()
    assert all(client.last is not None for client in cell.clients.values())


def test_each_lease_expires_at_its_own_deadline() -> None:
    """Though all leases are looked at seldom."""
    cell = Cell(config(max_group_size=1, lease_ttl_s=5.0))
    for second, replica_id in ((0.0, "t1"), (2.0, "t2"), (3.0, "t3")):
        cell.now = second
        cell.join(info(replica_id))
        cell.add(request(replica_id))
        cell.advance()
    for second in (4.9, 5.0, 6.9, 7.0, 7.9, 8.0):
        cell.now = second
        resets = [c.replica_id for c in cell.advance() if isinstance(c, SendReset)]
        assert resets == {5.0: ["t1"], 7.0: ["t2"], 8.0: ["t3"]}.get(second, [])


def test_the_pool_leaves_no_cycles_of_garbage() -> None:
    """So the coordinator may look for them seldom."""
    gc.collect()
    gc.disable()
    try:
        world = World(BenchCell(64, 2, 8), answer_lens=(8, 24))
        for _ in range(300):
            world.decide()
        assert world.num_added > 100
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_rows_that_come_and_go_behind_one_that_stays_leave_nothing() -> None:
    ready = ReadyQueue(Role.TARGET, max_rows=1)
    rng = random.Random(0)
    oldest = _plan(0, 5)
    ready.enqueue(oldest)
    for number in range(1, 2000):
        ready.enqueue(_plan(number, rng.randrange(100)))
        choose_by_length(ready, overdue_at=-1)
        ready.remove(number)
    assert list(ready) == [oldest]
    decoding, buckets = ready.decoding, ready.decoding._index
    assert isinstance(buckets, LengthBuckets)
    assert sum(map(len, (decoding._times, decoding._arrivals, buckets._rows))) < 300
    assert len(buckets._lengths) == 1


def _plan(number: int, length: int) -> ScheduledRow:
    sequence = Sequence(number, request("a"), 0.0)
    sequence.ready_since = float(number)
    row = LeaseRow(number, length, 0, (1,), num_choices=1)
    return ScheduledRow(sequence, row, length + 1)


def test_a_row_that_left_before_it_was_compared_with_others_is_not_chosen() -> None:
    ready = ReadyQueue(Role.TARGET, max_rows=1)
    left, *others = (_plan(number, 5) for number in range(3))
    ready.enqueue(left)
    ready.remove(left.sequence.sequence_id)
    for plan in others:
        ready.enqueue(plan)
    assert choose_by_length(ready, overdue_at=-1) == others[:1]


def test_the_stop_ids_that_a_client_made_up_go_with_its_request() -> None:
    """Small sets, which most share, are kept: of a large one each is megabytes."""
    kept = [weakref.ref(_sequence(tuple(range(10, 10 + length))).stop_ids) for length in (3, 100)]
    gc.collect()
    assert [ref() is not None for ref in kept] == [True, False]


def _sequence(stop_token_ids: tuple[int, ...]) -> Sequence:
    return Sequence(sequence_id=0, request=request(stop_token_ids=stop_token_ids), arrived_at=0.0)
