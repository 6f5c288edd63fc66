"""A replica without a model: slots and leases as in specdec_core.worker.replica, over token hashes.

A test checks that both behave alike. Each slot keeps the hashes of all its prefixes and the salt of
the request that it was opened for. The origin of its KV is therefore known at every position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from deployments.simulation.tokens import guess, next_token, salt_of
from specdec_core.messages import (
    EMPTY_HASH,
    TARGET,
    GroupLease,
    GroupResult,
    LeaseRow,
    Occupancy,
    ReplicaInfo,
    Role,
    RowResult,
    RowStatus,
    hashes_behind,
)

LeaseKey = tuple[int, str, int]
"""Epoch, replica ID and lease ID."""


def key_of(lease: GroupLease | GroupResult) -> LeaseKey:
    """Return the key of a lease or of its result."""
    return lease.epoch, lease.replica_id, lease.lease_id


@dataclass(eq=False, slots=True)
class Slot:
    """The prefix hashes of the cached tokens, with the seed and salt of their request."""

    seed: int
    salt: int
    hashes: list[int]

    @property
    def cached_len(self) -> int:
        return len(self.hashes) - 1


_SHARES = 1000


class ModelReplica:
    """Runs leases of one role. Keeps its own count of its free blocks."""

    def __init__(
        self,
        info: ReplicaInfo,
        agreement: float = 0.0,
        taught_by: str = "",
        *,
        not_ready: float = 0.0,
    ) -> None:
        """A draft guesses the choices of targets with the fingerprint `taught_by`. `not_ready` is
        the share of a target's rows that wait for their grammar."""
        self.info = info
        self.slots: dict[int, Slot] = {}
        self._blocks_for = info.kv_cache_spec.blocks_for
        self.num_free_blocks = info.num_blocks
        """Free blocks, counted as they are taken and given back, as the real replica does."""
        self.failing: set[int] = set()
        """Sequences whose next row fails."""
        self._agreement = agreement
        self._not_ready = not_ready
        self._chooses_as = info.fingerprint if info.role is Role.TARGET else taught_by

    @property
    def num_used_blocks(self) -> int:
        return self.info.num_blocks - self.num_free_blocks

    @property
    def occupancy(self) -> Occupancy:
        return Occupancy(num_slots=len(self.slots), num_free_blocks=self.num_free_blocks)

    def free(self, sequence_ids: Iterable[int]) -> None:
        for sequence_id in sequence_ids:
            slot = self.slots.pop(sequence_id, None)
            if slot is not None:
                self.num_free_blocks += self._blocks_for(slot.cached_len)

    def reset(self) -> None:
        self.slots.clear()
        self.failing.clear()
        self.num_free_blocks = self.info.num_blocks

    def lose(self, sequence_id: int, kept: int) -> None:
        """Make a slot forget everything after `kept` positions, or the whole slot if `kept` is
        0."""
        if kept:
            self._cut(self.slots[sequence_id], kept)
        else:
            self.free([sequence_id])

    def execute(self, lease: GroupLease, seconds: float) -> GroupResult:
        refusals = [self._truncate(row, lease.lease_id) for row in lease.rows]
        num_free = self.num_free_blocks
        is_target = self.info.role is TARGET
        for index, row in enumerate(lease.rows):
            if refusals[index] is None:
                needed = self._num_new_blocks(row, is_target)
                if needed > num_free:
                    have = self.slots[row.sequence_id].cached_len
                    refusals[index] = _refusal(row, RowStatus.NO_ROOM, have)
                else:
                    num_free -= needed
        run = self._verify if is_target else self._draft
        rows = zip(lease.rows, refusals, strict=True)
        return GroupResult(
            lease_id=lease.lease_id,
            epoch=lease.epoch,
            replica_id=lease.replica_id,
            rows=tuple([refusal or self._feed(run, row) for row, refusal in rows]),
            seconds=seconds,
        )

    def _truncate(self, row: LeaseRow, lease_id: int) -> RowResult | None:
        slot = self.slots.get(row.sequence_id)
        if self.failing and row.sequence_id in self.failing:
            self.failing.discard(row.sequence_id)
            self.free([row.sequence_id])
            return _refusal(row, RowStatus.FAILED, 0)
        if slot is None and row.base_len == 0 and row.rules is not None:
            seed = row.rules.params.seed
            slot = Slot(seed, salt_of(seed, self._chooses_as), [EMPTY_HASH])
            self.slots[row.sequence_id] = slot
        if slot is None:
            return _refusal(row, RowStatus.KV_MISS, 0)
        base_len, cached_len = row.base_len, len(slot.hashes) - 1
        if cached_len < base_len:
            return _refusal(row, RowStatus.KV_MISS, cached_len)
        if slot.hashes[base_len] != row.base_hash:
            return _refusal(row, RowStatus.KV_MISS, 0)
        if cached_len > base_len:
            self._cut(slot, base_len)
        if row.num_choices and self._is_left_out(lease_id, row.sequence_id):
            return _refusal(row, RowStatus.NOT_READY, 0)
        return None

    def _is_left_out(self, lease_id: int, sequence_id: int) -> bool:
        """Return True if the row is not ready. This is a hash, not a draw, so that the world's
        other draws stay as they are."""
        if self.info.role is not TARGET or not self._not_ready:
            return False
        (mixed,) = hashes_behind(EMPTY_HASH + lease_id, (sequence_id,))
        return mixed % _SHARES < self._not_ready * _SHARES

    def _cut(self, slot: Slot, length: int) -> None:
        held = self._blocks_for(slot.cached_len)
        del slot.hashes[length + 1 :]
        self.num_free_blocks += held - self._blocks_for(length)

    def _feed(self, run: Callable[[LeaseRow], RowResult], row: LeaseRow) -> RowResult:
        answer = run(row)
        self.num_free_blocks -= self._blocks_for(answer.cached_len) - self._blocks_for(row.base_len)
        return answer

    def _verify(self, row: LeaseRow) -> RowResult:
        slot = self.slots[row.sequence_id]
        hashes, salt, vocab_size = slot.hashes, slot.salt, self.info.vocab_size
        hashes += hashes_behind(hashes[-1], row.new_ids)
        if row.num_choices == 0:
            return RowResult(sequence_id=row.sequence_id, cached_len=len(hashes) - 1)
        num_accepted = 0
        token = next_token(hashes[-1], salt, vocab_size)
        for drafted in row.proposal:
            if drafted != token:
                break
            num_accepted += 1
            hashes += hashes_behind(hashes[-1], (drafted,))
            token = next_token(hashes[-1], salt, vocab_size)
        return RowResult(
            sequence_id=row.sequence_id,
            cached_len=len(hashes) - 1,
            tokens=(*row.proposal[:num_accepted], token),
            num_accepted=num_accepted,
        )

    def _draft(self, row: LeaseRow) -> RowResult:
        slot = self.slots[row.sequence_id]
        hashes = slot.hashes
        hashes += hashes_behind(hashes[-1], row.new_ids)
        tokens: list[int] = []
        for index in range(row.num_choices):
            if index:
                hashes += hashes_behind(hashes[-1], tokens[-1:])
            tokens.append(guess(hashes[-1], slot.salt, self.info.vocab_size, self._agreement))
        return RowResult(
            sequence_id=row.sequence_id, cached_len=slot.cached_len, tokens=tuple(tokens)
        )

    def _num_new_blocks(self, row: LeaseRow, is_target: bool) -> int:
        drafted = len(row.proposal) if is_target else max(row.num_choices - 1, 0)
        return self._blocks_for(row.end_len + drafted) - self._blocks_for(row.base_len)


def _refusal(row: LeaseRow, status: RowStatus, have: int) -> RowResult:
    error = "this row failed" if status is RowStatus.FAILED else ""
    return RowResult(sequence_id=row.sequence_id, status=status, cached_len=have, error=error)
