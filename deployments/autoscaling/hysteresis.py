"""Hysteresis: a desired number takes effect when it has lasted. Pure.

Scale up to the minimum that was desired all the time of a short delay. Scale down by one replica,
after a long delay in which fewer replicas would have had slack all the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from deployments.autoscaling.desired import DesiredReplicas
from deployments.config.scaling import Bounds, Thresholds

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class PendingChange:
    """A desire for more replicas, or for fewer, that has lasted since `since` without a break."""

    is_up: bool
    since: float
    least: int
    """Minimum desired number in this time."""


class Step(NamedTuple):
    """The number from now on, the pending change, and the seconds that the change has lasted."""

    number: int
    pending: PendingChange | None
    lasted_s: float


def steady(
    current: int,
    desired: DesiredReplicas,
    bounds: Bounds,
    thresholds: Thresholds,
    pending: PendingChange | None,
    now: float,
) -> Step:
    """Return the next step. Changed bounds take effect immediately, anything else waits."""
    if current != bounds.clamp(current):
        return Step(bounds.clamp(current), None, 0.0)
    up = _number(desired.replicas, desired, bounds)
    down = _number(desired.replicas / thresholds.slack, desired, bounds)
    if up <= current <= down:
        return Step(current, None, 0.0)
    is_up = up > current
    if pending is None or pending.is_up is not is_up:
        pending = PendingChange(is_up, now, up)
    pending = PendingChange(is_up, pending.since, min(pending.least, up))
    lasted_s = now - pending.since
    if lasted_s + _ROUNDING < _delay_s(current, is_up, thresholds):
        return Step(current, pending, lasted_s)
    return Step(pending.least if is_up else current - 1, None, lasted_s)


def _number(replicas: float, desired: DesiredReplicas, bounds: Bounds) -> int:
    return bounds.clamp(desired.limits.clamp(ceil(replicas - _ROUNDING)))


def _delay_s(current: int, is_up: bool, thresholds: Thresholds) -> float:
    if is_up:
        return thresholds.up_delay_s
    return thresholds.zero_delay_s if current == 1 else thresholds.down_delay_s
