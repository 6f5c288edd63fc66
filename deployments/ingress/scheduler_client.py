"""The ingress's client of the coordinator's Generate stream.

Many requests share one stream. After a lost stream, every open request is submitted again with the
token IDs that its client already has. The client sees a pause, then the same tokens.

Normally the output of a round is sent immediately. If the ingress takes more than its share of the
machine, the events of several rounds are merged into one chunk.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

import grpc

from deployments.config.service import RESUME_TIMEOUT_S
from deployments.errors import PoolUnavailableError, ReleasedError, error_of
from deployments.ingress.cells.client import OnAccepted
from deployments.ingress.open_requests import OpenRequest, OpenRequests
from deployments.observability.metrics.request_times import REPLAY_DIVERGED, IngressTimes
from deployments.observability.tracing.requests import carried_trace
from deployments.wire.endpoint import Address
from deployments.wire.liveness import Backoff, received
from deployments.wire.request_codec import event_from_pb, submit_to_pb
from specdec.v1 import coordination_pb2 as pb
from specdec.v1 import coordination_pb2_grpc as pb_grpc
from specdec.v1 import generation_pb2 as public_pb
from specdec_core.request import Request, TokenEvent

logger = logging.getLogger(__name__)

AWAY = "the coordinator is not available; try again"
NO_TARGET = "no target has been available for too long; try again"

MOST_HELD_S = 0.05
"""Maximum hold time in seconds, with 20 chunks a second per stream. A reader sees no difference."""
SHARE_PER_CORE = 0.025
"""Share of the machine's cores for one ingress. Its proxy costs about the same again."""
MOST_SHARE = 0.5
"""Maximum share, in cores. An ingress has one event loop; from half a core on, its own work
waits."""
LOOK_S = 0.25
_LEAST_HELD_S = 0.002
"""Minimum hold time in seconds. Rounds that follow each other sooner cannot be distinguished."""

Outgoing = asyncio.Queue[pb.GenerateUp | None]


