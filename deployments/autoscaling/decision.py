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
    desired_drafts,
    desired_ingresses,
    desired_targets,
    rows_per_target,
)
from deployments.autoscaling.hysteresis import PendingChange, steady
from deployments.autoscaling.signals import CellSignals
from deployments.config.scaling import Bounds, Thresholds
from deployments.names import INGRESS, deployment_name
from specdec_core.messages import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationState:
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

    pending_changes: Mapping[str, PendingChange] = field(default_factory=dict)
    cooldowns: Mapping[int, Cooldown] = field(default_factory=dict)


class Change(NamedTuple):
    """A new number of replicas for a deployment, and its reason."""

    deployment: str
    before: int
    after: int
    desired: DesiredReplicas
    lasted_s: float

    def __str__(self) -> str:
        return (
            f"autoscaling {self.deployment}: {self.before} -> {self.after} because of "
            f"{self.desired}, which asks for {self.desired.replicas:.2f}, for {self.lasted_s:.1f} s"
        )


class Decision(NamedTuple):
    numbers: dict[str, int]
    memory: Memory
    changes: tuple[Change, ...]


def decide(state: ApplicationState, thresholds: Thresholds, memory: Memory, now: float) -> Decision:
    """Return the replicas that each deployment should have from now on. `now` is any steady
    clock."""
    cooldowns = {
        cell: cooldown
        for cell, cooldown in memory.cooldowns.items()
        if not _is_over(cooldown, cell, state, now)
    }
    numbers: dict[str, int] = {}
    pending_changes: dict[str, PendingChange] = {}
    changes: list[Change] = []
    for name, desired in _desired(state, thresholds, cooldowns).items():
        current = state.current[name]
        pending = memory.pending_changes.get(name)
        step = steady(current, desired, state.bounds[name], thresholds, pending, now)
        numbers[name] = step.number
        if step.pending is not None:
            pending_changes[name] = step.pending
        if step.number != current:
            changes.append(Change(name, current, step.number, desired, step.lasted_s))
    cooldowns |= _new_cooldowns(changes, state, thresholds, now)
    return Decision(numbers, Memory(pending_changes, cooldowns), tuple(changes))


def _desired(
    state: ApplicationState, thresholds: Thresholds, cooldowns: Mapping[int, Cooldown]
) -> dict[str, DesiredReplicas]:
    """Return the desired replicas of the deployments that exist, are scaled, and have signals."""
    desired_by_name = {INGRESS: desired_ingresses(state.num_requests, thresholds)}
    for cell, signals in state.cells.items():
        target, draft = (deployment_name(role, cell) for role in (Role.TARGET, Role.DRAFT))
        desired_by_name[target] = desired_targets(signals, thresholds)
        desired_by_name[draft] = desired_drafts(signals, thresholds, cooldowns.get(cell))
    return {name: desired for name, desired in desired_by_name.items() if name in state.bounds}


def _is_over(cooldown: Cooldown, cell: int, state: ApplicationState, now: float) -> bool:
    return cell in state.cells and cooldown.is_over(state.cells[cell], now)


def _new_cooldowns(
    changes: list[Change], state: ApplicationState, thresholds: Thresholds, now: float
) -> dict[int, Cooldown]:
    """Return the cooldowns of cells whose last draft replica goes because drafting does not pay."""
    ended = {c.deployment for c in changes if c.after == 0 and c.desired.signal == NOT_PAYING}
    return {
        cell: Cooldown(now + thresholds.retry_s, rows_per_target(signals))
        for cell, signals in state.cells.items()
        if deployment_name(Role.DRAFT, cell) in ended
    }
