"""Another grouping policy is one class and one name: it changes when tokens come, never which."""

from __future__ import annotations

import pytest

from specdec_core.config import SchedulerConfig, SpecMethod
from specdec_core.messages import Role
from specdec_core.scheduler import SendLease
from specdec_core.scheduler.batch_rules import (
    NEXT_EVENT,
    Choice,
    ReplicaLoad,
    fill_batch,
    hold_until,
)
from specdec_core.scheduler.grouping import GROUPING_POLICIES
from specdec_core.scheduler.ready_queue import ReadyQueue
from tests.scheduler import invariants
from tests.scheduler.cell import Cell, config, request
from tests.scheduler.fake_replica import info


class ShortestFirst:
    """Batches the shortest sequences."""

    def __init__(self, config: SchedulerConfig) -> None:
        self._max_wait_s = config.max_group_wait_s

    def choose(self, ready: ReadyQueue, replica: ReplicaLoad, now: float) -> Choice:
        held_until = hold_until(ready, replica, now, self._max_wait_s)
        if held_until is not None:
            return held_until
        shortest = sorted(ready.decoding, key=lambda row: row.end_len)[: ready.max_rows]
        return fill_batch(shortest, ready, replica)


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GROUPING_POLICIES, "shortest_first", ShortestFirst)


def cell_of(grouping: str, method: SpecMethod = SpecMethod.NONE, **limits: float) -> Cell:
    cell = Cell(config(method, max_group_size=2, window=6, grouping=grouping, **limits))
    cell.join(info("target"))
    cell.join(info("draft", Role.DRAFT))
    for number, length in enumerate((9, 3, 7, 5)):
        cell.add(request(str(number), (1,) * length, max_tokens=12, seed=number))
    return cell


@pytest.mark.parametrize(
    ("grouping", "first"), [("oldest_first", [0, 1]), ("shortest_first", [1, 3])]
)
def test_a_policy_of_ones_own_is_found_by_its_name(grouping: str, first: list[int]) -> None:
    cell = cell_of(grouping)
    cell.advance()
    assert [row.sequence_id for row in cell.leases[0].rows] == first


@pytest.mark.parametrize("method", SpecMethod)
@pytest.mark.parametrize("limits", [{}, {"max_prefill_tokens": 6}, {"max_open_leases": 2}])
def test_it_changes_no_answer(method: SpecMethod, limits: dict[str, float]) -> None:
    cell = cell_of("shortest_first", method, **limits)
    cell.run()
    for client in cell.clients.values():
        client.check_plain()
        assert client.last is not None
    invariants.check_empty(cell.pool)


@pytest.mark.parametrize(("until", "deadline"), [(2.5, 2.5), (NEXT_EVENT, None)])
def test_a_policy_is_asked_again_at_the_time_that_it_returned(
    until: float, deadline: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late:
        def choose(self, ready: ReadyQueue, replica: ReplicaLoad, now: float) -> Choice:
            return until if now < 2.5 else ready.decoding.oldest(ready.max_rows)

    monkeypatch.setitem(GROUPING_POLICIES, "late", lambda config: Late())
    cell = cell_of("late")
    assert cell.advance() == []
    assert cell.pool.next_deadline() == deadline
    cell.now = 2.5
    (command,) = cell.advance()
    assert isinstance(command, SendLease)


def test_a_name_that_nobody_has_registered_is_refused() -> None:
    with pytest.raises(ValueError, match=r"grouping must be one of oldest_first, .*shortest_first"):
        Cell(config(grouping="by_mood"))
