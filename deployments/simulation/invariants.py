"""What must hold at every event, read from the pool's insides and from books of its own.

The letters are those of docs/simulation.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from deployments.outbox import Flush
from deployments.pool_driver import PoolDriver
from deployments.simulation.model_replica import ModelReplica
from deployments.simulation.record import Record, Violation
from deployments.simulation.tokens import Script
from deployments.simulation.transitions import NEW
from specdec_core.leases import GroupLease, GroupResult, LeaseRow, Role
from specdec_core.models.numerics import Numerics
from specdec_core.pool import Command, Emit, SendFree, SendLease, SendReset, SequencePool
from specdec_core.pool.fleet import ReplicaRecord
from specdec_core.pool.sequence import Place, Sequence, SequenceStatus
from specdec_core.request import Request, TokenEvent


class WatchedReplica(Protocol):
    @property
    def is_idle(self) -> bool: ...

    @property
    def runner(self) -> ModelReplica: ...


@dataclass(frozen=True, slots=True)
class Bounds:
    """What (h) and (i) allow."""

    row_wait_s: float
    """Between a row's being ready and its lease, while its replica may run it."""
    num_commands: int = 8
    """Unread by one replica."""


class Invariants:
    """Watches one coordinator through all its lives."""

    def __init__(
        self,
        record: Record,
        bounds: Bounds,
        scripts: Callable[[str], Iterable[Script]],
        replicas: Mapping[str, WatchedReplica],
    ) -> None:
        """`scripts` are what a request may answer, a script per fingerprint."""
        self._record = record
        self._bounds = bounds
        self._scripts = scripts
        self._replicas = replicas
        self._leases: dict[int, GroupLease] = {}
        """Sent in this epoch, neither answered nor void."""
        self._expire_at: dict[int, float] = {}
        self._owners: dict[int, int] = {}
        """Sequence -> the lease that owns it."""
        self._statuses: dict[int, SequenceStatus] = {}
        self._told: dict[str, int] = {}
        """Request -> tokens that its live attempt has been told."""
        self._aborted: set[str] = set()
        """Since the last decision."""
        self._resetting: set[str] = set()
        """Replicas that have not said yet that they forgot everything."""

    def began(self) -> None:
        for book in (self._leases, self._expire_at, self._owners, self._statuses, self._told):
            book.clear()
        self._aborted.clear()
        self._resetting.clear()

    def added(self, request: Request) -> None:
        self._told[request.request_id] = len(request.emitted_token_ids)
        self._aborted.discard(request.request_id)

    def aborted(self, request_id: str) -> None:
        self._aborted.add(request_id)

    def forgot(self, replica_id: str) -> None:
        self._resetting.discard(replica_id)

    def commanded(self, pool: SequencePool, commands: list[Command], now: float) -> None:
        for command in commands:
            if isinstance(command, Emit):
                self._emit(command.event)
            elif isinstance(command, SendLease):
                self._lease(pool, command.lease, now)
            elif isinstance(command, SendFree):
                self._free(command)
            elif isinstance(command, SendReset):
                self.gone(command.replica_id)
                self._resetting.add(command.replica_id)

    def gone(self, replica_id: str) -> None:
        self._resetting.discard(replica_id)
        for lease in [x for x in self._leases.values() if x.replica_id == replica_id]:
            self._close(lease)

    def result(self, pool: SequencePool, result: GroupResult, pass_on: Callable[[], None]) -> None:
        """(b) Only a live lease of this epoch commits, at the length that it names."""
        lease = self._leases.get(result.lease_id)
        is_live = result.epoch == pool._epoch and (
            lease is not None and lease.replica_id == result.replica_id
        )
        num_committed = pool._tally.num_committed
        if is_live and lease is not None:
            self._check_lengths(pool, lease)
            self._close(lease)
        pass_on()
        if not is_live and pool._tally.num_committed != num_committed:
            raise Violation(f"(b) a result of no live lease was committed: {result}")

    def told(self, flush: Flush) -> None:
        """(i) News that an ingress has not read is merged."""
        requests = [delivery.event.request_id for delivery in flush.deliveries]
        if len(requests) > 2 * len(set(requests)) + 2:
            raise Violation(f"(i) {len(requests)} pieces of news for {len(set(requests))} requests")

    def decided(self, driver: PoolDriver) -> None:
        fleet = driver.pool._fleet
        now = driver._clock()
        reserved: dict[str, int] = {}
        statuses: dict[int, SequenceStatus] = {}
        for sequence in driver.pool._registry:
            status = sequence.status
            statuses[sequence.sequence_id] = status
            self._note(sequence.sequence_id, status)
            for place in (sequence.target, sequence.draft):
                if place is not None:
                    record = fleet.get(place.replica_id)
                    self._check_place(sequence, place, record)
                    assert record is not None, "just checked"
                    blocks = record.num_blocks(place.reserved_len)
                    reserved[place.replica_id] = reserved.get(place.replica_id, 0) + blocks
            self._check_sequence(sequence, status, now, fleet.get)
            self._check_time(sequence, now)
            if not sequence.is_background and sequence.request_id not in driver._owners:
                raise Violation(f"(g) {sequence.request_id} is run for nobody")
        for sequence_id in self._statuses.keys() - statuses.keys():
            self._record.transitions[self._statuses[sequence_id], SequenceStatus.FINISHED] += 1
        self._statuses = statuses
        for record in fleet:
            self._check_replica(driver, record, reserved.get(record.replica_id, 0))
        self._check_bounds(driver, now)

    def _lease(self, pool: SequencePool, lease: GroupLease, now: float) -> None:
        if lease.replica_id in self._resetting:
            raise Violation(f"(f) {lease.replica_id} is leased more before it has forgotten")
        record = pool._fleet[lease.replica_id]
        for row in lease.rows:
            self._check_row(record, lease, row)
        self._leases[lease.lease_id] = lease
        self._expire_at[lease.lease_id] = now + lease.ttl_s

    def _emit(self, event: TokenEvent) -> None:
        """(e) Only a live attempt is told something, each token once and in order."""
        told = self._told.get(event.request_id)
        if event.index != told:
            raise Violation(f"(e) {event} comes at place {told}")
        self._told[event.request_id] = told + len(event.token_ids)
        if event.finish_reason is not None:
            del self._told[event.request_id]

    def _free(self, command: SendFree) -> None:
        """What is forgotten is owned no more."""
        for sequence_id in command.sequence_ids:
            lease = self._leases.get(self._owners.get(sequence_id, -1))
            if lease is not None and lease.replica_id == command.replica_id:
                del self._owners[sequence_id]

    def _check_bounds(self, driver: PoolDriver, now: float) -> None:
        """(h) A lease is answered or void in time; an abort takes effect at once."""
        for lease_id, expires_at in self._expire_at.items():
            if expires_at <= now:
                raise Violation(f"(h) lease {lease_id} is open at {now}, {expires_at} has passed")
        for request_id in self._aborted:
            if driver.pool.status(request_id) is not None:
                raise Violation(f"(h) {request_id} was aborted and goes on")
        self._aborted.clear()

    def _close(self, lease: GroupLease) -> None:
        del self._leases[lease.lease_id], self._expire_at[lease.lease_id]
        for row in lease.rows:
            if self._owners.get(row.sequence_id) == lease.lease_id:
                del self._owners[row.sequence_id]

    def _check_row(self, record: ReplicaRecord, lease: GroupLease, row: LeaseRow) -> None:
        sequence = record.sequences[row.sequence_id]
        num_ids = len(sequence.ids)
        if not (row.base_len <= num_ids - 1 and row.end_len <= num_ids):
            raise Violation(f"(d) {row} is leased at {num_ids} ids")
        if row.num_choices and row.end_len != num_ids:
            raise Violation(f"(b) {row} chooses behind {row.end_len} of {num_ids} ids")
        self._check_kv(sequence, row)
        if lease.role is Role.TARGET or row.num_choices:
            owner = self._owners.get(row.sequence_id)
            if owner is not None:
                raise Violation(f"(a) {row} is leased while lease {owner} owns the sequence")
            self._owners[row.sequence_id] = lease.lease_id

    def _check_kv(self, sequence: Sequence, row: LeaseRow) -> None:
        """(c) What the KV shall come from is a prefix of what the request may answer."""
        length = row.base_len
        if sequence.is_background:
            return
        for script in self._scripts(sequence.request_id):
            if length < len(script.hashes) and script.hashes[length] == row.base_hash:
                return
        raise Violation(f"(c) {sequence.request_id}: KV up to {length} comes from other ids")

    def _check_lengths(self, pool: SequencePool, lease: GroupLease) -> None:
        record = pool._fleet[lease.replica_id]
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

    def _note(self, sequence_id: int, status: SequenceStatus) -> None:
        earlier = self._statuses.get(sequence_id)
        if earlier is not status:
            self._record.transitions[earlier or NEW, status] += 1

    def _check_place(self, sequence: Sequence, place: Place, record: ReplicaRecord | None) -> None:
        if record is None:
            raise Violation(f"(g) {sequence.request_id} has a place on {place.replica_id}, gone")
        if record.sequences.get(sequence.sequence_id) is not sequence:
            raise Violation(f"(e) {place.replica_id} does not know {sequence.request_id}")
        if place.lease_id is not None and place.lease_id not in record.leases:
            raise Violation(f"(a) {sequence.request_id} waits for lease {place.lease_id}, void")

    def _check_sequence(
        self,
        sequence: Sequence,
        status: SequenceStatus,
        now: float,
        replica: Callable[[str], ReplicaRecord | None],
    ) -> None:
        target = sequence.target
        if target is None:
            return
        if target.cached_len > len(sequence.ids) - 1:
            raise Violation(f"(d) {sequence.request_id} caches {target.cached_len} ids")
        if status is SequenceStatus.DRAFTING and target.row is not None:
            raise Violation(f"(a) two leases own {sequence.request_id}")
        is_ready = status in (SequenceStatus.READY, SequenceStatus.PROPOSED)
        if is_ready and not sequence.is_background:
            record = replica(target.replica_id)
            waited = now - sequence.ready_since
            if record is not None and record.is_usable and waited > self._bounds.row_wait_s:
                raise Violation(f"(h) {sequence.request_id}, {status}, has waited {waited:.3f} s")

    def _check_time(self, sequence: Sequence, now: float) -> None:
        timeout_s = sequence.request.timeout_s
        if timeout_s is not None and sequence.arrived_at + timeout_s <= now:
            raise Violation(f"(h) {sequence.request_id} goes on, its {timeout_s} s are over")

    def _check_replica(self, driver: PoolDriver, record: ReplicaRecord, reserved: int) -> None:
        if record.num_reserved_blocks != reserved or reserved > record.info.num_blocks:
            raise Violation(f"(f) {record.num_reserved_blocks} blocks counted, {reserved} reserved")
        if not record.leases.keys() <= self._leases.keys():
            raise Violation(f"(b) {record.replica_id} may still answer a void lease")
        process = self._replicas.get(record.replica_id)
        connected = driver.replicas.get(record.replica_id)
        if process is None or connected is None:
            return
        if len(connected.outbox._commands) > self._bounds.num_commands:
            raise Violation(f"(i) {len(connected.outbox._commands)} commands wait")
        runner = process.runner
        is_same = runner.info.incarnation == record.info.incarnation
        is_told = driver.pool._outbox.is_empty and not (record.leases or record.is_fenced)
        if is_same and is_told and process.is_idle:
            self._check_idle(record, runner, reserved)

    def _check_idle(self, record: ReplicaRecord, runner: ModelReplica, reserved: int) -> None:
        """Nothing is under way: what the replica keeps must be what the pool knows of."""
        lost = runner.slots.keys() - record.sequences.keys()
        if lost:
            raise Violation(f"(g) {record.replica_id} keeps slots of {sorted(lost)}, which ended")
        if runner.num_used_blocks > reserved:
            raise Violation(
                f"(f) {record.replica_id} holds {runner.num_used_blocks}, counted {reserved}"
            )
