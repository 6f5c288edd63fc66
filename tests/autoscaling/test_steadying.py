"""A wish counts when it has lasted: up soon and as far as needed, down late and by one."""

from __future__ import annotations

from collections.abc import Iterable

from deployments.autoscaling.desired import DesiredReplicas
from deployments.autoscaling.hysteresis import PendingChange, steady
from deployments.config.scaling import Bounds, Thresholds

AIMS = Thresholds(
    window=32, max_group_size=8, up_delay_s=3.0, down_delay_s=10.0, zero_delay_s=20.0, slack=0.8
)
BOUNDS = Bounds(1, 5)


def numbers(
    wishes: Iterable[float],
    first: int = 1,
    bounds: Bounds = BOUNDS,
    aims: Thresholds = AIMS,
    limits: Bounds = BOUNDS,
) -> list[int]:
    """The number behind every second's wish."""
    found: list[int] = []
    pending: PendingChange | None = None
    for now, replicas in enumerate(wishes):
        desired = DesiredReplicas("signal", replicas, 1.0, replicas, limits)
        first, pending, _ = steady(first, desired, bounds, aims, pending, float(now))
        found.append(first)
    return found


def test_up_takes_the_short_delay() -> None:
    assert numbers([2.5] * 5) == [1, 1, 1, 3, 3]


def test_up_goes_to_the_least_that_was_wished_meanwhile() -> None:
    assert numbers([5.0, 2.0, 5.0, 5.0])[-1] == 2


def test_a_peak_shorter_than_the_delay_changes_nothing() -> None:
    assert set(numbers([3.0, 3.0, 1.0] * 20)) == {1}


def test_down_takes_the_long_delay_and_goes_by_one() -> None:
    found = numbers([0.5] * 40, first=3)
    assert found.index(2) == 10
    assert found.index(1) == 21
    assert found[-1] == 1


def test_a_dip_shorter_than_the_delay_changes_nothing() -> None:
    assert set(numbers([*[0.5] * 9, 3.0] * 10, first=3)) == {3}


def test_down_needs_slack() -> None:
    """1.7 replicas would do with 2, but 2 would have 85 % of their aim."""
    assert set(numbers([1.7] * 50, first=3)) == {3}
    assert numbers([1.5] * 50, first=3)[-1] == 2


def test_a_wish_at_a_threshold_does_not_swing() -> None:
    """Whatever noise of a tenth there is around a whole number."""
    noisy = [2.0 + 0.1 * (-1) ** second for second in range(200)]
    found = numbers(noisy, first=3)
    assert set(found) == {3}


def test_the_last_one_goes_after_the_longest_delay() -> None:
    found = numbers([0.0] * 60, first=2, bounds=Bounds(0, 5), limits=Bounds(0, 5))
    assert (found.index(1), found.index(0)) == (10, 31)


def test_bounds_hold_and_new_ones_hold_at_once() -> None:
    assert set(numbers([9.0] * 9)[3:]) == {5}
    assert set(numbers([0.0] * 99)) == {1}
    assert numbers([1.0], first=7) == [5]
    assert numbers([1.0], first=0) == [1]


def test_without_delays_the_wish_is_the_number() -> None:
    now = Thresholds(window=32, max_group_size=8, up_delay_s=0.0, down_delay_s=0.0)
    assert numbers([3.0, 3.0, 0.1, 0.1], aims=now) == [3, 3, 2, 1]


def test_what_is_of_no_use_needs_no_slack_to_go() -> None:
    """One replica is all that there is work for, however busy it is."""
    assert numbers([1.9] * 15, first=2, limits=Bounds(1, 1))[-1] == 1
    assert numbers([0.0] * 99, first=2, bounds=Bounds(0, 5), limits=Bounds(1, 5))[-1] == 1
