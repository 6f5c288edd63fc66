"""One decision for all deployments of the application, from signals and numbers to numbers. Pure.

Serve's policy (autoscaling/policy.py), the simulator and the tests on recorded traces call the same
function.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from deployments.autoscaling.desired import (
    NOT_PAYING,
    Cooldown,
    DesiredReplicas,
    draft_wish,
    ingress_wish,
    rows_per_target,
    target_wish,
)
from deployments.autoscaling.hysteresis import PendingChange, steady
from deployments.autoscaling.signals import CellSignals
from deployments.config.scaling import Bounds, Thresholds
from deployments.names import INGRESS, deployment_name
from specdec_core.messages import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The present state of the application, by deployment name and by cell."""

    current: Mapping[str, int]
    """Replicas that each deployment should have by the decisions so far."""
    bounds: Mapping[str, Bounds]
    cells: Mapping[int, CellSignals]
    """Signals by cell. A cell that reports nothing is missing, and its numbers stay."""
    num_requests: float
    """Requests at the ingresses."""


@dataclass(frozen=True, slots=True)
class Memory:
    """State that the next decision needs from earlier ones."""

    leanings: Mapping[str, PendingChange] = field(default_factory=dict)
    rests: Mapping[int, Cooldown] = field(default_factory=dict)


class Change(NamedTuple):
    """A new number of replicas for a deployment, and its reason."""

    deployment: str
    before: int
    after: int
    wish: DesiredReplicas
    lasted_s: float

    def __str__(self) -> str:
        return (
            f"autoscaling {self.deployment}: {self.before} -> {self.after} because of {self.wish}, "
            f"which asks for {self.wish.replicas:.2f}, for {self.lasted_s:.1f} s"
        )


class Decision(NamedTuple):
    numbers: dict[str, int]
    memory: Memory
    changes: tuple[Change, ...]


def decide(view: View, aims: Thresholds, memory: Memory, now: float) -> Decision:
    """Return the replicas that each deployment should have from now on. `now` is any steady
    clock."""
    rests = {
        cell: rest for cell, rest in memory.rests.items() if not _is_over(rest, cell, view, now)
    }
    numbers: dict[str, int] = {}
    leanings: dict[str, PendingChange] = {}
    changes: list[Change] = []
    for name, wish in _wishes(view, aims, rests).items():
        current = view.current[name]
        leaning = memory.leanings.get(name)
        step = steady(current, wish, view.bounds[name], aims, leaning, now)
        numbers[name] = step.number
        if step.leaning is not None:
            leanings[name] = step.leaning
        if step.number != current:
            changes.append(Change(name, current, step.number, wish, step.lasted_s))
    rests |= _new_rests(changes, view, aims, now)
    return Decision(numbers, Memory(leanings, rests), tuple(changes))


def _wishes(
    view: View, aims: Thresholds, rests: Mapping[int, Cooldown]
) -> dict[str, DesiredReplicas]:
    """Return the desired replicas of the deployments that exist, are scaled, and have signals."""
    wishes = {INGRESS: ingress_wish(view.num_requests, aims)}
    for cell, signals in view.cells.items():
        wishes[deployment_name(Role.TARGET, cell)] = target_wish(signals, aims)
        wishes[deployment_name(Role.DRAFT, cell)] = draft_wish(signals, aims, rests.get(cell))
    return {name: wish for name, wish in wishes.items() if name in view.bounds}


def _is_over(rest: Cooldown, cell: int, view: View, now: float) -> bool:
    return cell in view.cells and rest.is_over(view.cells[cell], now)


def _new_rests(
    changes: list[Change], view: View, aims: Thresholds, now: float
) -> dict[int, Cooldown]:
    """Return the cooldowns of cells whose last draft replica goes because drafting does not pay."""
    ended = {c.deployment for c in changes if c.after == 0 and c.wish.signal == NOT_PAYING}
    return {
        cell: Cooldown(now + aims.retry_s, rows_per_target(signals))
        for cell, signals in view.cells.items()
        if deployment_name(Role.DRAFT, cell) in ended
    }
