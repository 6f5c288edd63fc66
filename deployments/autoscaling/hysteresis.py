"""Hysteresis: a wish becomes a number when it has lasted. Pure.

Up goes to the least that was wished all the time of a short delay; down goes by one replica, after
a long delay in which fewer would have had slack all the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from deployments.autoscaling.desired import DesiredReplicas
from deployments.config.aims import Bounds, Thresholds

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class PendingChange:
    """More replicas, or fewer, have been wished for since then without a break."""

    is_up: bool
    since: float
    least: int
    """The least that was wished meanwhile."""


class Step(NamedTuple):
    """The number from now on, the wish that is not old enough, and for how long one lasts."""

    number: int
    leaning: PendingChange | None
    lasted_s: float


def steady(
    current: int,
    wish: DesiredReplicas,
    bounds: Bounds,
    aims: Thresholds,
    leaning: PendingChange | None,
    now: float,
) -> Step:
    """Bounds that changed hold at once; anything else waits."""
    if current != bounds.clamp(current):
        return Step(bounds.clamp(current), None, 0.0)
    up = _number(wish.replicas, wish, bounds)
    down = _number(wish.replicas / aims.slack, wish, bounds)
    if up <= current <= down:
        return Step(current, None, 0.0)
    is_up = up > current
    if leaning is None or leaning.is_up is not is_up:
        leaning = PendingChange(is_up, now, up)
    leaning = PendingChange(is_up, leaning.since, min(leaning.least, up))
    lasted_s = now - leaning.since
    if lasted_s + _ROUNDING < _delay_s(current, is_up, aims):
        return Step(current, leaning, lasted_s)
    return Step(leaning.least if is_up else current - 1, None, lasted_s)


def _number(replicas: float, wish: DesiredReplicas, bounds: Bounds) -> int:
    return bounds.clamp(wish.limits.clamp(ceil(replicas - _ROUNDING)))


def _delay_s(current: int, is_up: bool, aims: Thresholds) -> float:
    if is_up:
        return aims.up_delay_s
    return aims.zero_delay_s if current == 1 else aims.down_delay_s
