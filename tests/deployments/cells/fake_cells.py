"""Cells that do as they are told, and an ingress over them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from random import Random
from typing import Any

from deployments.errors import PoolUnavailableError, ReleasedError
from deployments.ingress.cells.client import OnAccepted
from deployments.ingress.cells.router import CellRouter
from deployments.observability.metrics.request_times import IngressTimes
from specdec.v1 import coordination_pb2 as pb
from specdec.v1 import generation_pb2 as public_pb
from specdec_core.request import FinishReason, Request, TokenEvent
from specdec_core.sampling_params import SamplingParams

MOVE_AFTER_S = 5.0


class FakeCell:
    """A SchedulerClient's outside; a request runs until `finish`."""

    def __init__(self, num_targets: int = 1, fingerprint: str = "bits") -> None:
        self.state: pb.PoolState | None = None
        self.num_others = 0
        self.times = IngressTimes()
        self.num_begun = 0
        self.resumed: list[Request] = []
        self.aborted: list[str] = []
        self.was_sent = True
        """What is released."""
        self.known: set[str] = set()
        """Requests of other ingresses."""
        self.running: dict[str, tuple[Request, asyncio.Queue[TokenEvent | Exception]]] = {}
        self._refusal: Exception | None = None
        self.up(num_targets, fingerprint)

    def up(self, num_targets: int = 1, fingerprint: str = "bits") -> None:
        self.state = pb.PoolState(
            num_targets=num_targets, fingerprint=fingerprint, numerics="exact", max_model_len=512
        )

    def away(self) -> None:
        self.state = None

    def refuse(self, refusal: Exception) -> None:
        """Whatever is begun from now on."""
        self._refusal = refusal

    @property
    def has_targets(self) -> bool:
        return self.state is not None and self.state.num_targets > 0

    is_serving = has_targets

    @property
    def num_requests(self) -> int:
        return len(self.running) + self.num_others

    def new_request_id(self) -> str:
        raise NotImplementedError("the router draws the IDs")

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def generate(
        self, request: Request, *, resume: bool = False, on_accepted: OnAccepted | None = None
    ) -> AsyncGenerator[TokenEvent]:
        self.num_begun += 1
        if self._refusal is not None:
            raise self._refusal
        if on_accepted is not None:
            on_accepted(request.request_id)
        if resume:
            self.resumed.append(request)
        events: asyncio.Queue[TokenEvent | Exception] = asyncio.Queue()
        self.running[request.request_id] = request, events
        try:
            while True:
                event = await events.get()
                if isinstance(event, Exception):
                    raise event
                yield event
                if event.finish_reason is not None:
                    return
        finally:
            del self.running[request.request_id]

    def finish(self, request_id: str) -> None:
        event = TokenEvent(request_id, 0, (1,), finish_reason=FinishReason.LENGTH)
        self.running[request_id][1].put_nowait(event)

    def open_requests(self) -> list[Request]:
        return [request for request, _ in self.running.values()]

    def release(self, request_id: str) -> None:
        request, events = self.running[request_id]
        events.put_nowait(ReleasedError(request, was_sent=self.was_sent))

    def give_up(self, message: str) -> None:
        for _, events in self.running.values():
            events.put_nowait(PoolUnavailableError(message))

    async def abort(self, request_id: str) -> bool:
        if self.state is None:
            raise PoolUnavailableError("away")
        self.aborted.append(request_id)
        return request_id in self.known or request_id in self.running

    async def pool_status(self) -> public_pb.PoolStatusResponse:
        if self.state is None:
            raise PoolUnavailableError("away")
        return public_pb.PoolStatusResponse(num_running=len(self.running))


class Ingress:
    """A router and what it has running."""

    def __init__(self, cells: list[FakeCell], seed: int = 0) -> None:
        self.now = 0.0
        self.router = CellRouter(
            cells,
            IngressTimes(),
            random=Random(seed),
            clock=lambda: self.now,
            move_after_s=MOVE_AFTER_S,
        )
        self.tasks: dict[str, asyncio.Task[list[TokenEvent]]] = {}

    async def begin(self, request_id: str | None = None, **fields: Any) -> str:
        name = request_id or self.router.new_request_id()
        params = SamplingParams(max_tokens=4)
        request = Request(request_id=name, prompt_token_ids=(1,), params=params, **fields)
        self.tasks[name] = asyncio.create_task(_collected(self.router.generate(request)))
        await asyncio.sleep(0)
        return name

    async def leave(self, request_id: str) -> None:
        task = self.tasks.pop(request_id)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _collected(events: AsyncGenerator[TokenEvent]) -> list[TokenEvent]:
    async with contextlib.aclosing(events):
        return [event async for event in events]
