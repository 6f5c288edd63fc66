"""A process that keeps one stream to the coordinator of its version, with the service's own
code."""

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
"""Seconds per iteration of its event loop."""


@dataclass(eq=False, slots=True)
class Surroundings:
    """Everything that the processes of one version of the service share."""

    timeline: Timeline
    network: Network
    random: Random
    coordinator: CoordinatorProcess
    """The coordinator that a new stream leads to."""
    is_retiring: bool = False
    """True if another version takes over, and the processes of this one were told to end."""
    silence_s: float = SILENCE_S
    """Seconds of silence after which a peer is given up."""
    fingerprint: str = ""
    """Fingerprint of the targets that start from now on."""


@dataclass(frozen=True, slots=True)
class SimulatedAddress:
    """The address of a coordinator that was found."""

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
        """The last stream that the process opened."""

    @property
    def is_connected(self) -> bool:
        """Return True if it is connected to the coordinator that a new stream leads to."""
        stream = self.stream
        return stream is not None and stream.is_open and stream.server is self.world.coordinator

    def crash(self) -> None:
        super().crash()
        self.network.died(self)
        self.stream = None

    async def resolve(self) -> SimulatedAddress:
        """Return the coordinator's address. Raises OSError while the coordinator is away."""
        coordinator = self.world.coordinator
        if not coordinator.is_up:
            raise ConnectionError("no process listens")
        return SimulatedAddress(self, coordinator)

    def opened(self, stream: Stream) -> None:
        self.stream = stream

    def gave_up(self, stream: Stream) -> None:
        with self.timeline.watched():
            check_patience(self, stream.down, self.world.silence_s)
