"""The connected replicas, and the state of the cell that follows from them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from deployments.coordinator.audit import Origin
from deployments.coordinator.streams import WorkOutbox
from deployments.observability.metrics.round_stages import LeaseTimes
from specdec.v1 import coordination_pb2 as pb
from specdec_core.config import Numerics
from specdec_core.messages import ReplicaInfo, Role


@dataclass(eq=False, slots=True)
class ConnectedReplica:
    """A registered replica, its stream, and its own count of its memory."""

    info: ReplicaInfo
    outbox: WorkOutbox
    occupancy: pb.Occupancy
    times: LeaseTimes
    may_leave: bool = False
    """The replica has asked to leave, and is no longer needed."""
    is_fenced: bool = False
    """The replica was told to reset, and has not confirmed it yet."""

    def fence(self) -> None:
        self.is_fenced = True
        self.times.void()


def origin_of(replicas: Collection[ConnectedReplica]) -> Origin | None:
    """Return the targets that choose tokens at this moment; None without a target."""
    for replica in replicas:
        if replica.info.role is Role.TARGET:
            return Origin(replica.info.numerics, replica.info.fingerprint)
    return None


def state_of(replicas: Collection[ConnectedReplica], epoch: int, num_live: int) -> pb.PoolState:
    """Return the state of the cell that ingresses need. Without targets, `max_model_len` is 0."""
    targets = [replica.info for replica in replicas if replica.info.role is Role.TARGET]
    return pb.PoolState(
        epoch=epoch,
        num_targets=len(targets),
        num_drafts=len(replicas) - len(targets),
        num_live=num_live,
        max_model_len=min((info.max_model_len for info in targets), default=0),
        model_digest=targets[0].model_digest if targets else "",
        fingerprint=targets[0].fingerprint if targets else "",
        numerics=targets[0].numerics if targets else Numerics.FAST,
    )
