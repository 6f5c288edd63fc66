"""A process that keeps one stream to the coordinator, and comes back after errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from deployments.simulation.coordinator import CoordinatorProcess
from deployments.simulation.listening import Listening
from deployments.simulation.network import Network, Stream
from deployments.simulation.timeline import Process, Timeline

_FIRST_WAIT_S = 0.05
_LONGEST_WAIT_S = 1.0


@dataclass(eq=False, slots=True)
class Surroundings:
    """What every process of one version of the service reaches."""

    timeline: Timeline
    network: Network
    random: Random
    coordinator: CoordinatorProcess
    """That a new stream leads to."""
    is_retiring: bool = False
    """Another version takes its place: its processes were told to end."""
    silence_s: float | None = None
    """After which a peer is given up; both ends beat ten times as often. None: nobody does."""
    fingerprint: str = ""
    """Of its targets that start now."""


class Connected(Process):
    """A process that keeps one stream to the coordinator, with pauses that double."""

    def __init__(self, world: Surroundings, name: str) -> None:
        super().__init__(world.timeline, name)
        self.world = world
        self.stream: Stream | None = None
        self.listening: Listening | None = None
        self._wait_s = _FIRST_WAIT_S

    @property
    def is_connected(self) -> bool:
        """To the coordinator that a new stream leads to."""
        stream = self.stream
        return stream is not None and stream.is_open and stream.server is self.world.coordinator

    def crash(self) -> None:
        super().crash()
        self.leave_stream()

    def leave_stream(self) -> None:
        if self.stream is not None:
            self.stream.leave()
        self.forget_stream()

    def forget_stream(self) -> None:
        """It is over."""
        self.stream = None
        if self.listening is not None:
            self.listening.end()
            self.listening = None

    def connect(self, accept: Callable[[Stream], None]) -> Stream | None:
        """None where nobody listens."""
        coordinator = self.world.coordinator
        if not coordinator.is_up:
            self.reconnect_later()
            return None
        stream = self.world.network.connect(self, coordinator, accept)
        coordinator.expect(stream)
        limit_s = self.world.silence_s
        if limit_s is not None:
            self.listening = Listening(self, limit_s, beat=self.beat, give_up=self._give_up)
        return stream

    def beat(self) -> None:
        """Let the coordinator hear that it is there. An ingress need not."""

    def _give_up(self) -> None:
        """SilenceError: the coordinator has said nothing for too long."""
        self.leave_stream()
        self.stream_lost()

    def stream_lost(self) -> None:
        raise NotImplementedError

    def reconnect_later(self) -> None:
        wait_s = self._wait_s * self.world.random.uniform(0.5, 1.0)
        self._wait_s = min(2 * self._wait_s, _LONGEST_WAIT_S)
        self.after(wait_s, self.open_stream)

    def connected(self) -> None:
        self._wait_s = _FIRST_WAIT_S

    def open_stream(self) -> None:
        raise NotImplementedError
