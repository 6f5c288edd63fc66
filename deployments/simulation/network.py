"""Streams between processes: each direction keeps its order, no two streams keep any.

A stream that is cut is noticed by its ends at different times; what was under way may still arrive,
even behind the first messages of the stream that replaces it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Protocol

from deployments.simulation.record import Record
from deployments.simulation.timeline import Process, Timeline

_CLOSED_S = 0.004
"""A closed stream is seen so soon."""
_MOST_HALF_OPEN_S = 0.6
"""A cut one may take an end so long to see."""


class Server(Protocol):
    """The server's side of one stream."""

    @property
    def has_news(self) -> Callable[[], bool]:
        """Whether something waits for room on the stream."""
        ...

    def hear(self, message: Any) -> None: ...

    def pump(self) -> None:
        """A message has left the stream: there is room for another."""
        ...

    def lost(self) -> None: ...


@dataclass(eq=False, slots=True)
class Delays:
    """Seconds that a message travels."""

    least: float
    most: float
    factor: float = 1.0
    """Of a network that is slow at present."""


class Stream:
    """One stream. The client opened it; `serve` tells who answers."""

    def __init__(self, network: Network, client: Process, server: Process) -> None:
        self.num_down = 0
        """Messages under way to the client, or not yet read by it."""
        self.loses_next = False
        """The next message to the client that ends nothing is lost."""
        self.repeats_next = False
        """The next news to the client comes twice."""
        self.is_cut = False
        self.is_silent = False
        """Nothing gets through, and nobody is told: who listens finds out."""
        self.hear_down: Callable[[Any], None]
        self.lost_down: Callable[[], None]
        self._network = network
        self._client = client
        self.server = server
        self._server: Server | None = None
        self._up_at = self._down_at = 0.0
        self._is_client_open = self._is_server_open = True

    @property
    def is_open(self) -> bool:
        is_known_lost = not (self._is_client_open and self._is_server_open)
        return not (is_known_lost or self.is_cut or self.is_silent)

    @property
    def is_over(self) -> bool:
        """Both ends know it."""
        return not (self._is_client_open or self._is_server_open)

    def serve(self, server: Server) -> None:
        self._server = server

    def up(self, message: Any) -> None:
        network = self._network
        network.record.message(self._client.name, "->", message)
        if self._is_client_open and not (self.is_cut or self.is_silent):
            arrival = network.arrival()
            if arrival > self._up_at:
                self._up_at = arrival
            self.server.at(self._up_at, partial(self._arrive_up, message))

    def down(self, message: Any) -> None:
        network = self._network
        network.record.message(self._client.name, "<-", message)
        if self._is_server_open and not self.is_cut:
            self.num_down += 1
            if self.is_silent:
                return  # it fills up
            arrival = network.arrival()
            if arrival > self._down_at:
                self._down_at = arrival
            self._client.at(self._down_at, partial(self._arrive_down, message))

    def cut(self) -> None:
        """The network fails: nothing new gets through, each end learns of it in its own time."""
        self.is_cut = True
        now = self._network.now
        delays = sorted(self._network.random.uniform(0.0, _MOST_HALF_OPEN_S) for _ in range(2))
        self._network.random.shuffle(delays)
        self._client.at(now + delays[0], self._client_sees_end)
        self.server.at(max(self._up_at, now + delays[1]), self._server_sees_end)

    def fall_silent(self, pinged_s: float | None = None) -> None:
        """As when a machine is gone. `pinged_s`: so much later the server, which does not listen,
        learns of it by a ping that nobody answers."""
        self.is_silent = True
        if pinged_s is not None:
            self.server.at(self._network.now + pinged_s, self._server_sees_end)

    def leave(self) -> None:
        """The client closes the stream, or dies."""
        self._is_client_open = False
        if not self.is_silent:
            time = max(self._up_at, self._network.now + _CLOSED_S)
            self.server.at(time, self._server_sees_end)

    def close(self) -> None:
        """The server closes the stream, or dies; what it wrote before still arrives."""
        self._is_server_open = False
        if not self.is_silent:
            time = max(self._down_at, self._network.now + _CLOSED_S)
            self._client.at(time, self._client_sees_end)

    def _arrive_up(self, message: Any) -> None:
        if self._is_server_open and self._server is not None:
            self._server.hear(message)

    def _arrive_down(self, message: Any) -> None:
        self.num_down -= 1
        if not self._is_client_open:
            return
        self.hear_down(message)
        server = self._server
        if self.num_down == 0 and server is not None and server.has_news() and not self.is_cut:
            self.server.at(self._network.now, self._server_has_room)

    def _server_has_room(self) -> None:
        if self._is_server_open and self._server is not None:
            self._server.pump()

    def _client_sees_end(self) -> None:
        if self._is_client_open:
            self._is_client_open = False
            self.lost_down()

    def _server_sees_end(self) -> None:
        if self._is_server_open:
            self._is_server_open = False
            if self._server is not None:
                self._server.lost()


class Network:
    """Makes streams, and says how long messages take."""

    def __init__(self, timeline: Timeline, random: Random, delays: Delays, record: Record) -> None:
        self.random = random
        self._draw = random.random
        self.delays = delays
        self.record = record
        self._timeline = timeline

    @property
    def now(self) -> float:
        return self._timeline.now

    def arrival(self) -> float:
        """When a message arrives that is sent now."""
        delays = self.delays
        spread = (delays.most - delays.least) * self._draw()
        return self._timeline.now + (delays.least + spread) * delays.factor

    def connect(
        self,
        client: Process,
        server: Process,
        accept: Callable[[Stream], None],
    ) -> Stream:
        """A stream from `client`, whose callbacks it sets; `accept` runs at the server."""
        stream = Stream(self, client, server)
        server.at(self.arrival(), partial(accept, stream))
        stream._up_at = self.now + self.delays.most * self.delays.factor
        return stream
