"""Streams between processes. Each direction of a stream keeps its order; two streams keep none.

Messages travel as the bytes that gRPC would send. The ends of a stream that is cut notice it at
different times. Messages under way may still arrive, even after the first messages of the stream
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
"""Minimum seconds until the other end sees that a stream is closed."""
_MOST_HALF_OPEN_S = 0.6
"""Maximum seconds until an end sees that its stream was cut."""
_WINDOW = 4
"""Number of unread messages at which a direction of a stream is full."""

Serialize = Callable[[Any], bytes]
Parse = Callable[[bytes], Any]


@dataclass(eq=False, slots=True)
class Delays:
    """Range of the seconds that a message travels."""

    least: float
    most: float
    factor: float = 1.0
    """Multiplies the delays while the network is slow."""


class Host(Process):
    """A process that others open streams to."""

    def accept(self, stream: Stream) -> None:
        raise NotImplementedError


class Direction:
    """One direction of a stream: messages that one end writes and the other one reads, in order."""

    def __init__(self, network: Network, sender: Process, receiver: Process) -> None:
        self.num_unread = 0
        """Number of messages under way, or not yet read."""
        self.loses = False
        """True if nothing that is written now arrives. Such a message counts as unread for ever."""
        self.on_lost: Callable[[], None] = _nothing
        """Called when a message is written that will not arrive."""
        self.heard_at = receiver.ran_s
        """The reader's running time when it last had a message, or when the stream began."""
        self._is_full = False
        """True while the writer waits for room."""
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
        """Write a message; wait while the stream is full, for ever if no process reads it."""
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
        """Return the next message; None at the end. Raises the error that ended the stream."""
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
        """End the stream after what its sender has written."""
        if not self.loses:
            self._receiver.at(self.next_arrival(), self.end)

    def end(self, error: Exception | None = None) -> None:
        """Let the reader learn that nothing more comes after what has arrived."""
        if not self._is_over:
            self._is_over, self._error = True, error
            self._wake()

    @property
    def is_awaited(self) -> bool:
        """Return True if the reader has handled what came, and waits."""
        return self._news is not None and not self._news.done()

    @property
    def waited_s(self) -> float:
        """Seconds since the reader had a message, or since the stream began. Only its running time
        counts."""
        return self._receiver.ran_s - self.heard_at

    @property
    def is_empty(self) -> bool:
        """Return True if nothing is under way, unread, or waiting for room."""
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
    """One stream between two processes, opened by the client."""

    def __init__(self, network: Network, client: Process, server: Process, path: str) -> None:
        self.path = path
        self.client = client
        self.server = server
        self.up = Direction(network, client, server)
        self.down = Direction(network, server, client)
        self.loses_next = False
        """The next events to the client are lost, unless they end a request."""
        self.repeats_next = False
        """The next events to the client arrive twice."""
        self.is_cut = False
        self.is_silent = False
        """True if no message gets through and neither end gets an error. Only an end that watches
        for silence finds out."""
        self.is_client_open = self.is_server_open = True
        self.on_client_end: Callable[[], object] = _nothing
        """Called when the client learns that the server, or the way to it, is gone."""
        self.on_server_end: Callable[[], object] = _nothing
        self._network = network

    @property
    def is_open(self) -> bool:
        is_known_lost = not (self.is_client_open and self.is_server_open)
        return not (is_known_lost or self.is_cut or self.is_silent)

    @property
    def is_of_replica(self) -> bool:
        """Return True for a replica's stream. Its server watches for silence; the server of an
        ingress's stream does not."""
        return self.path.endswith("/Work")

    @property
    def is_over(self) -> bool:
        """Return True if both ends know that the stream is over."""
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
        """Let the network fail. Nothing new gets through, and each end learns of it in its own
        time."""
        self.is_cut = True
        self._lose()
        now = self._network.now
        delays = sorted(self._network.random.uniform(0.0, _MOST_HALF_OPEN_S) for _ in range(2))
        self._network.random.shuffle(delays)
        self.client.at(now + delays[0], self._client_sees_end)
        self.server.at(max(self.up.last_arrival, now + delays[1]), self._server_sees_end)

    def fall_silent(self, pinged_s: float | None = None) -> None:
        """Drop all messages silently, as when a machine is gone. After `pinged_s`, the server,
        which does not watch for silence, learns of it by an unanswered ping."""
        self.is_silent = True
        self._lose()
        self.up.on_lost = partial(self._not_acknowledged, self.client, self._client_sees_end)
        self.down.on_lost = partial(self._not_acknowledged, self.server, self._server_sees_end)
        if pinged_s is not None:
            self.server.at(self._network.now + pinged_s, self._server_sees_end)

    def leave(self) -> None:
        """Close the stream on the client's side, because it is finished or has died."""
        if self.is_client_open:
            self.is_client_open = False
            self._network.ended(self)
            if not self.is_silent:
                time = max(self.up.last_arrival, self._network.now + _CLOSED_S)
                self.server.at(time, self._server_sees_end)

    def close(self, error: Exception | None = None) -> None:
        """Close the stream on the server's side, because it is finished or has died. Messages that
        it wrote before still arrive."""
        if self.is_server_open:
            self.is_server_open = False
            self._network.ended(self)
            if not self.is_silent:
                time = max(self.down.last_arrival, self._network.now + _CLOSED_S)
                self.client.at(time, partial(self._client_sees_end, error))

    def _not_acknowledged(self, writer: Process, sees_end: Callable[[], None]) -> None:
        """Let the writer's kernel give the connection up (PROBE_OPTIONS in wire/endpoint.py)."""
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
    """Do nothing; default of the callbacks."""


