"""An accelerator and the leases sent to it. Replicas that share one take turns."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import inf

from specdec_core.messages import GroupLease

_PATIENCE = 3
"""On a shared device, a partial group waits up to this many passes for more rows. If passes take
longer than SchedulerConfig.max_group_wait_s, groups of 8 had 6 rows with 1, and 8 with 3."""


@dataclass(eq=False, slots=True)
class OpenLease:
    """A lease without a result yet."""

    lease: GroupLease
    deadline: float
    """Time by which the result must arrive. It is set again when the lease before is answered,
    because the replica begins this lease only then."""
    since: float
    """Time at which the host began with it: when the result that it follows came, or else when it
    was sent."""
    is_split: bool
    """See SchedulerConfig.overlap."""
    num_catching_up: int
    """Catch-up tokens that its rows have yet to compute, if SchedulerConfig limits them."""
    is_resuming: bool = False
    """Whether some row checks tokens that a client brought back. Such a pass is no ordinary round
    and says nothing about a draft."""


@dataclass(eq=False, slots=True)
class Device:
    """State shared by the replicas of one accelerator. Most replicas have their own."""

    leases: dict[str, dict[int, OpenLease]] = field(default_factory=dict)
    """Replica ID -> its open leases, by lease ID."""
    _answers: deque[float] = field(default_factory=lambda: deque([-inf] * _PATIENCE, _PATIENCE))
    """Times at which the last results of any replica came."""
    _passes: deque[float] = field(default_factory=lambda: deque([0.0] * _PATIENCE, _PATIENCE))
    """Seconds that the passes of these results took."""

    @property
    def is_shared(self) -> bool:
        return len(self.leases) > 1

    @property
    def num_replicas(self) -> int:
        """Number of replicas on the device. Up to this many passes may run before a lease's own
        pass, or share the device's time with it."""
        return len(self.leases)

    @property
    def num_open(self) -> int:
        return sum(map(len, self.leases.values()))

    def worth_waiting_until(self, ready_since: float) -> float:
        """Return the time until which a partial group waits for more rows.

        A shared device that runs other passes would not run the group sooner if it were sent, and
        rows of those passes may join it. The wait is bounded, because a running pass may hang or
        be the device's only work for a long time.
        """
        if not (self.is_shared and self.num_open) or self._answers[0] > ready_since:
            return -inf
        return max(self._answers[-1], ready_since) + _PATIENCE * max(self._passes)

    def answered(
        self, lease: OpenLease, pass_s: float, now: float, recording_s: float = 0.0
    ) -> float:
        """Note a result and return the seconds that its lease took.

        They include the host's part, but no time in which another pass ran. `pass_s` is the pass by
        the replica's own clock, which also runs during passes of other replicas. `recording_s`,
        the time spent on recording for later passes, is left out.
        """
        began = max(lease.since, self._answers[-1])  # the device was busy with others until then
        self._answers.append(now)
        # A driver's clock may stand still.
        seconds = max(now - began, 0.0 if self.is_shared else pass_s)
        seconds = max(seconds - recording_s, 0.0)
        self._passes.append(seconds)
        return seconds
