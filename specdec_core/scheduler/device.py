"""An accelerator and what it was sent: replicas that share one take turns."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import inf

from specdec_core.messages import GroupLease

_PATIENCE = 3
"""Passes of a shared device that a small group lets others have before it is sent. Where passes
take longer than PoolConfig.max_group_wait_s, groups of 8 had 6 rows with 1, and 8 with 3."""


@dataclass(eq=False, slots=True)
class OpenLease:
    """A lease without a result yet."""

    lease: GroupLease
    deadline: float
    """Set anew when the lease before it is answered: only then does the replica begin with it."""
    since: float
    """When the host began with it: at the result that it followed, else when it was sent."""
    is_split: bool
    """See PoolConfig.overlap."""
    num_catching_up: int
    """Catch-up tokens that its rows have yet to compute, where PoolConfig limits them."""
    is_resuming: bool = False
    """Some row checks what a client has brought back: no pass of a round, nor any draft's merit."""


@dataclass(eq=False, slots=True)
class Device:
    """What the replicas of one accelerator have in common. Most have one of their own."""

    leases: dict[str, dict[int, OpenLease]] = field(default_factory=dict)
    """The open ones of each replica, by replica."""
    _answers: deque[float] = field(default_factory=lambda: deque([-inf] * _PATIENCE, _PATIENCE))
    """When the last results of any of them came."""
    _passes: deque[float] = field(default_factory=lambda: deque([0.0] * _PATIENCE, _PATIENCE))
    """Seconds that they took."""

    @property
    def is_shared(self) -> bool:
        return len(self.leases) > 1

    @property
    def num_replicas(self) -> int:
        """So many passes may run before a lease's own, or share the device's time with it."""
        return len(self.leases)

    @property
    def num_open(self) -> int:
        return sum(map(len, self.leases.values()))

    def worth_waiting_until(self, ready_since: float) -> float:
        """Until when rows that are no full group wait on: a device that is shared runs others,
        which may join them, and would run nothing sooner for their being sent. What it runs may
        hang, or be the device's only work for long."""
        if not (self.is_shared and self.num_open) or self._answers[0] > ready_since:
            return -inf
        return max(self._answers[-1], ready_since) + _PATIENCE * max(self._passes)

    def answered(
        self, lease: OpenLease, pass_s: float, now: float, recording_s: float = 0.0
    ) -> float:
        """Seconds that a lease took which is answered now, the host's part included, and no time
        in which another pass ran. `pass_s` of them by the replica's own clock, which goes on while
        a pass of another replica has its turn. What it recorded for later is no part of them."""
        began = max(lease.since, self._answers[-1])  # until then it had not begun with this one
        self._answers.append(now)
        # A driver's clock may stand still.
        seconds = max(now - began, 0.0 if self.is_shared else pass_s)
        seconds = max(seconds - recording_s, 0.0)
        self._passes.append(seconds)
        return seconds
