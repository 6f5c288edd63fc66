"""Which replicas have asked to leave, and which of them may."""

from __future__ import annotations

from collections.abc import Iterator

from deployments.coordinator.connected import ConnectedReplica
from specdec_core.leases import Role


class Leaving:
    """Keeps those that have asked, and are still here."""

    def __init__(self) -> None:
        self._asked: dict[ConnectedReplica, set[ConnectedReplica]] = {}
        """With the other targets that have been heard from since."""

    def ask(self, replica: ConnectedReplica) -> None:
        self._asked.setdefault(replica, set())

    def hear(self, replica: ConnectedReplica) -> None:
        """It has said something."""
        if replica.info.role is Role.TARGET:
            for asked, heard in self._asked.items():
                if asked is not replica:
                    heard.add(replica)

    def end(self, replica: ConnectedReplica) -> None:
        """Its stream has ended."""
        self._asked.pop(replica, None)
        for heard in self._asked.values():
            heard.discard(replica)

    def let_go(self, *, has_ingress: bool) -> Iterator[ConnectedReplica]:
        """Who may leave now, each of them once. As long as an ingress is there, with clients or
        without, a target stays: nobody else would serve what comes to it."""
        for replica, heard in self._asked.items():
            is_needed = has_ingress and replica.info.role is Role.TARGET
            if not replica.may_leave and (not is_needed or _has_successor(heard)):
                replica.may_leave = True
                yield replica


def _has_successor(heard: set[ConnectedReplica]) -> bool:
    """Whether a target stays behind. Who is connected and says nothing may hang."""
    return any(not other.may_leave for other in heard)
