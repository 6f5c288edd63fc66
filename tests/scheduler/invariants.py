"""What must hold after every call of the pool, whatever happened: read from its insides."""

from __future__ import annotations

from specdec_core.messages import Role
from specdec_core.scheduler import Scheduler
from specdec_core.scheduler.replicas import ReplicaSet, ReplicaState
from specdec_core.scheduler.sequence import KVReservation, Sequence


def check(pool: Scheduler) -> None:
    replicas: ReplicaSet = pool._replicas
    live = {sequence.sequence_id: sequence for sequence in pool._requests.by_id.values()}
    waiting = pool._requests.waiting.sequences
    assert sorted(s.rank for s in waiting) == [s.rank for s in waiting]
    assert {s.sequence_id for s in waiting} == {i for i, s in live.items() if s.target is None}
    assert pool.num_waiting == sum(not s.is_background for s in waiting)
    assert pool.num_live == sum(not s.is_background for s in live.values())
    for replica in replicas.by_id.values():
        _check_replica(replica, live)
        _check_catch_up(replica, pool._config.max_prefill_tokens)
    for sequence in live.values():
        _check_sequence(sequence, replicas)


def check_empty(pool: Scheduler) -> None:
    """After the last request has ended nothing of it is left."""
    assert not pool.has_work
    counters = pool.counters()
    assert counters.num_waiting == counters.num_running == 0
    assert not pool._requests._undrafted
    assert not pool._requests._proposer.ended
    assert not pool._requests.waiting._accounts
    for replica in pool._replicas.by_id.values():
        assert not replica.sequences
        assert not replica.leases
        assert replica.num_reserved_blocks == 0
        assert not replica.ready_queue.num_ready
        assert not replica.ready_queue._in_flight


def _check_replica(replica: ReplicaState, live: dict[int, Sequence]) -> None:
    reservations = [_reservation(s, replica.role) for s in replica.sequences.values()]
    assert all(replica.blocks_for(one.reserved_len) == one.num_blocks for one in reservations)
    reserved = sum(one.num_blocks for one in reservations)
    assert replica.num_reserved_blocks == reserved <= replica.info.num_blocks
    assert all(live[sequence_id] is s for sequence_id, s in replica.sequences.items())
    if replica.is_fenced:
        assert not replica.sequences
        assert not replica.leases


def _check_catch_up(replica: ReplicaState, limit: int | None) -> None:
    """A target has no more than the limit, or one row."""
    rows = [row for open_ in replica.leases.values() for row in open_.lease.rows]
    counts = [len(row.new_ids) - 1 for row in rows if len(row.new_ids) > 1]
    if limit is not None and replica.role is Role.TARGET:
        assert sum(counts) <= limit or len(counts) == 1


def _check_sequence(sequence: Sequence, replicas: ReplicaSet) -> None:
    assert sequence.finish_reason is None
    is_with_target = sequence.target is not None and sequence.target.row is not None
    assert not (is_with_target and sequence.is_drafting), "two leases own one sequence"
    for role in Role:
        if sequence.reservation(role) is None:
            continue
        reservation = _reservation(sequence, role)
        replica = replicas.by_id[reservation.replica_id]
        assert replica.role is role
        assert replica.sequences[sequence.sequence_id] is sequence
        assert (reservation.row is None) == (reservation.lease_id is None)
        if reservation.lease_id is not None:
            assert reservation.row in replica.leases[reservation.lease_id].lease.rows
    if sequence.target is not None:
        assert sequence.target.cached_len <= len(sequence.ids) - 1
        assert sequence.target.reserved_len >= sequence.target.cached_len


def _reservation(sequence: Sequence, role: Role) -> KVReservation:
    reservation = sequence.reservation(role)
    assert reservation is not None
    return reservation
