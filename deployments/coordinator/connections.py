"""The replicas that are connected, and what they say of the cell together."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from deployments.coordinator.audit import Origin
from deployments.coordinator.streams import PoolState, WorkOutbox
from deployments.observability.metrics.round_stages import LeaseTimes
from specdec_core.config import Numerics
from specdec_core.messages import Occupancy, ReplicaInfo, Role


@dataclass(eq=False, slots=True)
class ConnectedReplica:
    """A registered replica, its stream, and its own count of its memory."""

    info: ReplicaInfo
    outbox: WorkOutbox
    occupancy: Occupancy
    times: LeaseTimes
    may_leave: bool = False
    """It has asked, and nobody needs it any more."""
    is_fenced: bool = False
    """It was told to forget everything, and has not said that it did."""

    def fence(self) -> None:
        self.is_fenced = True
        self.times.void()


def origin_of(replicas: Collection[ConnectedReplica]) -> Origin | None:
    """What chooses tokens at this moment; None without a target."""
    for replica in replicas:
        if replica.info.role is Role.TARGET:
            return Origin(replica.info.numerics, replica.info.fingerprint)
    return None


def state_of(replicas: Collection[ConnectedReplica], epoch: int, num_live: int) -> PoolState:
    targets = _targets(replicas)
    return PoolState(
        epoch=epoch,
        num_targets=len(targets),
        num_drafts=len(replicas) - len(targets),
        num_live=num_live,
        max_model_len=min((info.max_model_len for info in targets), default=0),
        model_digest=targets[0].model_digest if targets else "",
        fingerprint=targets[0].fingerprint if targets else "",
        numerics=targets[0].numerics if targets else Numerics.FAST,
    )


def _targets(replicas: Collection[ConnectedReplica]) -> list[ReplicaInfo]:
    infos = (replica.info for replica in replicas)
    return [info for info in infos if info.role is Role.TARGET]