class SchedulerClient:
    """Submits requests and yields their token events. One per ingress replica and cell."""

    def __init__(
        self,
        resolve: Callable[[], Awaitable[Address]],
        *,
        clock: Callable[[], float] = time.monotonic,
        resume_timeout_s: float = RESUME_TIMEOUT_S,
        times: IngressTimes | None = None,
        pace: ChunkPacing | None = None,
        silence_s: float | None = None,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """Make a client of one cell.

        `resume_timeout_s`: maximum wait of a request for a lost coordinator, or for a target after
        the last one was lost. After this time the client must retry. Until then, the cell counts as
        serving without a target.

        The clients of several cells share `times` and `pace`. Without `pace`, events are sent as
        rounds bring them. `silence_s`: seconds of silence after which a coordinator is given up.
        None means SILENCE_S. `uniform` draws the wait before another try.
        """
        self.state: pb.PoolState | None = None
        """Last state reported by the coordinator. None without a coordinator."""
        self.times = times or IngressTimes()
        """Stage times of the answers of this ingress. The code that makes an answer adds to
        them."""
        self._pace = pace
        self._told_hold_s = 0.0
        """Last hold time sent to the coordinator, in seconds."""
        self._resolve = resolve
        self._silence_s = silence_s
        self._uniform = uniform
        self._clock = clock
        self._resume_timeout_s = resume_timeout_s
        self._lost_at = clock()
        """Time at which the last coordinator was lost, or the search for the first began."""
        self._targets_lost_at: float | None = None
        """Time at which the last target was lost. None: there are targets, or there never were
        any."""
        self._patience: asyncio.TimerHandle | None = None
        """Timer that ends the wait for targets."""
        self._num_others = 0
        """Requests of other ingresses in the last state of the coordinator."""
        self._open = OpenRequests(lambda: self.times.observe([REPLAY_DIVERGED]))
        self._aborts: dict[str, list[asyncio.Future[bool]]] = {}
        self._outgoing: Outgoing | None = None
        self._endpoint: Address | None = None

    @property
    def num_divergences(self) -> int:
        """Resumed requests whose replayed tokens differed from those already emitted."""
        return self._open.num_divergences

    @property
    def is_serving(self) -> bool:
        """Whether a target is up, or was so recently that requests wait for its return."""
        if self.has_targets:
            return True
        lost_at = self._targets_lost_at
        return lost_at is not None and self._clock() - lost_at <= self._resume_timeout_s

    @property
    def has_targets(self) -> bool:
        return self.state is not None and self.state.num_targets > 0

    @property
    def num_requests(self) -> int:
        """Requests of this cell, as far as this ingress knows."""
        return len(self._open) + self._num_others

    async def run(self) -> None:
        """Keep a stream to the coordinator; never returns."""
        backoff = Backoff(self._uniform)
        self._lost_at = self._clock()
        while True:
            try:
                await self._serve_stream(backoff)
            except (grpc.aio.AioRpcError, OSError) as error:
                logger.info("cannot reach the coordinator: %s", type(error).__name__)
            except Exception:
                logger.exception("the stream to the coordinator broke")
            self._lost()
            await asyncio.sleep(backoff.next_wait_s())

    def new_request_id(self) -> str:
        """Return an ID for a request whose client gave none."""
        return uuid.uuid4().hex

    async def generate(
        self, request: Request, *, resume: bool = False, on_accepted: OnAccepted | None = None
    ) -> AsyncGenerator[TokenEvent]:
        """Yield token events until the last one, as Pool does, and raise ReleasedError, too.
        `resume`: the request began in another cell."""
        if self._targets_lost_at is not None and not self.is_serving:
            raise PoolUnavailableError(NO_TARGET)
        was_sent = resume or self._outgoing is not None
        entry = OpenRequest(request, was_sent, carried_trace(), on_accepted)
        self._open.begin(entry)
        try:
            self._submit(entry, resume=resume)
            while True:
                event = await entry.events.get()
                if isinstance(event, Exception):
                    raise event
                yield event
                if event.finish_reason is not None:
                    return
        finally:
            if self._open.end(entry):
                self._send_abort(request.request_id)
            if self._outgoing is not None:
                # The coordinator adds up the times of all ingresses, which report the same totals.
                self._send(pb.GenerateUp(times=self.times.take()))

    def open_requests(self) -> list[Request]:
        """Return the open requests in the form in which another coordinator can continue them."""
        return self._open.resumed()

    def release(self, request_id: str) -> None:
        """Give up an open request. Its `generate` raises ReleasedError."""
        self._send_abort(request_id)
        entry = self._open.release(request_id)
        entry.events.put_nowait(ReleasedError(entry.resumed(), was_sent=entry.was_sent))

    def give_up(self, message: str) -> None:
        """End every open request with an error that asks its client to retry."""
        for entry in self._open.end_all():
            entry.events.put_nowait(PoolUnavailableError(message))

    async def abort(self, request_id: str) -> bool:
        """Abort a request of any ingress. Return False if no such request is live."""
        if self._outgoing is None:
            raise PoolUnavailableError(AWAY)
        outcome: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._aborts.setdefault(request_id, []).append(outcome)
        self._send_abort(request_id)
        return await outcome

    async def pool_status(self) -> public_pb.PoolStatusResponse:
        if self._endpoint is None:
            raise PoolUnavailableError(AWAY)
        metadata = self._endpoint.metadata
        async with self._endpoint.channel() as channel:
            stub = pb_grpc.CoordinatorServiceStub(channel)
            try:
                status: public_pb.PoolStatusResponse = await stub.PoolStatus(
                    public_pb.PoolStatusRequest(), timeout=5, metadata=metadata
                )
            except grpc.aio.AioRpcError as error:
                raise PoolUnavailableError(AWAY) from error
        return status

    async def _serve_stream(self, backoff: Backoff) -> None:
        endpoint = await self._resolve()
        outgoing: Outgoing = asyncio.Queue()
        async with endpoint.channel() as channel:
            stub = pb_grpc.CoordinatorServiceStub(channel)
            call = stub.Generate(_messages(outgoing), metadata=endpoint.metadata)
            try:
                async for message in received(aiter(call), self._silence_s):
                    if self._outgoing is None:
                        self._connected(endpoint, outgoing)
                        backoff.succeeded()
                    self._take_in(message)
            finally:
                outgoing.put_nowait(None)

    def _connected(self, endpoint: Address, outgoing: Outgoing) -> None:
        """Submit every open request to the coordinator, which has just answered."""
        self._endpoint, self._outgoing, self._told_hold_s = endpoint, outgoing, 0.0
        for entry, was_sent in self._open.send_all():
            self._submit(entry, resume=was_sent)

    def _lost(self) -> None:
        """Note that there is no coordinator. If this lasts too long, give up the open requests."""
        if self._outgoing is not None:
            self._lost_at = self._clock()
        self._outgoing, self._endpoint = None, None
        self._note_state(None)
        for outcomes in self._aborts.values():
            for outcome in outcomes:
                if not outcome.done():
                    outcome.set_exception(PoolUnavailableError(AWAY))
        self._aborts.clear()
        if self._clock() - self._lost_at > self._resume_timeout_s:
            self.give_up(AWAY)

    def _send(self, message: pb.GenerateUp) -> None:
        """Send a message if there is a stream. A new one gets every open request."""
        if self._outgoing is not None:
            self._outgoing.put_nowait(message)

    def _send_abort(self, request_id: str) -> None:
        self._send(pb.GenerateUp(abort=public_pb.AbortRequest(request_id=request_id)))

    def _submit(self, entry: OpenRequest, *, resume: bool) -> None:
        asks = entry.on_accepted is not None
        request = entry.resumed()
        submit = submit_to_pb(request, resume=resume, trace=entry.trace, acknowledge=asks)
        self._send(pb.GenerateUp(submit=submit))

    def _take_in(self, message: pb.GenerateDown) -> None:
        if message.HasField("state"):
            self._note_state(message.state)
        for request_id in message.accepted:
            self._open.accept(request_id)
        for event in message.events:
            self._take_event(event)
        if self._pace is not None and message.events:
            hold_s = self._pace.hold_s()
            if hold_s != self._told_hold_s:
                self._told_hold_s = hold_s
                self._send(pb.GenerateUp(pace=pb.Pace(hold_s=hold_s)))
        for answer in message.aborts:
            self._take_abort_answer(answer)

    def _take_abort_answer(self, answer: pb.AbortOutcome) -> None:
        for outcome in self._aborts.pop(answer.request_id, []):
            if not outcome.done():
                outcome.set_result(answer.aborted)

    def _note_state(self, state: pb.PoolState | None) -> None:
        had_targets = self.has_targets
        self.state = state
        self._num_others = max(state.num_live - len(self._open), 0) if state else 0
        if self.has_targets:
            self._targets_lost_at = None
            if self._patience is not None:
                self._patience.cancel()
        elif had_targets:
            self._targets_lost_at = self._clock()
            loop = asyncio.get_running_loop()
            self._patience = loop.call_later(self._resume_timeout_s, self.give_up, NO_TARGET)

    def _take_event(self, message: pb.TokenEvent) -> None:
        entry = self._open.get(message.request_id)
        if entry is None:
            return
        event, failure = event_from_pb(message)
        if failure is not None:
            self._open.end(entry)
            entry.events.put_nowait(error_of(failure))
            return
        new_part = self._open.take(entry, event)
        if new_part is None:
            self._submit(entry, resume=True)
        else:
            entry.events.put_nowait(new_part)


async def _messages(outgoing: Outgoing) -> AsyncIterator[pb.GenerateUp]:
    while (message := await outgoing.get()) is not None:
        yield message


def share_of(num_cores: int) -> float:
    """Return the number of cores that one ingress may take before it holds events."""
    return min(SHARE_PER_CORE * num_cores, MOST_SHARE)


class ChunkPacing:
    """Paces the chunks of one ingress. It measures the process at intervals, while there are
    events."""

    def __init__(
        self,
        share: float | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        self._share = share_of(os.cpu_count() or 1) if share is None else share
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._looked_s, self._spent_s = clock(), cpu_clock()
        self._hold_s = 0.0

    def hold_s(self) -> float:
        """Return how many seconds events may wait. 0: they are sent immediately."""
        since_s = self._clock() - self._looked_s
        if since_s >= LOOK_S:
            spent_s = self._cpu_clock()
            num_cores = (spent_s - self._spent_s) / since_s
            self._looked_s, self._spent_s = self._looked_s + since_s, spent_s
            wanted_s = max(self._hold_s, _LEAST_HELD_S) * num_cores / self._share
            self._hold_s = min(wanted_s, MOST_HELD_S) if wanted_s > _LEAST_HELD_S else 0.0
        return self._hold_s
