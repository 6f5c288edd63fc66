"""Maps each sequence of each life of a coordinator to its request, and to the KV that it may
hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from deployments.simulation.tokens import Script
from specdec_core.request import Request


class KVOwners:
    """Requests by epoch and sequence ID. Sequence IDs start again with every coordinator, so that a
    slot may meet another sequence with its ID."""

    def __init__(self, scripts: Callable[[Request], Iterable[Script]]) -> None:
        """`scripts` returns the permitted answers to a request, one script per fingerprint."""
        self.scripts = scripts
        self._requests: dict[tuple[int, int], Request] = {}

    def note(self, epoch: int, sequence_id: int, request: Request) -> None:
        self._requests[epoch, sequence_id] = request

    def request(self, epoch: int, sequence_id: int) -> Request:
        return self._requests[epoch, sequence_id]
