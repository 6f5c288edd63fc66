"""What whoever answers requests needs of the pool, be it one cell or several."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Protocol, TypeAlias

from deployments.observability.metrics.ingress_times import IngressTimes
from specdec.v1 import coordination_pb2 as pb
from specdec.v1 import generation_pb2 as public_pb
from specdec_core.request import Request, TokenEvent

OnAccepted: TypeAlias = Callable[[str], None]
"""Called with the ID of a request when a coordinator has queued it, maybe more than once."""


class Pool(Protocol):
    """SchedulerClient for one cell, CellRouter for several."""

    @property
    def state(self) -> pb.PoolState | None:
        """What the coordinators last said; None while there is none."""

    @property
    def times(self) -> IngressTimes:
        """What answers took here; whoever makes them adds to it."""

    @property
    def has_targets(self) -> bool:
        """Whether a target is up."""

    @property
    def is_serving(self) -> bool:
        """Whether a target is up, or was so lately that requests wait for it to come back."""

    async def run(self) -> None:
        """Keep the streams to the coordinators; never returns."""

    def new_request_id(self) -> str:
        """For a request whose client named none."""

    def generate(
        self, request: Request, *, on_accepted: OnAccepted | None = None
    ) -> AsyncGenerator[TokenEvent]:
        """Token events until the last one; leaving early aborts the request. `on_accepted` is
        called when a coordinator has queued it, unless that coordinator is too old to say so.

        Raises what the pool refused it with, or PoolUnavailableError.
        """

    def give_up(self, message: str) -> None:
        """Tell the client of every open request to come back."""

    async def abort(self, request_id: str) -> bool:
        """End a request of any ingress; False when no such request is live."""

    async def pool_status(self) -> public_pb.PoolStatusResponse:
        """Raises PoolUnavailableError."""
