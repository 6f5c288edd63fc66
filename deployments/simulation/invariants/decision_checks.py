"""(a), (d), (e), (f), (g), (h), (i), (k): the state after every decision of the scheduler.

Every sequence and every replica is checked each time. The scheduler's own list of changes would not
show what it forgot.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from deployments.coordinator.driver import SchedulerDriver
from deployments.simulation.invariants.bounds import Bounds
from deployments.simulation.model_replica import LeaseKey, ModelReplica
from deployments.simulation.network import Stream
from deployments.simulation.record import Record, Violation
from deployments.simulation.transitions import NEW
from specdec_core.messages import DRAFT, GroupLease, Occupancy
from specdec_core.scheduler.live_requests import LiveRequests
from specdec_core.scheduler.replicas import ReplicaSet, ReplicaState
from specdec_core.scheduler.sequence import KVReservation, Sequence, SequenceStatus

_DRAFTING = SequenceStatus.DRAFTING
_AT_REST = (SequenceStatus.READY, SequenceStatus.PROPOSED)


class WatchedReplica(Protocol):
    @property
    def is_idle(self) -> bool: ...

    @property
    def num_unread(self) -> int:
        """Number of messages under way to the replica."""
        ...

    @property
    def runner(self) -> ModelReplica: ...

    @property
    def occupancies(self) -> Mapping[LeaseKey, Occupancy]:
        """Occupancy of the replica after every lease."""
        ...

    @property
    def stream(self) -> Stream | None:
        """The last stream that the replica opened."""
        ...


class DecisionChecks:
    """Checks of one life of a coordinator."""

    def __init__(
        self, record: Record, bounds: Bounds, replicas: Mapping[str, WatchedReplica]
    ) -> None:
        self._record = record
        self._bounds = bounds
        self._replicas = replicas
        self._statuses: dict[int, SequenceStatus] = {}
        """Statuses of the live sequences, by sequence ID."""

    def check(self, driver: SchedulerDriver, leases: Mapping[int, GroupLease], now: float) -> None:
        requests, replicas = driver.scheduler._requests, driver.scheduler._replicas
        num_reservations = self._check_sequences(requests, replicas, now)
        self._note_ended(requests)
        for request_id in requests.by_id.keys() - driver.requests.keys():
            if not requests.by_id[request_id].is_background:
                raise Violation(f"(g) {request_id} is run for nobody")
        is_told_all = not driver.scheduler._commands
        for record in replicas.by_id.values():
            reserved = self._check_reservations(record)
            num_reservations -= len(record.sequences)
            self._check_replica(driver, record, reserved, leases, is_told_all)
        if num_reservations:
            raise _misplaced(requests, replicas)
        _check_outboxes(driver)

    def _check_sequences(self, requests: LiveRequests, replicas: ReplicaSet, now: float) -> int:
        """Return the number of KV reservations of all sequences. Names are bound outside the loop,
        because it runs for every sequence after every decision."""
        statuses = self._statuses
        has_drafts = any([not draft.is_fenced for draft in replicas.drafts])
        latest = now - self._bounds.row_wait_s
        num_reservations = 0
        for sequence in requests.by_id.values():
            status, target = sequence.status, sequence.target
            if statuses.get(sequence.sequence_id) is not status:
                self._note(sequence.sequence_id, status)
            if sequence.draft is not None:
                num_reservations += 1
            if target is not None:
                num_reservations += 1
                if target.cached_len >= len(sequence.ids):
                    raise Violation(f"(d) {sequence.request_id} caches {target.cached_len} ids")
                if status is _DRAFTING and target.row is not None:
                    raise Violation(f"(a) two leases own {sequence.request_id}")
                if sequence.ready_since < latest:
                    _check_wait(sequence, target, status, now, replicas)
                if not has_drafts:
                    _check_undrafted(sequence, target, status, replicas)
        return num_reservations

    def _check_reservations(self, record: ReplicaState) -> int:
        """(a), (e): every sequence here is live, has this KV reservation and waits for an open
        lease at most. Return the number of blocks that they have reserved."""
        statuses, leases = self._statuses, record.leases
        replica_id = record.replica_id
        is_draft = record.role is DRAFT
        reserved = 0
        for sequence_id, sequence in record.sequences.items():
            reservation = sequence.draft if is_draft else sequence.target
            is_here = reservation is not None and reservation.replica_id == replica_id
            if reservation is None or not is_here or sequence_id not in statuses:
                raise Violation(f"(e) {replica_id} keeps a place for an attempt that is over")
            if reservation.lease_id is not None and reservation.lease_id not in leases:
                lease = f"lease {reservation.lease_id}, void"
                raise Violation(f"(a) {sequence.request_id} waits for {lease}")
            reserved += record.blocks_for(reservation.reserved_len)
        return reserved

    def _note(self, sequence_id: int, status: SequenceStatus) -> None:
        """Count a change of status."""
        self._record.transitions[self._statuses.get(sequence_id, NEW), status] += 1
        self._statuses[sequence_id] = status

    def _note_ended(self, requests: LiveRequests) -> None:
        if len(self._statuses) == len(requests.by_id):
            return
        for sequence_id in self._statuses.keys() - {s.sequence_id for s in requests.by_id.values()}:
            before = self._statuses.pop(sequence_id)
            self._record.transitions[before, SequenceStatus.FINISHED] += 1

    def _check_replica(
        self,
        driver: SchedulerDriver,
        record: ReplicaState,
        reserved: int,
        leases: Mapping[int, GroupLease],
        is_told_all: bool,
    ) -> None:
        if record.num_reserved_blocks != reserved or reserved > record.info.num_blocks:
            raise Violation(f"(f) {record.num_reserved_blocks} blocks counted, {reserved} reserved")
        if record.leases and not record.leases.keys() <= leases.keys():
            raise Violation(f"(b) {record.replica_id} may still answer a void lease")
        process = self._replicas.get(record.replica_id)
        connected = driver.replicas.get(record.replica_id)
        if process is None or connected is None:
            return
        num_waiting = len(connected.outbox._commands)
        if num_waiting > self._bounds.num_commands:
            raise Violation(f"(i) {num_waiting} commands wait for {record.replica_id}")
        if num_waiting or not is_told_all or record.frees or record.leases or record.is_fenced:
            return
        runner = process.runner
        if runner.info.incarnation == record.info.incarnation and process.is_idle:
            _check_idle(record, runner, reserved)


def _misplaced(requests: LiveRequests, replicas: ReplicaSet) -> Violation:
    """Return the violation of a sequence with a KV reservation that its replica does not know
    of."""
    for sequence in requests.by_id.values():
        for reservation in (sequence.target, sequence.draft):
            if reservation is None:
                continue
            record = replicas.by_id.get(reservation.replica_id)
            if record is None:
                return Violation(
                    f"(g) {sequence.request_id} has a place on {reservation.replica_id}, gone"
                )
            if record.sequences.get(sequence.sequence_id) is not sequence:
                return Violation(
                    f"(e) {reservation.replica_id} does not know {sequence.request_id}"
                )
    raise AssertionError(
        "no sequence has an unknown reservation, but the numbers of reservations differ"
    )


def _check_wait(
    sequence: Sequence,
    target: KVReservation,
    status: SequenceStatus,
    now: float,
    replicas: ReplicaSet,
) -> None:
    is_late = status in _AT_REST and not sequence.is_background
    if is_late and replicas.by_id[target.replica_id].is_usable:
        waited = now - sequence.ready_since
        raise Violation(f"(h) {sequence.request_id}, {status}, has waited {waited:.3f} s")


def _check_undrafted(
    sequence: Sequence, target: KVReservation, status: SequenceStatus, replicas: ReplicaSet
) -> None:
    """(k) Without a draft, the target has a row of the sequence, leased or ready, or is about to
    plan one."""
    if status is _DRAFTING:
        raise Violation(f"(k) {sequence.request_id} waits for a draft, and there is none")
    record = replicas.by_id[target.replica_id]
    if target.row is None and record.is_usable:
        sequence_id = sequence.sequence_id
        if sequence_id not in record.ready_queue and sequence_id not in replicas.changed:
            raise Violation(f"(k) no draft is left, and nobody verifies {sequence.request_id}")


def _check_outboxes(driver: SchedulerDriver) -> None:
    """(i) Events that an ingress has not read are merged, and no event overtakes another of its
    request."""
    for outbox in driver._ingresses:
        due, held = outbox._due, outbox._held
        num_pieces = sum(map(len, (*due.values(), *held.values())))
        if num_pieces > 2 * len(due | held) + 2:
            raise Violation(f"(i) {num_pieces} events wait")
        if due.keys() & held.keys():
            raise Violation(f"(i) events of {sorted(due.keys() & held.keys())} wait in two places")


def _check_idle(record: ReplicaState, runner: ModelReplica, reserved: int) -> None:
    """(f), (g) Nothing is under way, so the replica may keep only what the scheduler knows of."""
    if not runner.slots.keys() <= record.sequences.keys():
        lost = runner.slots.keys() - record.sequences.keys()
        raise Violation(f"(g) {record.replica_id} keeps slots of {sorted(lost)}, which ended")
    num_used = runner.info.num_blocks - runner.num_free_blocks
    if num_used > reserved:
        raise Violation(f"(f) {record.replica_id} holds {num_used}, counted {reserved}")
