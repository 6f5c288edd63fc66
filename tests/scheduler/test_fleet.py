"""How a replica's blocks are counted: whole ones, and never fewer than the replica holds."""

from __future__ import annotations

from specdec_core.messages import Role
from specdec_core.scheduler.ready_queue import ReadyQueue
from specdec_core.scheduler.replicas import Device, ReplicaState
from specdec_core.scheduler.sequence import KVReservation, Sequence
from tests.scheduler.cell import request
from tests.scheduler.fake_replica import info


def placed(length: int, num_blocks: int = 10) -> tuple[ReplicaState, KVReservation]:
    replica = ReplicaState(
        info(num_blocks=num_blocks, block_size=4),
        ready_queue=ReadyQueue(Role.TARGET, 4),
        changed={},
        device=Device(),
    )
    sequence = Sequence(0, request("a"), 0.0)
    sequence.target = replica.add(sequence, length)
    return replica, sequence.target


def test_blocks_that_the_replica_still_holds_stay_reserved() -> None:
    replica, reservation = placed(3)
    assert replica.reserve(reservation, 17)
    replica.release(reservation, held_len=13, wanted_len=9)
    assert replica.num_reserved_blocks == 4
    replica.release(reservation, held_len=5, wanted_len=9)
    assert replica.num_reserved_blocks == 3


def test_settling_never_reserves_more() -> None:
    replica, reservation = placed(3)
    replica.release(reservation, held_len=40, wanted_len=40)
    assert (reservation.reserved_len, replica.num_reserved_blocks) == (3, 1)


def test_a_place_grows_into_the_free_blocks_and_no_further() -> None:
    replica, reservation = placed(3, num_blocks=3)
    assert replica.max_len(reservation) == 12
    assert not replica.reserve(reservation, 13)
    assert (reservation.reserved_len, replica.num_free_blocks) == (3, 2)
    assert replica.reserve(reservation, 12)
    assert replica.num_free_blocks == 0
    assert replica.reserve(reservation, 2)
    assert (reservation.reserved_len, replica.num_free_blocks) == (12, 0)


def test_a_sequence_that_leaves_takes_nothing_along() -> None:
    replica, reservation = placed(9)
    (sequence,) = replica.sequences.values()
    replica.remove(sequence, reservation)
    assert (replica.num_reserved_blocks, replica.sequences) == (0, {})


def test_an_empty_replica_has_room_for_what_fills_it() -> None:
    replica = ReplicaState(
        info(num_blocks=2, block_size=4),
        ready_queue=ReadyQueue(Role.TARGET, 4),
        changed={},
        device=Device(),
    )
    assert replica.has_room(8)
    assert not replica.has_room(9)


def test_a_newcomer_leaves_a_block_for_every_fourth_sequence() -> None:
    replica, _ = placed(4, num_blocks=7)
    for sequence_id in range(1, 4):
        replica.add(Sequence(sequence_id, request(str(sequence_id)), 0.0), 4)
    assert replica.has_room(8)
    assert not replica.has_room(9)
