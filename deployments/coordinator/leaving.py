"""Which replicas have asked to leave, and which of them may."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from deployments.coordinator.connected import ConnectedReplica
from specdec_core.leases import Role


class Leaving:
    """Keeps those that have asked, and are still here."""

    def __init__(self) -> None:
        self._asked: list[ConnectedReplica] = []

    def ask(self, replica: ConnectedReplica) -> None:
        self._asked.append(replica)

    def end(self, replica: ConnectedReplica) -> None:
        """Its stream has ended."""
        self._asked = [other for other in self._asked if other is not replica]

    def let_go(
        self, replicas: Collection[ConnectedReplica], *, has_ingress: bool
    ) -> Iterator[ConnectedReplica]:
        """Who may leave now, each of them once. The last target stays as long as an ingress is
        there, with clients or without: nobody else would serve what comes to it."""
        for replica in self._asked:
            if not (replica.may_leave or (has_ingress and self._is_last_target(replica, replicas))):
                replica.may_leave = True
                yield replica

    def _is_last_target(
        self, replica: ConnectedReplica, replicas: Collection[ConnectedReplica]
    ) -> bool:
        """Whether no target would be left that stays."""
        targets = [other for other in replicas if other.info.role is Role.TARGET]
        is_target = replica.info.role is Role.TARGET
        return is_target and all(other in self._asked for other in targets)
