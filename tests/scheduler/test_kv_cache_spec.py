"""A new kind of KV cache is one record: a sliding window, whose blocks do not grow without end.

The replica here keeps its positions in a ring and counts the blocks that it has touched. It knows
nothing of the record. Its count and the scheduler's must be equal at every step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from specdec_core.config import SpecMethod
from specdec_core.errors import InvalidRequestError
from specdec_core.kv_cache.spec import KVCacheSpec
from specdec_core.messages import GroupLease, GroupResult, LeaseRow, ReplicaInfo, Role, RowResult
from specdec_core.scheduler.sequence import Sequence
from tests.scheduler import invariants
from tests.scheduler.cell import Cell, Link, config, request
from tests.scheduler.fake_replica import FakeReplica, Slot, info

BLOCK_SIZE = 2
WINDOW = 9
K = 4
_NO_END = 1 << 30


@dataclass(frozen=True, slots=True)
class SlidingWindowSpec:
    """Blocks in a ring: the window, and as many tokens as may have to be taken back."""

    block_size: int
    window: int
    max_rollback: int
    bytes_per_block = 64
    bytes_per_sequence = 0

    def blocks_for(self, length: int) -> int:
        return -(-min(length, self.window + self.max_rollback) // self.block_size)

    def max_len(self, num_blocks: int) -> int:
        ring = self.blocks_for(_NO_END)
        return _NO_END if num_blocks >= ring else num_blocks * self.block_size


SPEC: KVCacheSpec = SlidingWindowSpec(BLOCK_SIZE, WINDOW, K)


class WindowReplica(FakeReplica):
    """Rolls back within its ring only, and compares its blocks with the scheduler's."""

    def __init__(self, info: ReplicaInfo, agreement: int, cell: Cell) -> None:
        super().__init__(info, agreement)
        self.state = cell.pool._replicas.by_id[info.replica_id]
        self.deepest_rollback = 0
        self.num_compared = 0

    def execute(self, lease: GroupLease) -> GroupResult:
        self.lease = lease
        return super().execute(lease)

    def _blocks(self, length: int) -> int:
        ring = WINDOW + K
        return len({place % ring // BLOCK_SIZE for place in range(length)})

    def _check_room(self) -> None:
        """The rows that were fed have their tokens in flight, in the blocks that are reserved."""
        super()._check_room()
        for row in self.lease.rows:
            slot, sequence = self.slots.get(row.sequence_id), self._live(row.sequence_id)
            reservation = sequence and sequence.reservation(self.info.role)
            if slot and reservation and len(slot.ids) == reservation.reserved_len:
                assert reservation.num_blocks == self._blocks(len(slot.ids))
                self.num_compared += 1

    def _live(self, sequence_id: int) -> Sequence | None:
        """The scheduler's side of a slot; None when its end is still on the way to the replica."""
        return self.state.sequences.get(sequence_id)

    def compare_idle(self) -> None:
        """Between two leases no more is reserved than is held or comes next."""
        for sequence_id, slot in self.slots.items():
            sequence = self._live(sequence_id)
            reservation = sequence and sequence.reservation(self.info.role)
            if sequence and reservation and reservation.row is None:
                held_len, reserved_len = len(slot.ids), reservation.reserved_len
                assert held_len <= reserved_len <= max(held_len, len(sequence.ids))
                assert reservation.num_blocks == self._blocks(reserved_len)

    def _truncate(self, row: LeaseRow) -> RowResult | None:
        slot = self.slots.get(row.sequence_id)
        if slot is not None:
            self._note_rollback(len(slot.ids) - row.base_len, row.base_len)
        return super()._truncate(row)

    def _verify(self, row: LeaseRow, slot: Slot) -> RowResult:
        answer = super()._verify(row, slot)
        self._note_rollback(len(row.proposal) - answer.num_accepted, answer.cached_len)
        return answer

    def _note_rollback(self, num_tokens: int, length: int) -> None:
        if length:
            assert num_tokens <= K, "those positions of the ring are overwritten"
            self.deepest_rollback = max(self.deepest_rollback, num_tokens)


def join(cell: Cell, role: Role, num_blocks: int, agreement: int) -> WindowReplica:
    described = replace(info(role.value, role, num_blocks=num_blocks), kv_cache_spec=SPEC)
    cell.pool.register(described, cell.now)
    replica = WindowReplica(described, agreement, cell)
    cell.links[role.value] = Link(replica)
    return replica


@pytest.mark.parametrize("agreement", [0, 60, 100])
def test_scheduler_and_replica_count_the_blocks_of_a_window_alike(agreement: int) -> None:
    """Four sequences fill the cache with their windows. All would be preempted if each of their
    positions took room."""
    cell = Cell(config(SpecMethod.DRAFT_MODEL, num_draft_tokens=K))
    num_blocks = 4 * SPEC.blocks_for(_NO_END) + 1  # and the one that admission leaves free
    target = join(cell, Role.TARGET, num_blocks, agreement)
    draft = join(cell, Role.DRAFT, num_blocks, agreement)
    clients = [cell.add(request(str(i), (1, 2, 3), max_tokens=50, seed=i)) for i in range(4)]
    while cell.turn():
        invariants.check(cell.pool)
        for replica in (target, draft):
            replica.compare_idle()
    for client in clients:
        assert client.last is not None
        client.check_plain()
    invariants.check_empty(cell.pool)
    assert cell.pool.counters().num_preemptions == 0
    assert min(target.num_compared, draft.num_compared) > 50
    assert target.deepest_rollback == (K if agreement < 100 else 0)


def test_a_window_takes_a_sequence_that_its_blocks_could_not_hold_in_full() -> None:
    cell = Cell(config())
    join(cell, Role.TARGET, SPEC.blocks_for(_NO_END), agreement=0)
    client = cell.add(request("a", max_tokens=100))
    cell.run()
    client.check_plain()


def test_a_replica_that_cannot_take_back_a_rejected_proposal_is_kept_out() -> None:
    cell = Cell(config(SpecMethod.NGRAM, num_draft_tokens=K + 1))
    with pytest.raises(InvalidRequestError, match=r"roll back 4 .* num_draft_tokens is 5"):
        join(cell, Role.TARGET, 100, agreement=0)
    for method in (SpecMethod.NONE, "none"):  # a name of the registry is a plain text
        join(Cell(config(method, num_draft_tokens=K + 1)), Role.TARGET, 100, agreement=0)
