"""A request whose time is over is ended by the pool, whatever its ingress does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specdec_core.errors import InvalidRequestError
from specdec_core.request import ErrorKind, FinishReason, Request
from specdec_core.scheduler import SequenceStatus
from specdec_core.scheduler.live_requests import MOST_AT_ONCE
from tests.scheduler import invariants
from tests.scheduler.cell import Cell, Client, config, request
from tests.scheduler.fake_replica import info


def timed(request_id: str = "a", timeout_s: float = 5.0, max_tokens: int = 8) -> Request:
    return replace(request(request_id, max_tokens=max_tokens), timeout_s=timeout_s)


def assert_overdue(client: Client, timeout: str = "5") -> None:
    assert client.last is not None
    assert client.last.finish_reason is FinishReason.ERROR
    assert client.last.error_kind is ErrorKind.TIMEOUT
    assert client.last.error == f"not finished within {timeout} s"


def test_a_waiting_request_is_ended_when_its_time_is_over_and_not_before() -> None:
    cell = Cell(config())
    client = cell.add(timed())
    assert cell.pool.next_deadline() == 5.0
    cell.now = 4.999
    cell.advance()
    assert cell.pool.status("a") is SequenceStatus.WAITING
    cell.now = 5.0
    cell.advance()
    assert_overdue(client)
    assert cell.pool.next_deadline() is None
    invariants.check_empty(cell.pool)


def test_its_time_begins_with_its_arrival() -> None:
    cell = Cell(config())
    cell.now = 100.0
    cell.add(timed(timeout_s=0.5))
    assert cell.pool.next_deadline() == 100.5


@pytest.mark.parametrize("is_leased", [False, True])
def test_a_running_one_ends_behind_what_it_was_told_and_its_slot_is_freed(is_leased: bool) -> None:
    cell = Cell(config(lease_ttl_s=60.0))
    replica = cell.join(info())
    client = cell.add(timed(max_tokens=40))
    for _ in range(3):
        cell.turn()
    if is_leased:
        cell.advance()
    cell.now = 6.0
    cell.run()
    assert_overdue(client)
    assert len(client.token_ids) >= 2
    client.check_plain()
    assert not replica.slots
    invariants.check_empty(cell.pool)


def test_it_is_not_admitted_any_more() -> None:
    cell = Cell(config())
    client = cell.add(timed())
    cell.join(info())
    cell.now = 5.0
    cell.advance()
    assert_overdue(client)
    assert not cell.leases


def test_it_makes_room_in_a_full_queue() -> None:
    cell = Cell(config(max_queued=1))
    cell.add(timed())
    cell.now = 7.0
    cell.add(request("b"))
    assert cell.pool.status("a") is None
    assert cell.pool.status("b") is SequenceStatus.WAITING


def test_others_and_those_that_ended_in_time_are_left_alone() -> None:
    cell = Cell(config())
    cell.join(info())
    quick, patient = cell.add(timed("quick")), cell.add(timed("patient", timeout_s=1000.0))
    cell.run()
    cell.now = 10.0
    cell.advance()
    assert quick.reason is patient.reason is FinishReason.LENGTH


def test_a_later_attempt_has_a_time_of_its_own() -> None:
    cell = Cell(config())
    cell.add(timed())
    cell.now = 4.0
    later = cell.add(timed())
    cell.now = 6.0
    cell.advance()
    assert cell.pool.status("a") is SequenceStatus.WAITING
    cell.now = 9.0
    cell.advance()
    assert_overdue(later)


def test_the_soonest_goes_first_whoever_came_first() -> None:
    cell = Cell(config())
    slow, quick = cell.add(timed("slow", 9.0)), cell.add(timed("quick", 3.0))
    cell.now = 3.0
    cell.advance()
    assert_overdue(quick, "3")
    assert slow.last is None
    assert cell.pool.next_deadline() == 9.0


def test_a_deadline_is_looked_at_however_long_the_lease_lasts() -> None:
    cell = Cell(config(lease_ttl_s=60.0))
    cell.join(info())
    cell.add(timed())
    cell.advance()
    assert cell.leases
    assert cell.pool.next_deadline() == 5.0


def test_many_at_once_end_by_parts_so_that_others_are_not_held_up() -> None:
    cell = Cell(config(max_queued=1000))
    for number in range(MOST_AT_ONCE + 10):
        cell.add(timed(str(number)))
    cell.now = 6.0
    cell.advance()
    assert cell.pool.num_waiting == 10
    deadline = cell.pool.next_deadline()
    assert deadline is not None
    assert deadline <= cell.now
    cell.advance()
    assert not cell.pool.has_work


def test_what_ended_in_time_is_forgotten_long_before() -> None:
    cell = Cell(config())
    cell.add(timed("stays", timeout_s=1.0))
    cell.now = 0.5
    for number in range(1000):
        cell.add(timed(str(number), timeout_s=3600.0))
        cell.pool.abort(str(number), cell.now)
        cell.advance()
    assert len(cell.pool._requests._deadlines) <= 200


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, float("nan")])
def test_a_time_that_is_none_is_refused(timeout_s: float) -> None:
    with pytest.raises(InvalidRequestError, match="timeout_s must be positive"):
        timed(timeout_s=timeout_s)
