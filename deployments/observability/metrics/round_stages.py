"""Costs of a round in addition to its pass. Each lease is timed from its decision to its answer.

The coordinator and the replicas each measure intervals of their own clock. Only intervals are
compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from deployments.observability.metrics.histogram import Histogram
from specdec_core.messages import Role


class Stage(StrEnum):
    """Stages of one lease."""

    SCHEDULE = "schedule"
    """From the answer that made the lease possible to its message: reading, the scheduler,
    writing."""
    WIRE = "wire"
    """Transfer between coordinator and replica, both ways."""
    REPLICA = "replica"
    """From the lease's receipt to its answer, without the pass: threads, reading, writing."""
    DRAFT = "draft"
    """A draft's pass."""
    VERIFY = "verify"
    """A target's pass."""
    ADDED = "added"
    """Time that a round would not take in one process: schedule + wire + replica.

    It is measured for leases that directly followed an answer. The others waited for a request, or
    for rows to join.
    """


PASS = {Role.TARGET: Stage.VERIFY, Role.DRAFT: Stage.DRAFT}
"""The stage in which a replica of the role computes."""


class LeaseStages(NamedTuple):
    """Time of each stage of one lease, in seconds."""

    schedule_s: float | None
    """None if the lease followed no answer. 0 if the previous lease ran meanwhile."""
    wire_s: float
    replica_s: float
    pass_s: float


StageHistograms = dict[tuple[Role, Stage], Histogram]


@dataclass(eq=False, slots=True)
class _Lease:
    """Times of a lease that has not been answered."""

    received_s: float | None
    schedule_s: float | None = None
    sent_s: float | None = None


class LeaseTimes:
    """Times the leases of one replica's stream. The work is per lease, never per row."""

    def __init__(self, role: Role, histograms: StageHistograms, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._open: dict[int, _Lease] = {}
        stages = (Stage.SCHEDULE, Stage.WIRE, Stage.REPLICA, Stage.ADDED, PASS[role])
        # Kept in attributes: a look-up by an enumeration member takes longer than an observation.
        self._schedule, self._wire, self._replica, self._added, self._pass = (
            histograms.setdefault((role, stage), Histogram()) for stage in stages
        )
        self._last_came_s = 0.0

    def decided(self, lease_id: int, received_s: float | None) -> None:
        """Record that the scheduler formed a lease after the answer that came at `received_s`.
        It is None if there was another cause."""
        self._open[lease_id] = _Lease(received_s)

    def sent(self, lease_id: int) -> None:
        """Record that the lease's message is about to leave."""
        lease = self._open.get(lease_id)
        if lease is None:
            return
        lease.sent_s = self._clock()
        if lease.received_s is not None:
            lease.schedule_s = lease.sent_s - lease.received_s
            self._schedule.observe(lease.schedule_s)

    def void(self) -> None:
        """Forget all open leases, because the replica was fenced. It never answers leases that it
        had not begun by then."""
        self._open.clear()

    def answered(
        self, lease_id: int, came_s: float, pass_s: float, held_s: float
    ) -> LeaseStages | None:
        """Record an answer that came at `came_s` and return the lease's times.

        The replica had the lease for `held_s`, of which its pass took `pass_s`. Returns None if the
        lease was not sent, is void, or was answered before.
        """
        lease = self._open.pop(lease_id, None)
        if lease is None or lease.sent_s is None:
            return None
        # A lease cannot begin before the previous lease is answered, so that time is no waiting.
        schedule_s = 0.0 if lease.sent_s < self._last_came_s else lease.schedule_s
        wire_s = came_s - max(lease.sent_s, self._last_came_s) - held_s
        self._last_came_s = came_s
        self._wire.observe(wire_s)
        self._replica.observe(held_s - pass_s)
        self._pass.observe(pass_s)
        if schedule_s is not None:
            self._added.observe(schedule_s + wire_s + held_s - pass_s)
        return LeaseStages(schedule_s, wire_s, held_s - pass_s, pass_s)
