"""A cell of the capacity world whose replicas come and go as the autoscaler decides.

The signals, the meter and the decision are the service's own. Only the time that a replica takes to
start is modelled.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from deployments.autoscaling.decision import ApplicationState, Change, Memory, decide
from deployments.autoscaling.signals import SignalMeter
from deployments.config.scaling import Bounds, Thresholds
from deployments.names import deployment_name
from deployments.simulation.capacity import Cell, Plant
from deployments.simulation.replicating import ReplicaProcess
from deployments.simulation.step_costs import Accelerator
from specdec_core.messages import Role

_TICK_S = 1.0
"""Seconds between two decisions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """Limits and thresholds for scaling a cell."""

    thresholds: Thresholds
    targets: Bounds
    drafts: Bounds
    start_s: float
    """Seconds that a replica takes until it registers."""


class ScaledCell(Cell):
    """A cell that scales. `plant` gives the number of replicas at the start."""

    def __init__(self, plant: Plant, scaling: Scaling, seed: int, num_positions: int) -> None:
        super().__init__(plant, seed, num_positions)
        self.changes: list[tuple[float, Change]] = []
        self.trace: list[dict[str, Any]] = []
        """Input of each decision, ready for JSON lines."""
        self._scaling = scaling
        self._meter = SignalMeter()
        self._memory = Memory()
        self._wanted = {Role.TARGET: plant.num_targets, Role.DRAFT: plant.num_drafts}
        self._starting: Counter[Role] = Counter()
        self._cancelled: Counter[Role] = Counter()
        self._num_started = plant.num_targets + plant.num_drafts
        self._timeline.at(_TICK_S, self._tick)

    @property
    def numbers(self) -> tuple[int, int]:
        """Desired numbers of targets and drafts."""
        return self._wanted[Role.TARGET], self._wanted[Role.DRAFT]

    def _tick(self) -> None:
        now = self._timeline.now
        self._timeline.at(now + _TICK_S, self._tick)
        signals = self._meter.note(self._coordinator.driver.scheduler.counters(), now)
        if signals is None:
            return
        current = {deployment_name(role, 0): number for role, number in self._wanted.items()}
        self.trace.append({"now": now, "current": current, "signals": asdict(signals)})
        scaling = self._scaling
        bounds = {
            deployment_name(Role.TARGET, 0): scaling.targets,
            deployment_name(Role.DRAFT, 0): scaling.drafts,
        }
        state = ApplicationState(
            current=current, bounds=bounds, cells={0: signals}, num_requests=0.0
        )
        decision = decide(state, scaling.thresholds, self._memory, now)
        self._memory = decision.memory
        self.changes += [(now, change) for change in decision.changes]
        for role in Role:
            self._wanted[role] = decision.numbers[deployment_name(role, 0)]
            self._follow(role)

    def _follow(self, role: Role) -> None:
        """Start missing replicas, or remove those in excess, beginning with those that have not
        started."""
        staying = self._staying(role)
        missing = self._wanted[role] - len(staying) - self._starting[role]
        for _ in range(missing):
            self._starting[role] += 1
            self._timeline.at(self._timeline.now + self._scaling.start_s, partial(self._join, role))
        num_cancelled = min(max(-missing, 0), self._starting[role])
        self._starting[role] -= num_cancelled
        self._cancelled[role] += num_cancelled
        for process in staying[self._wanted[role] :]:
            process.drain()

    def _staying(self, role: Role) -> list[ReplicaProcess]:
        """Return the replicas of `role` that stay, oldest first."""
        return [
            process
            for process in self._replicas
            if process.runner.info.role is role and process.is_up and not process.is_draining
        ]

    def _join(self, role: Role) -> None:
        if self._cancelled[role]:
            self._cancelled[role] -= 1
            return
        self._starting[role] -= 1
        self._num_started += 1
        process = self._replica(role, self._num_started, Accelerator())
        self._replicas.append(process)
        process.start()
