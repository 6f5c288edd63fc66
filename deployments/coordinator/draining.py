"""Tracks which replicas have asked to leave, and which of them may."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from deployments.coordinator.connections import ConnectedReplica
from specdec_core.messages import Role

_INGRESS_COMES_S = 15.0
"""Seconds within which ingresses connect to a new coordinator. It may replace one that died, and
its ingresses come back in this time."""
_INGRESS_COMES_BACK_S = 2.0
"""Seconds within which an ingress with a broken stream is back. It tries immediately, then every
second."""


@dataclass(eq=False, slots=True)
class _Asked:
    """A replica that has asked to leave."""

    asked_s: float
    """Time of its first request to leave, by the coordinator's clock."""
    heard_from: set[ConnectedReplica] = field(default_factory=set)
    """Other targets that have been heard from since."""


class DrainTracker:
    """Keeps the replicas that have asked to leave and are still connected."""

    def __init__(self, now: float) -> None:
        self.asked: dict[ConnectedReplica, _Asked] = {}
        """Empty most of the time: then the driver makes no calls."""
        self._expects_ingress_until = now + _INGRESS_COMES_S

    def ask(self, replica: ConnectedReplica, asked_s: float) -> None:
        """Note that a replica asks to leave. It asked first at `asked_s`, maybe another
        coordinator."""
        self.asked.setdefault(replica, _Asked(asked_s))

    def heard_from(self, replica: ConnectedReplica) -> None:
        """Note that a replica has sent a message."""
        if replica.info.role is Role.TARGET:
            for other, asked in self.asked.items():
                if other is not replica:
                    asked.heard_from.add(replica)

    def end(self, replica: ConnectedReplica) -> None:
        """Forget a replica whose stream has ended."""
        self.asked.pop(replica, None)
        for asked in self.asked.values():
            asked.heard_from.discard(replica)

    def ingress_left(self, now: float) -> None:
        """Note that the stream of an ingress has ended."""
        self._expects_ingress_until = now + _INGRESS_COMES_BACK_S

    def release(self, *, has_ingress: bool, now: float) -> Iterator[ConnectedReplica]:
        """Yield each replica that may leave now, once. The last target stays while an ingress is
        connected, with clients or without, or is about to come back. No other target would serve
        the requests that it brings."""
        needs_target = has_ingress or now < self._expects_ingress_until
        for replica, asked in self.asked.items():
            is_needed = needs_target and replica.info.role is Role.TARGET
            if not replica.may_leave and not (is_needed and self._is_last(asked)):
                replica.may_leave = True
                yield replica

    def _is_last(self, asked: _Asked) -> bool:
        """Return True if no target that has been heard from outlasts this one. A connected target
        that sends nothing may hang, and so may a pass of a fenced one. A target that asked earlier
        has less time left to drain."""
        return not any(self._outlasts(other, asked) for other in asked.heard_from)

    def _outlasts(self, other: ConnectedReplica, asked: _Asked) -> bool:
        if other.may_leave or other.is_fenced:
            return False
        others = self.asked.get(other)
        return others is None or others.asked_s >= asked.asked_s
