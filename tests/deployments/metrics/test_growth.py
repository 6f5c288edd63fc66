"""Growth between two readings: by hand, and against a counter that is watched without a break."""

from __future__ import annotations

import random

import pytest

from deployments.observability.metrics.rates import (
    ACCEPTED,
    GROUP_SIZES,
    Growth,
    Reading,
    Totals,
    between,
    by_source,
    of_cells,
    of_replicas,
    so_far,
)
from specdec.v1 import generation_pb2 as pb


def reading(at_s: float, **sources: Totals) -> Reading:
    return Reading(at_s, sources)


def test_what_came_is_the_difference_and_a_rate_is_of_the_seconds_between() -> None:
    found = between(reading(10, a=Totals({"n": 5})), reading(14, a=Totals({"n": 13, "new": 2})))
    assert (found["n"], found["new"], found["never"]) == (8, 2, 0)
    assert found.per_second(found["n"]) == 2.0


def test_another_life_counts_from_nothing_even_where_it_is_ahead() -> None:
    earlier, now = reading(0, a=Totals({"n": 5}, 1)), reading(1, a=Totals({"n": 7}, 2))
    assert between(earlier, now)["n"] == 7


@pytest.mark.parametrize("now", [{"n": 3, "m": 90}, {"m": 90}])
def test_a_total_that_fell_or_is_gone_makes_all_of_its_source_begin_anew(
    now: dict[str | tuple[str, int], float],
) -> None:
    found = between(reading(0, a=Totals({"n": 5, "m": 80})), reading(1, a=Totals(now)))
    assert found["m"] == 90
    assert found["n"] == now.get("n", 0)


def test_of_who_was_not_read_before_nothing_is_known() -> None:
    earlier = reading(0, a=Totals({"n": 5}))
    now = reading(1, a=Totals({"n": 6}), b=Totals({"n": 1000}))
    assert between(earlier, now)["n"] == 1
    assert set(by_source(earlier, now)) == {"a"}
    assert so_far(now)["n"] == 1006
    assert so_far(now).per_second(1) is None


def test_a_list_is_told_by_place() -> None:
    found = Growth({("n", 2): 4, ("n", 0): 1, "n": 9}, 1.0)
    assert found.each("n") == (1, 0, 4)
    assert found.each("m") == ()


def test_readings_add_up_to_everything_that_lives_counted_before_they_were_read() -> None:
    """Against the events themselves. What a life counted after its last reading nobody can know."""
    chance = random.Random(0)
    for _ in range(200):
        count = life = unread = heard = 0
        told, before = 0.0, reading(0, a=Totals({"n": 0}, 0))
        for at_s in range(1, 20):
            if chance.random() < 0.3:
                heard -= unread
                count, life, unread = 0, life + 1, 0
            for _ in range(chance.randrange(3)):
                more = chance.randrange(50)
                count, heard, unread = count + more, heard + more, unread + more
            if chance.random() < 0.7:
                now = reading(at_s, a=Totals({"n": count}, life))
                told, before, unread = told + between(before, now)["n"], now, 0
        assert told == heard - unread


def status(epochs: dict[int, int], committed: int) -> pb.PoolStatusResponse:
    """Of several cells, each with as much."""
    found = pb.PoolStatusResponse()
    for cell, epoch in epochs.items():
        one = found.cells.add(cell=cell, epoch=epoch, counters={"num_committed": committed})
        one.accepted_per_position[:] = [committed, 1]
        one.group_sizes[:] = [0, committed]
        replica = pb.ReplicaStatus(
            replica_id=f"t{cell}", cell=cell, busy_s=committed / 10, num_rows=committed
        )
        one.replicas.append(replica)
        found.replicas.append(replica)
    return found


def test_a_cell_that_is_away_for_a_while_adds_nothing_and_takes_nothing() -> None:
    both, one = status({0: 7, 1: 9}, 1000), status({0: 7}, 1010)
    assert between(of_cells(both, 0), of_cells(one, 1))["num_committed"] == 10
    back = status({0: 7, 1: 9}, 1020)
    assert between(of_cells(one, 1), of_cells(back, 2))["num_committed"] == 10


def test_a_coordinator_that_began_anew_is_counted_from_its_beginning() -> None:
    found = between(of_cells(status({0: 7, 1: 9}, 100), 0), of_cells(status({0: 8, 1: 9}, 130), 2))
    assert found["num_committed"] == 130 + 30
    assert found.each(ACCEPTED) == (160, 1)
    assert found.each(GROUP_SIZES) == (0, 160)


def test_replicas_live_as_long_as_the_coordinator_that_counts_for_them() -> None:
    before, after = status({0: 7, 1: 9}, 100), status({0: 8, 1: 9}, 130)
    found = by_source(of_replicas(before, 0), of_replicas(after, 10))
    assert (found["t0"]["num_rows"], found["t1"]["num_rows"]) == (130, 30)
    assert found["t1"].per_second(found["t1"]["busy_s"]) == pytest.approx(0.3)
