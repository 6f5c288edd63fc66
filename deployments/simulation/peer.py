"""A process that keeps one stream to the coordinator of its version, by the service's code."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from deployments.simulation.calls import Caller, Channel
from deployments.simulation.coordinating import CoordinatorProcess
from deployments.simulation.invariants.patience import check_patience
from deployments.simulation.network import Network, Stream
from deployments.simulation.timeline import Timeline
from deployments.wire.liveness import SILENCE_S

_STEP_S = 0.00002
"""Of a turn of its loop."""


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
    silence_s: float = SILENCE_S
    """After which a peer is given up."""
    fingerprint: str = ""
    """Of its targets that start now."""


@dataclass(frozen=True, slots=True)
class SimulatedAddress:
    """Where a coordinator was found."""

    client: Peer
    server: CoordinatorProcess
    metadata: tuple[tuple[str, str], ...] = ()

    def channel(self) -> Channel:
        return Channel(self.client, self.server)


class Peer(Caller):
    """A replica or an ingress."""

    def __init__(self, world: Surroundings, name: str) -> None:
        super().__init__(world.timeline, name, _STEP_S)
        self.world = world
        self.network = world.network
        self.stream: Stream | None = None
        """The last one that it opened."""

    @property
    def is_connected(self) -> bool:
        """To the coordinator that a new stream leads to."""
        stream = self.stream
        return stream is not None and stream.is_open and stream.server is self.world.coordinator

    def crash(self) -> None:
        super().crash()
        self.network.died(self)
        self.stream = None

    async def resolve(self) -> SimulatedAddress:
        """Raises OSError while the coordinator is away."""
        coordinator = self.world.coordinator
        if not coordinator.is_up:
            raise ConnectionError("nobody listens")
        return SimulatedAddress(self, coordinator)

    def opened(self, stream: Stream) -> None:
        self.stream = stream

    def gave_up(self, stream: Stream) -> None:
        with self.timeline.watched():
            check_patience(self, stream.down, self.world.silence_s)
