"""Background requests: they run to their end, and no client's request ever waits for one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specdec_core.config import SpecMethod
from specdec_core.errors import QueueFullError
from specdec_core.messages import Role
from specdec_core.request import Request
from specdec_core.scheduler import SequenceStatus
from tests.scheduler import invariants
from tests.scheduler.cell import Cell, config, request
from tests.scheduler.fake_replica import info


def background(request_id: str = "bg", max_tokens: int = 8, prompt_len: int = 3) -> Request:
    prompt = tuple(range(1, 1 + prompt_len))
    asked = request(request_id, tuple(i % 5 for i in prompt), max_tokens, priority=-100)
    return replace(asked, is_background=True)


def rows_of(cell: Cell, place: int = -1) -> set[int]:
    return {row.sequence_id for row in cell.leases[place].rows}


def test_it_runs_to_its_end_and_counts_in_no_figure_of_requests() -> None:
    cell = Cell(config(SpecMethod.NGRAM))
    cell.join(info())
    client = cell.add(background())
    cell.turn()
    counters = cell.pool.counters()
    assert (counters.num_running, counters.num_waiting) == (0, 0)
    cell.run()
    client.check_plain()
    assert client.last is not None
    counters = cell.pool.counters()
    assert counters.num_groups > 0
    assert counters.num_committed == counters.num_sequence_rounds == counters.num_drafted == 0
    assert counters.num_finished == {}
    assert counters.sum_wait_s == 0
    invariants.check_empty(cell.pool)


def test_a_later_client_is_admitted_first() -> None:
    cell = Cell(config(window=1, max_group_size=1))
    cell.add(background())
    cell.add(request("a"))
    cell.join(info())
    cell.advance()
    assert cell.pool.status("a") is SequenceStatus.VERIFYING
    assert cell.pool.status("bg") is SequenceStatus.WAITING


@pytest.mark.parametrize("limits", [{"window": 1, "max_group_size": 1}, {}])
def test_an_admitted_one_gives_its_place_to_a_client(limits: dict[str, int]) -> None:
    """A place is a seat in the window, or memory: 5 blocks of 4 are what the client needs."""
    cell = Cell(config(**limits))
    cell.join(info(num_blocks=7))
    quiet = cell.add(background(prompt_len=9))
    cell.turn()
    client = cell.add(request("a", tuple(i % 5 for i in range(20))))
    cell.turn()
    assert cell.pool.status("bg") is SequenceStatus.WAITING
    assert cell.pool.status("a") is not SequenceStatus.WAITING
    assert cell.pool.counters().num_preemptions == 0
    cell.run()
    for one in (quiet, client):
        one.check_plain()
    invariants.check_empty(cell.pool)


def test_a_leased_one_gives_its_place_when_it_returns() -> None:
    cell = Cell(config(window=1, max_group_size=1))
    cell.join(info())
    cell.add(background())
    cell.advance()
    cell.add(request("a"))
    cell.advance()
    assert cell.pool.status("bg") is SequenceStatus.VERIFYING
    cell.handle("target")
    cell.deliver("target")
    cell.advance()
    assert cell.pool.status("a") is SequenceStatus.VERIFYING


def test_it_takes_only_the_seats_that_clients_leave() -> None:
    cell = Cell(config(max_group_size=2))
    cell.join(info())
    cell.add(background())
    cell.turn()
    cell.add(request("a", max_tokens=20))
    cell.turn()
    assert rows_of(cell) == {0, 1}
    cell.add(request("b", max_tokens=20))
    for _ in range(5):
        cell.turn()
        assert rows_of(cell) == {1, 2}


def test_it_never_makes_a_target_busy_while_a_client_is_being_drafted() -> None:
    """Its round would be in the way when the draft has answered."""
    cell = Cell(config(SpecMethod.DRAFT_MODEL, max_group_wait_s=0.1))
    cell.join(info())
    cell.join(info("draft", Role.DRAFT))
    client = cell.add(request("a", max_tokens=40))
    while cell.pool.status("a") is not SequenceStatus.DRAFTING:
        cell.turn()
        cell.advance()
    quiet = cell.add(replace(background(), speculation_enabled=False))
    num_leases = len(cell.leases)
    for _ in range(5):
        cell.now += 1.0
        cell.advance()
    assert len(cell.leases) == num_leases
    cell.run()
    client.check_plain()
    quiet.check_plain()
    assert quiet.last is not None


def test_its_waits_do_not_count() -> None:
    cell = Cell(config(max_group_size=1, window=2))
    cell.join(info())
    cell.add(request("a", max_tokens=1))
    cell.add(background())
    cell.turn()
    cell.now = 4.0
    cell.advance()
    assert rows_of(cell) == {1}
    assert cell.pool.counters().sum_wait_s == 0.0


def test_it_does_not_fill_the_queue() -> None:
    cell = Cell(config(max_queued=1))
    cell.add(background())
    cell.add(request("a"))
    with pytest.raises(QueueFullError, match="1 requests are waiting"):
        cell.add(request("b"))
