"""(a), (d), (e), (f), (g), (h), (i), (k): the state behind every decision of the pool.

Every sequence and every replica is looked at each time: what the pool itself believes to have
changed says nothing about what it forgot.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from deployments.pool_driver import PoolDriver
from deployments.simulation.invariants.bounds import Bounds
from deployments.simulation.model_replica import ModelReplica
from deployments.simulation.record import Record, Violation
from deployments.simulation.transitions import NEW
from specdec_core.leases import GroupLease, Role
from specdec_core.pool.fleet import Fleet, ReplicaRecord
from specdec_core.pool.registry import Registry
from specdec_core.pool.sequence import Place, Sequence, SequenceStatus

_DRAFTING = SequenceStatus.DRAFTING
_AT_REST = (SequenceStatus.READY, SequenceStatus.PROPOSED)


class WatchedReplica(Protocol):
    @property
    def is_idle(self) -> bool: ...

    @property
    def num_unread(self) -> int:
        """Messages under way to it."""
        ...

    @property
    def runner(self) -> ModelReplica: ...


class DecisionChecks:
    """Of one life of a coordinator."""

    def __init__(
        self, record: Record, bounds: Bounds, replicas: Mapping[str, WatchedReplica]
    ) -> None:
        self._record = record
        self._bounds = bounds
        self._replicas = replicas
        self._statuses: dict[int, SequenceStatus] = {}

    def check(self, driver: PoolDriver, leases: Mapping[int, GroupLease], now: float) -> None:
        """Names are bound outside the loop over sequences: it is a tenth of a seed's time."""
        fleet, owners, statuses = driver.pool._fleet, driver._owners, self._statuses
        records = fleet._replicas
        num_reserved = dict.fromkeys(records, 0)
        num_placed = dict.fromkeys(records, 0)
        has_drafts = any(not draft.is_fenced for draft in fleet.of_role(Role.DRAFT))
        latest = now - self._bounds.row_wait_s
        for sequence in driver.pool._registry:
            sequence_id, status, target = sequence.sequence_id, sequence.status, sequence.target
            if statuses.get(sequence_id) is not status:
                self._note(sequence_id, status)
            for place in (target, sequence.draft):
                if place is not None:
                    replica_id = place.replica_id
                    record = records.get(replica_id)
                    if record is None or record.sequences.get(sequence_id) is not sequence:
                        raise _misplaced(sequence, replica_id, record)
                    if place.lease_id is not None and place.lease_id not in record.leases:
                        lease = f"lease {place.lease_id}, void"
                        raise Violation(f"(a) {sequence.request_id} waits for {lease}")
                    num_reserved[replica_id] -= place.reserved_len // -record.info.block_size
                    num_placed[replica_id] += 1
            if target is not None:
                if target.cached_len >= len(sequence.ids):
                    raise Violation(f"(d) {sequence.request_id} caches {target.cached_len} ids")
                if status is _DRAFTING and target.row is not None:
                    raise Violation(f"(a) two leases own {sequence.request_id}")
                if sequence.ready_since < latest:
                    self._check_wait(sequence, target, status, now, fleet)
                if not has_drafts:
                    _check_undrafted(sequence, target, status, fleet)
            if sequence.request.timeout_s is not None:
                _check_time(sequence, sequence.request.timeout_s, now)
            if sequence.request_id not in owners and not sequence.is_background:
                raise Violation(f"(g) {sequence.request_id} is run for nobody")
        self._note_ended(driver.pool._registry)
        for replica_id, record in records.items():
            if len(record.sequences) != num_placed[replica_id]:
                raise Violation(f"(e) {replica_id} keeps a place for an attempt that is over")
            self._check_replica(driver, record, num_reserved[replica_id], leases)
        _check_outboxes(driver)

    def _note(self, sequence_id: int, status: SequenceStatus) -> None:
        """Count what changed."""
        self._record.transitions[self._statuses.get(sequence_id, NEW), status] += 1
        self._statuses[sequence_id] = status

    def _note_ended(self, registry: Registry) -> None:
        if len(self._statuses) == len(registry):
            return
        for sequence_id in self._statuses.keys() - {s.sequence_id for s in registry}:
            before = self._statuses.pop(sequence_id)
            self._record.transitions[before, SequenceStatus.FINISHED] += 1

    def _check_wait(
        self, sequence: Sequence, target: Place, status: SequenceStatus, now: float, fleet: Fleet
    ) -> None:
        is_late = status in _AT_REST and not sequence.is_background
        if is_late and fleet[target.replica_id].is_usable:
            waited = now - sequence.ready_since
            raise Violation(f"(h) {sequence.request_id}, {status}, has waited {waited:.3f} s")

    def _check_replica(
        self,
        driver: PoolDriver,
        record: ReplicaRecord,
        reserved: int,
        leases: Mapping[int, GroupLease],
    ) -> None:
        if record.num_reserved_blocks != reserved or reserved > record.info.num_blocks:
            raise Violation(f"(f) {record.num_reserved_blocks} blocks counted, {reserved} reserved")
        for lease_id in record.leases:
            if lease_id not in leases:
                raise Violation(f"(b) {record.replica_id} may still answer a void lease")
        process = self._replicas.get(record.replica_id)
        connected = driver.replicas.get(record.replica_id)
        if process is None or connected is None:
            return
        runner = process.runner
        is_same = runner.info.incarnation == record.info.incarnation
        num_waiting = len(connected.outbox._commands)
        num_unread = process.num_unread if is_same else 0
        if num_waiting > self._bounds.num_commands or num_unread > self._bounds.num_unread:
            raise Violation(
                f"(i) {num_waiting} commands wait for {record.replica_id}, {num_unread} are unread"
            )
        is_free = is_same and not (record.leases or record.is_fenced)
        if is_free and driver.pool._outbox.is_empty and process.is_idle:
            _check_idle(record, runner, reserved)


