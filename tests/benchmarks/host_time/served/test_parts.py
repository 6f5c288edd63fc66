"""The parts of a round add up to its length, wherever threads waited and whoever drafted."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from benchmarks.host_time.served.parts import Part, round_between
from benchmarks.host_time.served.shared_numbers import EXECUTIONS, LEASES
from benchmarks.host_time.served.snapshot import Snapshot
from benchmarks.host_time.served.waiting import CpuUse
from deployments.cli.bench.speculation import SpecCounts
from specdec_core.messages import Role

_LEASES = {"rounds": 1000.0, "schedule_s": 0.5, "wire_s": 0.4, "held_s": 8.3}
_TARGET = {"leases": 1000.0, "before_s": 0.5, "device_s": 7.0, "between_s": 0.0, "after_s": 0.4}


def _snapshot(
    at_s: float,
    leases: Mapping[str, float] = {},
    target: Mapping[str, float] = {},
    draft: Mapping[str, float] = {},
) -> Snapshot:
    nothing = dict.fromkeys(EXECUTIONS, 0.0)
    return Snapshot(
        at_s=at_s,
        leases=dict.fromkeys(LEASES, 0.0) | leases,
        executions={Role.TARGET: nothing | target, Role.DRAFT: nothing | draft},
        speculation=SpecCounts(num_draft_tokens=100 * len(leases)),
        use={"target": CpuUse(cpu_s=at_s / 10, waited_s=at_s / 100)},
    )


def _parts_ms(after: Snapshot) -> dict[Part, float]:
    found = round_between(_snapshot(5.0), after)
    return {part: 1e3 * seconds for part, seconds in found.parts_s.items()}


def test_the_parts_of_a_round_make_its_length() -> None:
    found = round_between(_snapshot(5.0), _snapshot(14.2, _LEASES, _TARGET))
    assert found.num_rounds == 1000
    assert found.whole_s == pytest.approx(9.2e-3)
    assert found.missing_s == pytest.approx(0.0)
    assert found.adds_up


def test_a_pass_is_split_by_the_device_and_the_rest_is_the_replica() -> None:
    parts = _parts_ms(_snapshot(14.2, _LEASES, _TARGET))
    assert parts[Part.DEVICE] == pytest.approx(7.0)
    assert parts[Part.BEFORE] == pytest.approx(0.5)
    assert parts[Part.AFTER] == pytest.approx(0.4)
    assert parts[Part.REPLICA] == pytest.approx(0.3 + 8.0 - 7.9)


def test_waiting_leaves_the_part_in_which_it_happened_and_the_sum_stays() -> None:
    target = {**_TARGET, "waited_s": 0.45, "gap_waited_s": 0.5}
    after = _snapshot(14.2, {**_LEASES, "waited_s": 0.2}, target)
    parts = _parts_ms(after)
    assert parts[Part.SCHEDULE] == pytest.approx(0.3)
    assert parts[Part.AFTER] == pytest.approx(0.0)
    assert parts[Part.BEFORE] == pytest.approx(0.45)
    assert parts[Part.REPLICA] == pytest.approx(0.0)
    assert parts[Part.WIRE] == pytest.approx(0.3)
    assert parts[Part.WAITING] == pytest.approx(0.2 + 0.45 + 0.5)
    assert sum(parts.values()) == pytest.approx(9.2)


def test_no_more_waiting_is_taken_than_a_part_has() -> None:
    after = _snapshot(14.2, {**_LEASES, "waited_s": 2.0}, {**_TARGET, "gap_waited_s": 3.0})
    parts = _parts_ms(after)
    assert parts[Part.WAITING] == pytest.approx(0.5 + 0.4 + 0.4)
    assert min(parts.values()) >= 0.0


def test_a_draft_beside_the_target_is_counted_once() -> None:
    drafted = {**_LEASES, "drafts": 500.0, "draft_s": 2.6, "shared_s": 0.6}
    after = _snapshot(14.2 + 2.0, drafted, _TARGET, {"leases": 500.0, "device_s": 1.6})
    parts = _parts_ms(after)
    assert parts[Part.DRAFT_DEVICE] == pytest.approx(1.6)
    assert parts[Part.DRAFT_HOST] == pytest.approx(1.0)
    assert parts[Part.SHARED] == pytest.approx(-0.6)
    assert sum(parts.values()) == pytest.approx(9.2 + 2.0)


@pytest.mark.parametrize(("seconds", "adds_up"), [(9.6, True), (9.8, False), (8.6, False)])
def test_parts_may_miss_a_twentieth_of_the_whole(seconds: float, adds_up: bool) -> None:
    found = round_between(_snapshot(5.0), _snapshot(5.0 + seconds, _LEASES, _TARGET))
    assert found.adds_up is adds_up


def test_a_slower_host_takes_longer_for_everything() -> None:
    found = round_between(_snapshot(5.0), _snapshot(14.2, _LEASES, _TARGET))
    scaled = found.scaled(1.5)
    assert scaled.whole_s == pytest.approx(1.5 * found.whole_s)
    assert scaled.parts_s[Part.WIRE] == pytest.approx(1.5 * found.parts_s[Part.WIRE])
    assert scaled.use["target"].cpu_s == pytest.approx(1.5 * found.use["target"].cpu_s)
    assert scaled.drafted == found.drafted


def test_figures_of_a_round_are_those_since_the_first_snapshot() -> None:
    thrice = [{name: 3 * value for name, value in one.items()} for one in (_LEASES, _TARGET)]
    found = round_between(_snapshot(14.2, _LEASES, _TARGET), _snapshot(32.6, *thrice))
    assert found.num_rounds == 2000
    assert found.parts_s[Part.DEVICE] == pytest.approx(7.0e-3)
    assert found.missing_s == pytest.approx(0.0)


def test_leases_that_only_the_replica_has_counted_do_not_count() -> None:
    more = {name: 1.01 * value for name, value in _TARGET.items()}
    found = round_between(_snapshot(5.0), _snapshot(14.2, _LEASES, more))
    assert found.parts_s[Part.DEVICE] == pytest.approx(7.0e-3)
    assert found.missing_s == pytest.approx(0.0)
