"""(h): silent peers are given up in time, and no other peers are. A process whose clock ran at
another speed is not checked."""

from __future__ import annotations

from deployments.simulation.network import Direction, Network
from deployments.simulation.record import Violation
from deployments.simulation.timeline import Process
from deployments.wire.liveness import LOOKS

_LEAST, _MOST = 0.5, 1.3
"""Bounds on the wait for a silent peer, as factors of its time limit. The timer of a process that
was stopped meanwhile fires as soon as it continues, after less running time."""


def check_patience(process: Process, heard: Direction, limit_s: float) -> None:
    """Check that `process` may give up the peer that writes to `heard`. Raises Violation."""
    if heard.waited_s < _LEAST * limit_s and not process.had_wrong_clock:
        raise Violation(f"(h) {process.name} gives up who was heard {heard.waited_s:.3f} s ago")


class Patience:
    """Checks every stream, as often as its ends check it themselves."""

    def __init__(self, network: Network, silence_s: float) -> None:
        self._network = network
        self._silence_s = silence_s

    @property
    def every_s(self) -> float:
        return self._silence_s / LOOKS

    def look(self) -> None:
        """Check every stream. Raises Violation if an end waits too long."""
        for stream in self._network.streams:
            if stream.is_client_open:
                self._check(stream.client, stream.down)
            if stream.is_server_open and stream.is_of_replica:
                self._check(stream.server, stream.up)

    def left_out(self, replica_id: str) -> None:
        """Check that a coordinator may give a replica up. Raises Violation."""
        ends = [
            s for s in self._network.streams if s.client.name == replica_id and s.is_server_open
        ]
        waited_s = max((stream.up.waited_s for stream in ends), default=0.0)
        if ends and waited_s < _LEAST * self._silence_s:
            raise Violation(f"(h) {replica_id} is given up, and was heard {waited_s:.3f} s ago")

    def _check(self, process: Process, heard: Direction) -> None:
        if process.is_stopped or process.had_wrong_clock or not heard.is_awaited:
            return
        if heard.waited_s > _MOST * self._silence_s:
            raise Violation(
                f"(h) {process.name} has heard nothing for {heard.waited_s:.3f} s and waits"
            )
