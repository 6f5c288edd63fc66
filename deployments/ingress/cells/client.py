"""The scheduler interface for the code that answers requests, for one cell or several."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Protocol, TypeAlias

from deployments.observability.metrics.request_times import IngressTimes
from specdec.v1 import coordination_pb2 as pb
from specdec.v1 import generation_pb2 as public_pb
from specdec_core.request import Request, TokenEvent

OnAccepted: TypeAlias = Callable[[str], None]
"""Called with the ID of a request when a coordinator has queued it, maybe more than once."""


class Pool(Protocol):
    """SchedulerClient for one cell, CellRouter for several."""

    @property
    def state(self) -> pb.PoolState | None:
        """Last state reported by the coordinators. None without a coordinator."""

    @property
    def times(self) -> IngressTimes:
        """Stage times of the answers of this ingress. The code that makes an answer adds to
        them."""

    @property
    def has_targets(self) -> bool:
        """Whether a target is up."""

    @property
    def is_serving(self) -> bool:
        """Whether a target is up, or was so recently that requests wait for its return."""

    async def run(self) -> None:
        """Keep the streams to the coordinators; never returns."""

    def new_request_id(self) -> str:
        """Return an ID for a request whose client gave none."""

    def generate(
        self, request: Request, *, on_accepted: OnAccepted | None = None
    ) -> AsyncGenerator[TokenEvent]:
        """Yield token events until the last one. Leaving early aborts the request.

        `on_accepted` is called when a coordinator has queued the request, unless that coordinator
        is too old to report this. Raises the error with which the request was refused, or
        PoolUnavailableError.
        """

    def give_up(self, message: str) -> None:
        """End every open request with an error that asks its client to retry."""

    async def abort(self, request_id: str) -> bool:
        """Abort a request of any ingress. Return False if no such request is live."""

    async def pool_status(self) -> public_pb.PoolStatusResponse:
        """Return the status of the scheduler. Raises PoolUnavailableError."""
