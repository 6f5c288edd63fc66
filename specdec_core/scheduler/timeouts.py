"""Requests that must end by their own deadline, the soonest first."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from specdec_core.request import ErrorKind, FinishReason
from specdec_core.scheduler.live_requests import LiveRequests
from specdec_core.scheduler.sequence import Sequence

MOST_AT_ONCE = 256
"""Maximum requests ended by one decision. The others wait for the next decision, so that leases are
not delayed."""
_SPARE = 64
"""Number of entries of ended requests that are tolerated before all of them are removed."""


class Timeouts:
    """A heap of deadlines. Those of ended requests are dropped when they come up."""

    def __init__(self, registry: LiveRequests) -> None:
        self._registry = registry
        self._heap: list[tuple[float, int, str]] = []
        self._most_entries = _SPARE

    @property
    def soonest(self) -> float | None:
        """Earliest deadline of a live request; None if no live request has one."""
        while self._heap:
            if self._live(self._heap[0]) is not None:
                return self._heap[0][0]
            heappop(self._heap)
        return None

    def add(self, sequence: Sequence) -> None:
        timeout_s = sequence.request.timeout_s
        if timeout_s is None:
            return
        ends_at = sequence.arrived_at + timeout_s
        heappush(self._heap, (ends_at, sequence.sequence_id, sequence.request_id))
        if len(self._heap) > self._most_entries:
            self._heap = [entry for entry in self._heap if self._live(entry) is not None]
            heapify(self._heap)
            self._most_entries = 2 * len(self._heap) + _SPARE

    def end_overdue(self, now: float) -> None:
        """End requests whose deadline has passed, in any state."""
        for _ in range(MOST_AT_ONCE):
            if not self._heap or self._heap[0][0] > now:
                return
            sequence = self._live(heappop(self._heap))
            if sequence is None:
                continue
            self._registry.finish(
                sequence,
                FinishReason.ERROR,
                error=f"not finished within {sequence.request.timeout_s:g} s",
                error_kind=ErrorKind.TIMEOUT,
            )

    def _live(self, entry: tuple[float, int, str]) -> Sequence | None:
        _, sequence_id, request_id = entry
        sequence = self._registry.get(request_id)
        is_it = sequence is not None and sequence.sequence_id == sequence_id
        return sequence if is_it else None
