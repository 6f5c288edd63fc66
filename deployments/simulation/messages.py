"""What travels on the simulated streams, beside the records of the core that travel as they are."""

from __future__ import annotations

from typing import NamedTuple

from deployments.coordinator.outbox import Flush
from specdec_core.leases import GroupResult, Occupancy, ReplicaInfo
from specdec_core.pool import Drained, SendFree, SendLease, SendReset
from specdec_core.request import Request


class Submit(NamedTuple):
    request: Request
    resume: bool


class Abort(NamedTuple):
    request_id: str


class Registered(NamedTuple):
    epoch: int


class Beat(NamedTuple):
    """The coordinator has nothing to say to a replica. An ingress gets an empty Flush."""


class Heartbeat(NamedTuple):
    occupancy: Occupancy


class ResetDone(NamedTuple):
    incarnation: int


class Drain(NamedTuple):
    """The replica is about to leave."""

    asked_ago_s: float = 0.0
    """Since it asked first."""


WorkUp = ReplicaInfo | GroupResult | Heartbeat | ResetDone | Drain
WorkDown = Registered | Beat | SendLease | SendFree | SendReset | Drained
GenerateUp = Submit | Abort
Message = WorkUp | WorkDown | GenerateUp | Flush

MESSAGE_TYPES = (
    ReplicaInfo,
    GroupResult,
    Heartbeat,
    ResetDone,
    Drain,
    Registered,
    Beat,
    SendLease,
    SendFree,
    SendReset,
    Drained,
    Submit,
    Abort,
    Flush,
)
