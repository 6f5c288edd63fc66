"""From totals of the pool to shares of the last seconds, and through Serve's reports."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from deployments.autoscaling.reports import MOST_AGE_S, newest_signals
from deployments.autoscaling.signals import CellSignals, SignalMeter
from specdec_core.config import SpecMethod
from specdec_core.messages import Role
from specdec_core.scheduler import ReplicaCounters, SchedulerCounters
from tests.autoscaling.signals import signals
from tests.scheduler.cell import Cell, config, request
from tests.scheduler.fake_replica import info


def replica(name: str, role: Role = Role.TARGET, **changed: object) -> ReplicaCounters:
    (found,) = pool((name, role)).replicas
    return replace(found, **changed)  # type: ignore[arg-type]


def pool(*members: tuple[str, Role]) -> SchedulerCounters:
    cell = Cell(config(SpecMethod.DRAFT_MODEL))
    for name, role in members:
        cell.join(info(name, role, num_blocks=100, block_size=4))
    return cell.pool.counters()


def measured(
    before: SchedulerCounters, after: SchedulerCounters, seconds: float = 4.0
) -> CellSignals:
    meter = SignalMeter()
    assert meter.note(before, 10.0) is None
    found = meter.note(after, 10.0 + seconds)
    assert found is not None
    return found


def test_a_target_s_load_is_its_busy_share_times_how_full_its_groups_are() -> None:
    """Half of four seconds, groups of 6 of 8."""
    base = pool(("t", Role.TARGET))
    one = replica("t", num_leases=10, num_rows=50, busy_s=1.0)
    then = replace(one, num_leases=20, num_rows=110, busy_s=3.0)
    found = measured(replace(base, replicas=(one,)), replace(base, replicas=(then,)))
    assert found.target_load == pytest.approx(0.5 * 6 / 8)


def test_loads_of_replicas_are_added_and_a_new_one_changes_nothing() -> None:
    base = pool()
    old = [replica(name, Role.DRAFT, busy_s=1.0) for name in ("a", "b")]
    then = [replace(one, busy_s=3.0) for one in old]
    new = replica("c", Role.DRAFT, busy_s=90.0)
    found = measured(replace(base, replicas=tuple(old)), replace(base, replicas=(*then, new)))
    assert (found.num_drafts, found.draft_busy) == (3, pytest.approx(1.0))


def test_a_replica_that_registered_anew_is_measured_from_there() -> None:
    """Under its old id, a second of four ago: its totals have fallen."""
    base = pool()
    one = replica("t", busy_s=90.0, num_leases=500, num_rows=4000)
    then = replace(one, busy_s=1.0, num_leases=5, num_rows=40)
    found = measured(replace(base, replicas=(one,)), replace(base, replicas=(then,)))
    assert found.target_load == pytest.approx(0.25)


def test_a_replica_that_leaves_is_counted_nowhere() -> None:
    base = pool()
    one = replica("t", busy_s=1.0, is_draining=True)
    then = replace(one, busy_s=5.0, num_leases=9, num_rows=72, num_free_blocks=0)
    found = measured(replace(base, replicas=(one,)), replace(base, replicas=(then,)))
    assert (found.num_targets, found.target_load, found.kv_tokens) == (0, 0.0, 0)


def test_kv_is_counted_in_positions() -> None:
    base = pool(("t", Role.TARGET), ("u", Role.TARGET))
    used = replace(base, replicas=tuple(replace(r, num_free_blocks=75) for r in base.replicas))
    found = measured(base, used)
    assert (found.kv_tokens, found.kv_tokens_per_target) == (2 * 25 * 4, 400)


def test_the_share_of_drafted_rounds_is_of_the_last_seconds() -> None:
    base = pool()
    before = replace(base, num_sequence_rounds=1000, num_draft_rows=1000)
    after = replace(base, num_sequence_rounds=1100, num_draft_rows=1025)
    found = measured(before, after)
    assert (found.num_rounds, found.drafted_share) == (100, 0.25)


def test_shares_forget_what_is_older_than_the_window() -> None:
    base = pool()
    meter = SignalMeter(window_s=5.0)
    rounds = [1000, 1000, 1000, 1000, 1000, 1000, 1006]
    for now, number in enumerate(rounds):
        found = meter.note(replace(base, num_sequence_rounds=number), float(now))
    assert found is not None
    assert found.num_rounds == 6
    for now in range(7, 13):
        found = meter.note(replace(base, num_sequence_rounds=1006), float(now))
    assert found is not None
    assert found.num_rounds == 0


def test_after_a_long_silence_shares_are_of_all_the_time_since() -> None:
    base = pool(("t", Role.TARGET))
    busy = replace(base.replicas[0], busy_s=30.0, num_leases=10, num_rows=80)
    found = measured(base, replace(base, replicas=(busy,)), seconds=60.0)
    assert found.target_load == pytest.approx(0.5)


def test_a_pool_tells_who_waits_for_a_draft() -> None:
    cell = Cell(config(SpecMethod.DRAFT_MODEL, window=4, max_group_size=4))
    cell.join(info("t"))
    meter = SignalMeter()
    meter.note(cell.pool.counters(), 0.0)
    for number in range(6):
        cell.add(request(str(number)))
    cell.advance()
    found = meter.note(cell.pool.counters(), 1.0)
    assert found is not None
    assert (found.num_running, found.num_waiting, found.waiting_tokens) == (4, 2, 6)
    assert (found.num_wanting, found.num_starved) == (4, 4)
    cell.join(info("d", Role.DRAFT))
    cell.advance()
    found = meter.note(cell.pool.counters(), 2.0)
    assert found is not None
    assert found.num_wanting == 4


@dataclass
class Point:
    timestamp: float
    value: float


def reported(**at: tuple[CellSignals, float]) -> dict[str, dict[str, list[Point]]]:
    """As Serve keeps it: by metric, then by replica."""
    series: dict[str, dict[str, list[Point]]] = {}
    for name, (found, time) in at.items():
        for metric, value in found.as_stats().items():
            old = Point(time - 1, -1.0)
            series.setdefault(metric, {})[name] = [old, Point(time, value)]
    return series


def test_signals_come_back_from_reports_as_they_were() -> None:
    found = signals(num_running=7.0, draft_kv=0.25)
    assert newest_signals(reported(t=(found, 100.0)), 101.0) == found


def test_of_several_targets_the_newest_report_counts() -> None:
    old, new = signals(num_running=1.0), signals(num_running=2.0)
    assert newest_signals(reported(a=(new, 100.0), b=(old, 99.0)), 101.0) == new


def test_a_report_that_is_too_old_or_has_gaps_says_nothing() -> None:
    metrics = reported(t=(signals(), 100.0))
    assert newest_signals(metrics, 100.0 + MOST_AGE_S + 1) is None
    del metrics["draft_kv"]
    assert newest_signals(metrics, 100.0) is None
    assert newest_signals({}, 100.0) is None
