"""What a round costs besides its pass: every lease is followed from its decision to its answer.

The coordinator and the replicas each measure intervals of their own clock; only those are compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from deployments.observability.metrics.histogram import Histogram
from specdec_core.messages import Role


class Stage(StrEnum):
    """Of one lease."""

    SCHEDULE = "schedule"
    """From the answer that made it possible to its message: reading, the pool, writing."""
    WIRE = "wire"
    """Both ways between coordinator and replica."""
    REPLICA = "replica"
    """From its receipt to its answer, without the pass: threads, reading, writing."""
    DRAFT = "draft"
    """A draft's pass."""
    VERIFY = "verify"
    """A target's pass."""
    ADDED = "added"
    """schedule + wire + replica: what a round would not pay in one process. Of leases that followed
    an answer at once; the others waited for a request, or for rows to join."""


PASS = {Role.TARGET: Stage.VERIFY, Role.DRAFT: Stage.DRAFT}
"""The stage in which a replica of the role computes."""


class LeaseStages(NamedTuple):
    """What one lease took, in seconds."""

    schedule_s: float | None
    """None: it followed no answer. 0: the lease before it ran meanwhile."""
    wire_s: float
    replica_s: float
    pass_s: float


StageHistograms = dict[tuple[Role, Stage], Histogram]


@dataclass(eq=False, slots=True)
class _Lease:
    """What is known of one that has not been answered."""

    heard_s: float | None
    schedule_s: float | None = None
    sent_s: float | None = None


class LeaseTimes:
    """The leases of one replica's stream. Work per lease, never per row."""

    def __init__(self, role: Role, histograms: StageHistograms, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._open: dict[int, _Lease] = {}
        stages = (Stage.SCHEDULE, Stage.WIRE, Stage.REPLICA, Stage.ADDED, PASS[role])
        # Apart: to look one up by a member of an enumeration takes longer than to observe.
        self._schedule, self._wire, self._replica, self._added, self._pass = (
            histograms.setdefault((role, stage), Histogram()) for stage in stages
        )
        self._last_came_s = 0.0

    def decided(self, lease_id: int, heard_s: float | None) -> None:
        """The pool has formed it, because of the answer that came at `heard_s`; None: because of
        something else."""
        self._open[lease_id] = _Lease(heard_s)

    def sent(self, lease_id: int) -> None:
        """Its message is about to leave."""
        lease = self._open.get(lease_id)
        if lease is None:
            return
        lease.sent_s = self._clock()
        if lease.heard_s is not None:
            lease.schedule_s = lease.sent_s - lease.heard_s
            self._schedule.observe(lease.schedule_s)

    def void(self) -> None:
        """The replica was fenced: what it has not begun by then it never answers."""
        self._open.clear()

    def answered(
        self, lease_id: int, came_s: float, pass_s: float, held_s: float
    ) -> LeaseStages | None:
        """Its answer came at `came_s`. The replica had it for `held_s`, `pass_s` of them in its
        pass. None: it was not sent, is void, or was answered before."""
        lease = self._open.pop(lease_id, None)
        if lease is None or lease.sent_s is None:
            return None
        # It could not begin before the answer to the lease before it: until then nobody waited.
        is_hidden = lease.sent_s < self._last_came_s
        wire_s = came_s - max(lease.sent_s, self._last_came_s) - held_s
        self._last_came_s = came_s
        self._wire.observe(wire_s)
        self._replica.observe(held_s - pass_s)
        self._pass.observe(pass_s)
        schedule_s = 0.0 if is_hidden else lease.schedule_s
        if schedule_s is not None:
            self._added.observe(schedule_s + wire_s + held_s - pass_s)
        return LeaseStages(schedule_s, wire_s, held_s - pass_s, pass_s)
