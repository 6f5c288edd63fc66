"""Interface of everything that follows the requests of a coordinator, and the records it gets.

A new measurement or account of requests is one subclass of `RequestObserver`. It is added to the
observers of `SchedulerDriver`. Its `counters` become a metric by an entry in metrics/families/.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from deployments.errors import Failure
from specdec.v1 import coordination_pb2 as pb
from specdec_core.request import Request, TokenEvent


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LiveRequest:
    """One attempt of a client's request, from the scheduler's queue to its last event."""

    request: Request
    sequence_id: int | None
    """ID of the request in leases. None if no token is left to compute."""
    began_s: float
    """Time of submission, in seconds on the coordinator's clock."""
    is_resumed: bool = False
    """Whether an earlier attempt has counted as the beginning of the request."""
    trace: pb.TraceContext | None = None
    """Parent of the request's spans; None if the request is not traced."""


class EndReason(StrEnum):
    """Way in which an attempt of a request ends."""

    FINISHED = "finished"
    """The last event was delivered. `finish_reason` of the event tells a stop from an abort or an
    error."""
    DISCONNECTED = "disconnected"
    """The stream of its ingress has ended."""
    REPLACED = "replaced"
    """The ingress has submitted the request again."""
    SCHEDULER_FAILED = "scheduler_failed"
    """The scheduler failed, and all requests with it."""


class RequestEnd(NamedTuple):
    """End of an attempt of a request."""

    reason: EndReason
    ended_s: float
    """Time in seconds on the coordinator's clock."""
    event: TokenEvent | None = None
    """Last event; None if no client waits for one."""
    failure: Failure | None = None
    """The failure that the client is told, if the request failed."""


class RequestObserver:
    """Follows the client requests of one coordinator. Override the methods that you need.

    A submission is either refused, or it begins, has events in order, and ends exactly once. The
    request table makes all calls, in the task that serves every client: a call must not wait.

    An observer may not change an answer. If a method raises, the error is logged. The client and
    the other observers continue as if it had returned, and the observer gets the next call too.
    """

    def begin(self, live: LiveRequest) -> None:
        """The scheduler has queued a request."""

    def event(self, live: LiveRequest, event: TokenEvent, now: float) -> None:
        """An event of a live request was delivered at `now`. The last one comes before `end`."""

    def end(self, live: LiveRequest, end: RequestEnd) -> None:
        """An attempt of a request has ended. No call for it follows."""

    def refused(self, request_id: str, failure: Failure) -> None:
        """A submission was refused. Its ID may be missing, or be that of a live request."""

    def counters(self) -> dict[str, int]:
        """Return totals since the coordinator's start, by their names in PoolStatus.counters.

        Metrics read them by these names (metrics/families/reading.py).
        """
        return {}
