"""(a), (b), (c), (d), (f), (h): an independent record of every lease from its sending to its
end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from deployments.simulation.invariants.kv_owners import KVOwners
from deployments.simulation.record import Violation
from specdec_core.config import Numerics, SchedulerConfig
from specdec_core.messages import (
    OK,
    GroupLease,
    GroupResult,
    LeaseRow,
    ReplicaInfo,
    Role,
    hashes_behind,
)
from specdec_core.scheduler import Scheduler, SendFree
from specdec_core.scheduler.replicas import ReplicaState
from specdec_core.scheduler.sequence import Sequence


class LeaseBook:
    """The leases of one life of a coordinator that are neither answered nor void."""

    def __init__(self, kv_owners: KVOwners) -> None:
        self.open: dict[int, GroupLease] = {}
        self._kv_owners = kv_owners
        self._expire_at: dict[int, float] = {}
        self._owners: dict[int, int] = {}
        """Lease that owns each sequence, by sequence ID."""
        self._fed: defaultdict[int, set[int]] = defaultdict(set)
        """Hashes at the block ends of everything that a replica was ever fed, by incarnation."""
        self._resetting: set[str] = set()
        """Replicas that have not confirmed their reset yet."""

    def sent(self, scheduler: Scheduler, lease: GroupLease, now: float) -> None:
        if lease.replica_id in self._resetting:
            raise Violation(f"(f) {lease.replica_id} is leased more before it has forgotten")
        record = scheduler._replicas.by_id[lease.replica_id]
        is_target = lease.role is Role.TARGET
        for row in lease.rows:
            self._check_row(record, lease, row, is_target)
        self.open[lease.lease_id] = lease
        self._expire_at[lease.lease_id] = now + lease.ttl_s
        if is_target:
            self._check_catch_up(record.info, scheduler._config)

    def freed(self, command: SendFree) -> None:
        """A freed sequence has no owner any more."""
        for sequence_id in command.sequence_ids:
            lease = self.open.get(self._owners.get(sequence_id, -1))
            if lease is not None and lease.replica_id == command.replica_id:
                del self._owners[sequence_id]

    def reset(self, replica_id: str) -> None:
        self.gone(replica_id)
        self._resetting.add(replica_id)

    def forgot(self, replica_id: str) -> None:
        self._resetting.discard(replica_id)

    def gone(self, replica_id: str) -> None:
        """Void the replica's leases."""
        self._resetting.discard(replica_id)
        for lease in [x for x in self.open.values() if x.replica_id == replica_id]:
            self._close(lease)

    def result(
        self, scheduler: Scheduler, result: GroupResult, pass_on: Callable[[], None], now: float
    ) -> None:
        """(b) Only a live lease of this epoch commits tokens, at the length that it names."""
        lease = self.open.get(result.lease_id)
        is_live = result.epoch == scheduler._epoch and (
            lease is not None and lease.replica_id == result.replica_id
        )
        num_committed = scheduler._stats.num_committed
        if is_live and lease is not None:
            _check_lengths(scheduler, lease)
            self._note_fed(scheduler._replicas.by_id[lease.replica_id].info, lease, result)
            self._close(lease)
            self._begin_next(lease.replica_id, now)
        pass_on()
        if not is_live and scheduler._stats.num_committed != num_committed:
            raise Violation(f"(b) a result of no live lease was committed: {result}")

    def check_expiry(self, now: float) -> None:
        """(h) Every lease is answered or void in time."""
        soonest = min(self._expire_at.values(), default=now + 1.0)
        if soonest <= now:
            raise Violation(f"(h) a lease is open at {now}, its {soonest} has passed")

    def _check_catch_up(self, info: ReplicaInfo, config: SchedulerConfig) -> None:
        """(h) A stream waits for at most the limit of others' catch-up tokens, or for one row. What
        the replica was fed before is cached, if it keeps prefixes. Proposals longer than any
        draft's are what clients bring back, and they count."""
        most, num_drafted = config.max_prefill_tokens, config.speculation.num_draft_tokens
        if most is None:
            return
        here = [lease for lease in self.open.values() if lease.replica_id == info.replica_id]
        rows = [row for lease in here for row in lease.rows]
        brought = [len(row.proposal) for row in rows]
        counts = [
            self._num_unfed(info, row) + (count if count > num_drafted else 0)
            for row, count in zip(rows, brought, strict=True)
        ]
        if sum(counts) > most and sum(count > 0 for count in counts) > 1:
            raise Violation(f"(h) {info.replica_id} is to catch up by {sum(counts)} ids at a time")

    def _num_unfed(self, info: ReplicaInfo, row: LeaseRow) -> int:
        """Return the number of the row's new IDs, other than the pending one, that were not fed
        before."""
        count, fed = len(row.new_ids) - 1, self._fed[info.incarnation]
        if count and info.keeps_prefixes and not row.num_scored:
            ends = _block_ends(info, row.base_len, row.base_hash, row.new_ids)
            known = [length for length, key in ends if key in fed]
            count -= max(known, default=row.base_len) - row.base_len
        return max(count, 0)

    def _note_fed(self, info: ReplicaInfo, lease: GroupLease, result: GroupResult) -> None:
        if lease.role is Role.DRAFT or not info.keeps_prefixes:
            return
        cached = {answer.sequence_id: answer for answer in result.rows if answer.status is OK}
        for row in lease.rows:
            answer = cached.get(row.sequence_id)
            if answer is not None:
                ids = (*row.new_ids, *answer.tokens)[: answer.cached_len - row.base_len]
                ends = _block_ends(info, row.base_len, row.base_hash, ids)
                self._fed[info.incarnation].update(key for _, key in ends)

    def _begin_next(self, replica_id: str, now: float) -> None:
        for lease in self.open.values():
            if lease.replica_id == replica_id:
                self._expire_at[lease.lease_id] = now + lease.ttl_s

    def _close(self, lease: GroupLease) -> None:
        del self.open[lease.lease_id], self._expire_at[lease.lease_id]
        for row in lease.rows:
            if self._owners.get(row.sequence_id) == lease.lease_id:
                del self._owners[row.sequence_id]

    def _check_row(
        self, record: ReplicaState, lease: GroupLease, row: LeaseRow, is_target: bool
    ) -> None:
        sequence_id = row.sequence_id
        sequence = record.sequences[sequence_id]
        num_ids, end_len = len(sequence.ids), row.end_len
        if not (row.base_len < num_ids and end_len <= num_ids and row.new_ids):
            raise Violation(f"(d) {row} is leased at {num_ids} ids")
        if row.num_choices and end_len != num_ids:
            raise Violation(f"(b) {row} chooses behind {end_len} of {num_ids} ids")
        self._check_base(sequence, row)
        self._kv_owners.note(lease.epoch, sequence_id, sequence.request)
        if is_target or row.num_choices:
            owner = self._owners.get(sequence_id)
            if owner is not None:
                raise Violation(f"(a) {row} is leased while lease {owner} owns the sequence")
            self._owners[sequence_id] = lease.lease_id

    def _check_base(self, sequence: Sequence, row: LeaseRow) -> None:
        """(c) The prefix that the row's KV comes from is a prefix of a permitted answer."""
        length = row.base_len
        for script in self._kv_owners.scripts(sequence.request):
            if length < len(script.hashes) and script.hashes[length] == row.base_hash:
                return
        raise Violation(f"(c) {sequence.request_id}: KV up to {length} comes from other ids")


def _block_ends(
    info: ReplicaInfo, base_len: int, base_hash: int, ids: tuple[int, ...]
) -> Iterator[tuple[int, int]]:
    """Yield the length at each block end that the IDs reach, with the hash up to there."""
    size = info.kv_cache_spec.block_size
    if base_len // size == (base_len + len(ids)) // size:
        return
    for length, key in enumerate(hashes_behind(base_hash, ids), base_len + 1):
        if length % size == 0:
            yield length, key


def _check_lengths(scheduler: Scheduler, lease: GroupLease) -> None:
    record = scheduler._replicas.by_id[lease.replica_id]
    for row in lease.rows:
        sequence = record.sequences.get(row.sequence_id)
        if sequence is None or not row.num_choices:
            continue
        if len(sequence.ids) != row.end_len:
            raise Violation(f"(b) {row} is answered at {len(sequence.ids)} ids")
        pinned = sequence.pinned_fingerprint
        if lease.role is Role.TARGET and pinned not in ("", record.info.fingerprint):
            is_exact = record.info.numerics is Numerics.EXACT
            raise Violation(f"(b) {pinned} began it, {record.info} goes on, exact={is_exact}")
