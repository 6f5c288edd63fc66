"""Streams between processes: each direction keeps its order, no two streams keep any.

Messages travel as the bytes that gRPC would send. A stream that is cut is noticed by its ends at
different times; what was under way may still arrive, even behind the first messages of the stream
that replaces it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import grpc

from deployments.simulation.record import Record
from deployments.simulation.timeline import Process, Timeline
from deployments.wire.liveness import SILENCE_S
from specdec.v1 import coordination_pb2 as pb

_CLOSED_S = 0.004
"""A closed stream is seen so soon."""
_MOST_HALF_OPEN_S = 0.6
"""A cut one may take an end so long to see."""
_WINDOW = 4
"""Messages that a peer has not read before its direction of a stream is full."""

Serialize = Callable[[Any], bytes]
Parse = Callable[[bytes], Any]


@dataclass(eq=False, slots=True)
class Delays:
    """Seconds that a message travels."""

    least: float
    most: float
    factor: float = 1.0
    """Of a network that is slow at present."""


class Host(Process):
    """A process that others open streams to."""

    def accept(self, stream: Stream) -> None:
        raise NotImplementedError


class Direction:
    """What one end writes and the other one reads, in order."""

    def __init__(self, network: Network, sender: Process, receiver: Process) -> None:
        self.num_unread = 0
        """Messages under way, or not yet read."""
        self.loses = False
        """Nothing that is written now arrives; it counts as unread for ever."""
        self.on_lost: Callable[[], None] = _nothing
        """Something was written that will not arrive."""
        self.heard_at = receiver.ran_s
        """How long its reader had run when it had a message last, or when the stream began."""
        self._is_full = False
        """Somebody waits for room."""
        self._network = network
        self._sender = sender
        self._receiver = receiver
        self._arrive_at = 0.0
        self._arrived: deque[bytes] = deque()
        self._is_over = False
        self._error: Exception | None = None
        self._news: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None

    async def write(self, payload: bytes) -> None:
        """Waits while the stream is full, for ever where nobody reads."""
        while self.num_unread >= _WINDOW:
            self._is_full = True
            self._room = self._sender.loop.create_future()
            await self._room
        self._is_full = False
        self.num_unread += 1
        if self.loses:
            self.on_lost()
        else:
            self._receiver.at(self.next_arrival(), partial(self._arrive, payload))

    async def read(self) -> bytes | None:
        """None at the end. Raises what ended it."""
        while not self._arrived:
            if self._is_over:
                if self._error is not None:
                    raise self._error
                return None
            self._news = self._receiver.loop.create_future()
            await self._news
        self.num_unread -= 1
        self.heard_at = self._receiver.ran_s
        if self._room is not None:
            self._sender.at(self._network.now, self._has_room)
        return self._arrived.popleft()

    def end_behind(self) -> None:
        """Its sender has nothing more to say."""
        if not self.loses:
            self._receiver.at(self.next_arrival(), self.end)

    def end(self, error: Exception | None = None) -> None:
        """Its reader learns that nothing more comes behind what has arrived."""
        if not self._is_over:
            self._is_over, self._error = True, error
            self._wake()

    @property
    def is_awaited(self) -> bool:
        """Its reader has dealt with what came, and waits."""
        return self._news is not None and not self._news.done()

    @property
    def waited_s(self) -> float:
        """Since its reader had a message, or the stream began; as long as it ran."""
        return self._receiver.ran_s - self.heard_at

    @property
    def is_empty(self) -> bool:
        """Nothing is under way, unread, or waits for room."""
        return not (self.num_unread or self._is_full)

    @property
    def last_arrival(self) -> float:
        return self._arrive_at

    def next_arrival(self) -> float:
        arrival = self._network.arrival()
        if arrival > self._arrive_at:
            self._arrive_at = arrival
        return self._arrive_at

    def _arrive(self, payload: bytes) -> None:
        if not self._is_over:
            self._arrived.append(payload)
            self._wake()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)
        self._news = None

    def _has_room(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._room = None


class Stream:
    """One stream between two processes. The client has opened it."""

    def __init__(self, network: Network, client: Process, server: Process, path: str) -> None:
        self.path = path
        self.client = client
        self.server = server
        self.up = Direction(network, client, server)
        self.down = Direction(network, server, client)
        self.loses_next = False
        """The next news to the client that ends nothing is lost."""
        self.repeats_next = False
        """The next news to the client comes twice."""
        self.is_cut = False
        self.is_silent = False
        """Nothing gets through, and nobody is told: who listens finds out."""
        self.is_client_open = self.is_server_open = True
        self.on_client_end: Callable[[], object] = _nothing
        """The client learns that the server, or the way to it, is gone."""
        self.on_server_end: Callable[[], object] = _nothing
        self._network = network

    @property
    def is_open(self) -> bool:
        is_known_lost = not (self.is_client_open and self.is_server_open)
        return not (is_known_lost or self.is_cut or self.is_silent)

    @property
    def is_of_replica(self) -> bool:
        """Its server listens for silence; to an ingress it does not."""
        return self.path.endswith("/Work")

    @property
    def is_over(self) -> bool:
        """Both ends know it."""
        return not (self.is_client_open or self.is_server_open)

    async def write_up(self, message: Any, serialize: Serialize) -> None:
        self._network.record.message(self.client.name, "->", message)
        await self.up.write(serialize(message))

    async def write_down(self, message: Any, serialize: Serialize) -> None:
        self._network.record.message(self.client.name, "<-", message)
        payload = serialize(message)
        if self.loses_next and _may_be_lost(message):
            self.loses_next = False
            return
        await self.down.write(payload)
        if self.repeats_next and isinstance(message, pb.GenerateDown) and message.events:
            self.repeats_next = False
            await self.down.write(payload)

    def cut(self) -> None:
        """The network fails: nothing new gets through, each end learns of it in its own time."""
        self.is_cut = True
        self._lose()
        now = self._network.now
        delays = sorted(self._network.random.uniform(0.0, _MOST_HALF_OPEN_S) for _ in range(2))
        self._network.random.shuffle(delays)
        self.client.at(now + delays[0], self._client_sees_end)
        self.server.at(max(self.up.last_arrival, now + delays[1]), self._server_sees_end)

    def fall_silent(self, pinged_s: float | None = None) -> None:
        """As when a machine is gone. `pinged_s`: so much later the server, which does not listen,
        learns of it by a ping that nobody answers."""
        self.is_silent = True
        self._lose()
        self.up.on_lost = partial(self._not_acknowledged, self.client, self._client_sees_end)
        self.down.on_lost = partial(self._not_acknowledged, self.server, self._server_sees_end)
        if pinged_s is not None:
            self.server.at(self._network.now + pinged_s, self._server_sees_end)

    def leave(self) -> None:
        """The client closes the stream, or dies."""
        if self.is_client_open:
            self.is_client_open = False
            self._network.ended(self)
            if not self.is_silent:
                time = max(self.up.last_arrival, self._network.now + _CLOSED_S)
                self.server.at(time, self._server_sees_end)

    def close(self, error: Exception | None = None) -> None:
        """The server closes the stream, or dies; what it wrote before still arrives."""
        if self.is_server_open:
            self.is_server_open = False
            self._network.ended(self)
            if not self.is_silent:
                time = max(self.down.last_arrival, self._network.now + _CLOSED_S)
                self.client.at(time, partial(self._client_sees_end, error))

    def _not_acknowledged(self, writer: Process, sees_end: Callable[[], None]) -> None:
        """The kernel of who writes gives the connection up (PROBE_OPTIONS in wire/endpoint.py)."""
        writer.at(self._network.now + self._network.unacknowledged_s, sees_end)

    def _lose(self) -> None:
        self.up.loses = self.down.loses = True

    def _client_sees_end(self, error: Exception | None = None) -> None:
        if self.is_client_open:
            self.is_client_open = False
            self._network.ended(self)
            is_told = error is None and not (self.is_server_open or self.is_cut)
            self.down.end(error if error is not None or is_told else gone())
            self.on_client_end()

    def _server_sees_end(self) -> None:
        if self.is_server_open:
            self.is_server_open = False
            self._network.ended(self)
            self.up.end(gone())
            self.on_server_end()


def _nothing() -> None:
    """Nobody waits for it yet."""


def _may_be_lost(message: Any) -> bool:
    """Only what more news will follow: whoever waits for the last word waits for ever."""
    if not isinstance(message, pb.GenerateDown) or message.HasField("state"):
        return False
    is_last = any(event.finish_reason or event.HasField("failure") for event in message.events)
    return bool(message.events) and not is_last


def refusal(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    """What a client's call raises that has ended so."""
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details)