def _misplaced(sequence: Sequence, replica_id: str, record: ReplicaRecord | None) -> Violation:
    if record is None:
        return Violation(f"(g) {sequence.request_id} has a place on {replica_id}, gone")
    return Violation(f"(e) {replica_id} does not know {sequence.request_id}")


def _check_undrafted(
    sequence: Sequence, target: Place, status: SequenceStatus, fleet: Fleet
) -> None:
    """(k) No draft serves: its target has a row of it, out or ready, or is about to plan one."""
    if status is _DRAFTING:
        raise Violation(f"(k) {sequence.request_id} waits for a draft, and there is none")
    record = fleet[target.replica_id]
    if target.row is None and record.is_usable:
        sequence_id, board = sequence.sequence_id, record.board
        is_planned = sequence_id in board.clients._cohort_of or sequence_id in board._background
        if not is_planned and sequence_id not in fleet._changed:
            raise Violation(f"(k) no draft is left, and nobody verifies {sequence.request_id}")


def _check_time(sequence: Sequence, timeout_s: float, now: float) -> None:
    if sequence.arrived_at + timeout_s <= now:
        raise Violation(f"(h) {sequence.request_id} goes on, its {timeout_s} s are over")


def _check_outboxes(driver: PoolDriver) -> None:
    """(i) News that an ingress has not read is merged."""
    for outbox in driver._ingresses:
        if len(outbox._deliveries) > 2 * len(outbox._last) + 2:
            raise Violation(f"(i) {len(outbox._deliveries)} pieces of news wait")


def _check_idle(record: ReplicaRecord, runner: ModelReplica, reserved: int) -> None:
    """Nothing is under way: what the replica keeps must be what the pool knows of."""
    lost = runner.slots.keys() - record.sequences.keys()
    if lost:
        raise Violation(f"(g) {record.replica_id} keeps slots of {sorted(lost)}, which ended")
    if runner.num_used_blocks > reserved:
        raise Violation(
            f"(f) {record.replica_id} holds {runner.num_used_blocks}, counted {reserved}"
        )
