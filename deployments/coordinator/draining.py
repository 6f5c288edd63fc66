"""Which replicas have asked to leave, and which of them may."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from deployments.coordinator.connections import ConnectedReplica
from specdec_core.messages import Role

_INGRESS_COMES_S = 15.0
"""A coordinator that has just begun may follow one that died: its ingresses come back by then."""
_INGRESS_COMES_BACK_S = 2.0
"""One whose stream broke is back by then: it tries at once, and every second."""


@dataclass(eq=False, slots=True)
class _Asked:
    """One that has asked."""

    asked_s: float
    """When first, by the coordinator's clock."""
    heard: set[ConnectedReplica] = field(default_factory=set)
    """The other targets that have been heard from since."""


class DrainTracker:
    """Keeps those that have asked, and are still here."""

    def __init__(self, now: float) -> None:
        self._asked: dict[ConnectedReplica, _Asked] = {}
        self._expects_ingress_until = now + _INGRESS_COMES_S

    @property
    def is_anybody(self) -> bool:
        return bool(self._asked)

    def ask(self, replica: ConnectedReplica, asked_s: float) -> None:
        """It asked first at `asked_s`, maybe another coordinator."""
        self._asked.setdefault(replica, _Asked(asked_s))

    def hear(self, replica: ConnectedReplica) -> None:
        """It has said something."""
        if replica.info.role is Role.TARGET:
            for other, asked in self._asked.items():
                if other is not replica:
                    asked.heard.add(replica)

    def end(self, replica: ConnectedReplica) -> None:
        """Its stream has ended."""
        self._asked.pop(replica, None)
        for asked in self._asked.values():
            asked.heard.discard(replica)

    def let_go(self, *, has_ingress: bool, now: float) -> Iterator[ConnectedReplica]:
        """Who may leave now, each of them once. As long as an ingress is there, with clients or
        without, or is about to come back, a target stays: nobody else would serve what it brings.
        """
        if has_ingress:
            self._expects_ingress_until = now + _INGRESS_COMES_BACK_S
        needs_target = has_ingress or now < self._expects_ingress_until
        for replica, asked in self._asked.items():
            is_needed = needs_target and replica.info.role is Role.TARGET
            if not replica.may_leave and not (is_needed and self._is_last(asked)):
                replica.may_leave = True
                yield replica

    def _is_last(self, asked: _Asked) -> bool:
        """Whether no target outlasts it that has been heard from: who is connected and says nothing
        may hang, as may the pass of one that is fenced, and who asked earlier has less time left to
        drain."""
        return not any(self._outlasts(other, asked) for other in asked.heard)

    def _outlasts(self, other: ConnectedReplica, asked: _Asked) -> bool:
        if other.may_leave or other.is_fenced:
            return False
        others = self._asked.get(other)
        return others is None or others.asked_s >= asked.asked_s
