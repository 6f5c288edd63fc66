"""The order of commands: frees ahead of the replica's next lease, none behind a reset."""

from __future__ import annotations

from specdec_core.messages import GroupLease, Role
from specdec_core.scheduler import Drained, SendFree, SendLease, SendReset
from specdec_core.scheduler.commands import Outbox


def lease(replica_id: str) -> GroupLease:
    return GroupLease(
        lease_id=1, epoch=1, replica_id=replica_id, role=Role.TARGET, rows=(), ttl_s=1.0
    )


def test_frees_of_a_replica_go_together_before_its_next_lease() -> None:
    outbox = Outbox()
    outbox.free("a", 1)
    outbox.free("b", 2)
    outbox.free("a", 3)
    outbox.lease(lease("a"))
    outbox.free("a", 4)
    assert outbox.take() == [
        SendFree("a", (1, 3)),
        SendLease(lease("a")),
        SendFree("b", (2,)),
        SendFree("a", (4,)),
    ]
    assert outbox.take() == []
    assert outbox.is_empty


def test_a_replica_that_is_reset_is_told_to_free_nothing() -> None:
    outbox = Outbox()
    outbox.free("a", 1)
    outbox.free("b", 2)
    outbox.reset("a", 7)
    assert outbox.take() == [SendReset("a", 7), SendFree("b", (2,))]


def test_a_drained_replica_is_told_its_last_frees_first() -> None:
    outbox = Outbox()
    outbox.free("a", 1)
    assert not outbox.is_empty
    outbox.drained("a")
    assert outbox.take() == [SendFree("a", (1,)), Drained("a")]