def _may_be_lost(message: Any) -> bool:
    """Return True if more events follow the message. Losing a request's last event would make its
    client wait for ever."""
    if not isinstance(message, pb.GenerateDown) or message.HasField("state"):
        return False
    is_last = any(event.finish_reason or event.HasField("failure") for event in message.events)
    return bool(message.events) and not is_last


def refusal(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    """Return the error that a client's call raises after such an end."""
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details)


def gone() -> grpc.aio.AioRpcError:
    return refusal(grpc.StatusCode.UNAVAILABLE, "the connection is gone")


class Network:
    """Creates streams, and draws the travel time of messages."""

    def __init__(self, timeline: Timeline, random: Random, delays: Delays, record: Record) -> None:
        self.random = random
        self._draw = random.random
        self.delays = delays
        self.record = record
        self.unacknowledged_s = 3 * SILENCE_S
        """Seconds after an unacknowledged write until the kernel gives up. Longer than in reality,
        so that the silence limit is reached first."""
        self.streams: dict[Stream, None] = {}
        """Streams that are still open at an end at least."""
        self._timeline = timeline

    @property
    def now(self) -> float:
        return self._timeline.now

    def arrival(self) -> float:
        """Return the arrival time of a message that is sent now."""
        delays = self.delays
        spread = (delays.most - delays.least) * self._draw()
        return self._timeline.now + (delays.least + spread) * delays.factor

    def connect(self, client: Process, server: Host, path: str) -> Stream:
        """Return a new stream from `client`. `server.accept` is called with it."""
        stream = Stream(self, client, server, path)
        self.streams[stream] = None
        server.at(stream.up.next_arrival(), partial(server.accept, stream))
        return stream

    def ended(self, stream: Stream) -> None:
        """Note that one more end knows that the stream is over."""
        if stream.is_over:
            self.streams.pop(stream, None)

    def died(self, process: Process) -> None:
        """Close the process's streams, as its kernel does when it dies."""
        for stream in [s for s in self.streams if process in (s.client, s.server)]:
            if stream.client is process:
                stream.leave()
            else:
                stream.close(gone())