def gone() -> grpc.aio.AioRpcError:
    return refusal(grpc.StatusCode.UNAVAILABLE, "the connection is gone")


class Network:
    """Makes streams, and says how long messages take."""

    def __init__(self, timeline: Timeline, random: Random, delays: Delays, record: Record) -> None:
        self.random = random
        self._draw = random.random
        self.delays = delays
        self.record = record
        self.unacknowledged_s = 3 * SILENCE_S
        """After a write that nobody acknowledges. Longer than really: patience comes first."""
        self.streams: dict[Stream, None] = {}
        """Those of which some end still knows."""
        self._timeline = timeline

    @property
    def now(self) -> float:
        return self._timeline.now

    def arrival(self) -> float:
        """When a message arrives that is sent now."""
        delays = self.delays
        spread = (delays.most - delays.least) * self._draw()
        return self._timeline.now + (delays.least + spread) * delays.factor

    def connect(self, client: Process, server: Host, path: str) -> Stream:
        """A stream from `client`. `server.accept` hears of it."""
        stream = Stream(self, client, server, path)
        self.streams[stream] = None
        server.at(stream.up.next_arrival(), partial(server.accept, stream))
        return stream

    def ended(self, stream: Stream) -> None:
        """One more end of it knows."""
        if stream.is_over:
            self.streams.pop(stream, None)

    def died(self, process: Process) -> None:
        """Its kernel closes what it had open."""
        for stream in [s for s in self.streams if process in (s.client, s.server)]:
            if stream.client is process:
                stream.leave()
            else:
                stream.close(gone())
