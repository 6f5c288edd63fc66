"""A lease runner without torch: its KV cache is the token list, its choice a hash of all of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from specdec_core.leases import (
    EMPTY_HASH,
    GroupLease,
    GroupResult,
    LeaseRow,
    ReplicaInfo,
    Role,
    RowResult,
    RowStatus,
    extend_hash,
)

VOCAB_SIZE = 50


def next_token(ids: Sequence[int]) -> int:
    """The one right continuation of `ids`."""
    return extend_hash(EMPTY_HASH, ids) % VOCAB_SIZE


def continuation(prompt: Sequence[int], num_tokens: int) -> list[int]:
    """What plain decoding emits."""
    ids = list(prompt)
    for _ in range(num_tokens):
        ids.append(next_token(ids))
    return ids[len(prompt) :]


class FakeReplica:
    """Behaves as specdec_core.replica.Replica does; a draft errs behind every third length."""

    def __init__(self, role: Role) -> None:
        self._role = role
        self.cached: dict[int, list[int]] = {}
        self.num_leases = 0

    @property
    def num_slots(self) -> int:
        return len(self.cached)

    @property
    def num_free_blocks(self) -> int:
        return 1000 - sum(-(-len(ids) // 4) for ids in self.cached.values())

    def info(self, replica_id: str, incarnation: int) -> ReplicaInfo:
        return ReplicaInfo(
            replica_id=replica_id,
            role=self._role,
            incarnation=incarnation,
            num_blocks=1000,
            block_size=4,
            max_model_len=512,
            vocab_size=VOCAB_SIZE,
            model_digest=f"fake-{self._role}",
        )

    def free(self, sequence_ids: Iterable[int]) -> None:
        for sequence_id in sequence_ids:
            self.cached.pop(sequence_id, None)

    def reset(self) -> None:
        self.cached.clear()

    def execute(self, lease: GroupLease) -> GroupResult:
        self.num_leases += 1
        return GroupResult(
            lease_id=lease.lease_id,
            epoch=lease.epoch,
            replica_id=lease.replica_id,
            rows=tuple(self._run(row) for row in lease.rows),
            seconds=0.001,
        )

    def _run(self, row: LeaseRow) -> RowResult:
        if row.sequence_id not in self.cached and row.base_len == 0:
            self.cached[row.sequence_id] = []
        ids = self.cached.get(row.sequence_id)
        if ids is None or len(ids) < row.base_len:
            have = len(ids or ())
            return RowResult(sequence_id=row.sequence_id, status=RowStatus.KV_MISS, cached_len=have)
        del ids[row.base_len :]
        if extend_hash(EMPTY_HASH, ids) != row.base_hash:
            return RowResult(sequence_id=row.sequence_id, status=RowStatus.KV_MISS)
        ids += row.new_ids
        if self._role is Role.TARGET:
            return self._verify(row, ids)
        return self._draft(row, ids)

    def _verify(self, row: LeaseRow, ids: list[int]) -> RowResult:
        if row.num_choices == 0:
            return RowResult(sequence_id=row.sequence_id, cached_len=len(ids))
        accepted = 0
        while accepted < len(row.proposal) and row.proposal[accepted] == next_token(ids):
            ids.append(row.proposal[accepted])
            accepted += 1
        return RowResult(
            sequence_id=row.sequence_id,
            cached_len=len(ids),
            tokens=(*row.proposal[:accepted], next_token(ids)),
            num_accepted=accepted,
        )

    def _draft(self, row: LeaseRow, ids: list[int]) -> RowResult:
        proposal: list[int] = []
        for _ in range(row.num_choices):
            seen = [*ids, *proposal]
            proposal.append((next_token(seen) + (len(seen) % 3 == 0)) % VOCAB_SIZE)
        ids += proposal[:-1]
        return RowResult(sequence_id=row.sequence_id, cached_len=len(ids), tokens=tuple(proposal))
