"""The order of commands: frees ahead of the replica's next lease, none behind a reset."""

from __future__ import annotations

from specdec_core.messages import Role
from specdec_core.request import TokenEvent
from specdec_core.scheduler import Drained, SendFree, SendLease, SendReset
from tests.scheduler.cell import Cell, config, request
from tests.scheduler.fake_replica import info


def running(*replica_ids: str, num_requests: int = 3) -> Cell:
    """Requests that have their first token: each target has some of them, and runs no lease."""
    cell = Cell(config(max_group_size=4, lease_ttl_s=5.0))
    for replica_id in replica_ids:
        cell.join(info(replica_id, Role.TARGET))
    for index in range(num_requests):
        cell.add(request(str(index)))
    cell.turn()
    return cell


def leave(cell: Cell, *request_ids: str) -> None:
    for request_id in request_ids:
        cell.pool.abort(request_id, cell.now)


def test_frees_of_a_replica_go_together_before_its_next_lease() -> None:
    cell = running("a")
    leave(cell, "0", "2")
    free, lease = [one for one in cell.advance() if not isinstance(one, TokenEvent)]
    assert free == SendFree("a", (0, 2))
    assert isinstance(lease, SendLease)
    leave(cell, "1")
    assert cell.pool.has_work
    assert [one for one in cell.advance() if not isinstance(one, TokenEvent)] == [
        SendFree("a", (1,))
    ]
    assert not cell.pool.has_work
    assert cell.advance() == []


def test_a_replica_that_is_reset_is_told_to_free_nothing() -> None:
    cell = running("a", "b", num_requests=4)
    cell.advance()
    cell.handle("b")
    cell.deliver("b")
    on_b = next(iter(cell.pool._replicas.by_id["b"].sequences.values()))
    leave(cell, "0", on_b.request_id)
    cell.now += 5.0
    told = [one for one in cell.advance() if not isinstance(one, TokenEvent | SendLease)]
    assert told == [SendReset("a", info("a").incarnation), SendFree("b", (on_b.sequence_id,))]


def test_a_drained_replica_is_told_its_last_frees_first() -> None:
    cell = running("a", num_requests=1)
    leave(cell, "0")
    cell.pool.drain("a", cell.now)
    assert cell.advance()[-2:] == [SendFree("a", (0,)), Drained("a")]
