"""Times after a fault, from what was seen and from when tokens arrived."""

from __future__ import annotations

import pytest

from benchmarks.chaos.answers import Attempt
from benchmarks.chaos.asked import Asked, Way
from benchmarks.chaos.faults import Blow, Fault, Strike
from benchmarks.chaos.recovery import Recovery, calm_waits, recoveries
from benchmarks.chaos.watch import Sight
from benchmarks.harness.processes import Kind

CALM = {kind: (number,) for number, kind in enumerate(Kind)}


def sight(at_s: float, replicas: dict[str, Kind] | None, epochs: tuple[int, ...] = (1,)) -> Sight:
    seen = frozenset(epochs) if epochs else None
    return Sight(at_s=at_s, pids=CALM, replicas=replicas, epochs=seen)


def with_pids(seen: Sight, kind: Kind, *pids: int) -> Sight:
    return Sight(
        at_s=seen.at_s, pids={**seen.pids, kind: pids}, replicas=seen.replicas, epochs=seen.epochs
    )


def stream(*arrivals_s: float, way: Way = Way.CHAT_STREAM) -> Attempt:
    asked = Asked(number=0, way=way, messages=[], sampling={})
    return Attempt(asked, began_s=0.0, arrivals_s=list(arrivals_s))


def kill(kind: Kind, at_s: float = 10.0) -> Strike:
    return Strike(fault=Fault(kind, Blow.KILL), pid=0, at_s=at_s, until_s=at_s)


def stop(kind: Kind, at_s: float, until_s: float) -> Strike:
    return Strike(fault=Fault(kind, Blow.STOP), pid=0, at_s=at_s, until_s=until_s)


BEFORE = sight(9.0, {"t0": Kind.TARGET})


def only(strike: Strike, sights: list[Sight], *attempts: Attempt) -> Recovery:
    (found,) = recoveries([strike], sights, attempts)
    return found


def test_a_target_is_ready_when_another_one_has_registered() -> None:
    sights = [
        BEFORE,
        with_pids(sight(10.5, {"t0": Kind.TARGET}), Kind.TARGET),
        with_pids(sight(11, {}), Kind.TARGET, 99),
        with_pids(sight(13, None), Kind.TARGET, 99),
        with_pids(sight(14, {"t1": Kind.TARGET}), Kind.TARGET, 99),
    ]
    found = only(kill(Kind.TARGET), sights, stream(9.5, 15.0))
    assert (found.process_s, found.ready_s, found.after_ready_s) == (1.0, 4.0, 1.0)


def test_a_coordinator_is_ready_when_another_epoch_answers() -> None:
    sights = [
        BEFORE,
        with_pids(sight(11, None, ()), Kind.COORDINATOR, 99),
        with_pids(sight(12, {}, (1,)), Kind.COORDINATOR, 99),
        with_pids(sight(13, {}, (2,)), Kind.COORDINATOR, 99),
    ]
    found = only(kill(Kind.COORDINATOR), sights)
    assert (found.process_s, found.ready_s) == (1.0, 3.0)


def test_of_several_cells_the_killed_coordinators_epoch_is_another_and_no_other_is_missing() -> (
    None
):
    sights = [
        sight(9.0, {}, (1, 7)),
        with_pids(sight(11, {}, (7,)), Kind.COORDINATOR, 99),
        with_pids(sight(12, {}, (2,)), Kind.COORDINATOR, 99),
        with_pids(sight(13, {}, (2, 7)), Kind.COORDINATOR, 99),
    ]
    assert only(kill(Kind.COORDINATOR), sights).ready_s == 3.0


def test_what_never_comes_back_is_not_ready() -> None:
    found = only(kill(Kind.DRAFT), [BEFORE, sight(60, {"t0": Kind.TARGET})])
    assert (found.process_s, found.ready_s, found.after_ready_s) == (None, None, None)


def test_gaps_are_those_of_streams_under_way() -> None:
    """Neither one that had no token yet nor an answer that comes whole tells of the fault."""
    others = [stream(13.0, 14.0), stream(9.0, 10.1, way=Way.CHAT), stream(8.0, 9.0)]
    found = only(kill(Kind.DRAFT), [BEFORE], stream(9.0, 10.5), stream(9.0, 12.0, 12.1), *others)
    assert (found.next_token_s, found.slowest_stream_s) == (0.5, 2.0)


def test_a_fault_in_the_shadow_of_another_names_it() -> None:
    sights = [BEFORE, with_pids(sight(14, {"t1": Kind.TARGET}), Kind.TARGET, 99)]
    strikes = [kill(Kind.TARGET), kill(Kind.DRAFT, 12.0), kill(Kind.DRAFT, 15.0)]
    shadows = [one.shadow for one in recoveries(strikes, sights, [])]
    assert shadows == [(), ("kill target",), ("kill draft",)]


def test_what_another_fault_took_is_not_counted_as_the_targets() -> None:
    """Killed at 10, there again at 14; proxies were away from 15 to 18 and from 17 to 19, and the
    token came at 21."""
    back = with_pids(sight(14, {"t1": Kind.TARGET}), Kind.TARGET, 99)
    strikes = [kill(Kind.TARGET), stop(Kind.PROXY, 15, 18), stop(Kind.INGRESS, 17, 19)]
    found = recoveries(strikes, [BEFORE, back], [stream(9.0, 21.0)])[0]
    assert (found.after_ready_s, found.own_after_ready_s) == (7.0, 3.0)


def test_without_another_fault_all_of_it_is_the_targets() -> None:
    sights = [BEFORE, with_pids(sight(14, {"t1": Kind.TARGET}), Kind.TARGET, 99)]
    strikes = [stop(Kind.PROXY, 2, 5), kill(Kind.TARGET), stop(Kind.PROXY, 30, 33)]
    found = recoveries(strikes, sights, [stream(9.0, 26.0)])[1]
    assert found.own_after_ready_s == found.after_ready_s == 12.0


def test_the_slowest_stream_of_every_moment_is_looked_at_without_faults() -> None:
    """From 0.0 to 1.0: who waits longest until 1.0 is the stream that is told nothing meanwhile."""
    quick, slow = stream(0.0, 0.25, 0.5, 0.75, 1.0), stream(0.1, 1.0)
    whole = stream(0.0, 9.0, way=Way.CHAT)
    assert calm_waits([quick, slow]) == pytest.approx([0.8, 0.6, 0.4, 0.2])
    assert max(calm_waits([quick, whole])) < 0.25
    assert calm_waits([]) == []
