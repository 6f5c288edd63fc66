"""Table of the live sequences, and the only place where a sequence ends.

Requests with a deadline of their own stand in a heap, the soonest first.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from specdec_core.logprobs import TokenLogprobs
from specdec_core.request import ErrorKind, FinishReason, Request, TokenEvent
from specdec_core.scheduler.admission import AdmissionQueue
from specdec_core.scheduler.commands import Outbox
from specdec_core.scheduler.sequence import Sequence
from specdec_core.scheduler.stats import SchedulerStats


class LiveRequests:
    """At most one live sequence per request id."""

    def __init__(self, placement: AdmissionQueue, outbox: Outbox, stats: SchedulerStats) -> None:
        self._placement = placement
        self._outbox = outbox
        self._stats = stats
        self._by_request_id: dict[str, Sequence] = {}
        self._next_sequence_id = 0

    def __len__(self) -> int:
        return len(self._by_request_id)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._by_request_id.values())

    @property
    def num_clients(self) -> int:
        """Number of live sequences that a client waits for."""
        return sum(not sequence.is_background for sequence in self)

    def get(self, request_id: str) -> Sequence | None:
        return self._by_request_id.get(request_id)

    def add(self, request: Request, now: float) -> Sequence:
        sequence = Sequence(self._next_sequence_id, request, now)
        self._next_sequence_id += 1
        self._by_request_id[request.request_id] = sequence
        return sequence

    def emit(
        self, sequence: Sequence, tokens: tuple[int, ...], logprobs: tuple[TokenLogprobs, ...]
    ) -> None:
        """Commit tokens and send them to the client."""
        event = TokenEvent(sequence.request_id, sequence.num_emitted, tokens)
        if logprobs or sequence.prompt_logprobs:
            prompt_logprobs = _take_prompt_logprobs(sequence, tokens)
            event = event._replace(logprobs=logprobs, prompt_logprobs=prompt_logprobs)
        if sequence.pinned_fingerprint and sequence.history.num_rounds == 1:
            event = event._replace(pinned_fingerprint=sequence.pinned_fingerprint)
        sequence.append(tokens)
        self._outbox.emit(event)

    def finish(
        self,
        sequence: Sequence,
        reason: FinishReason,
        *,
        tokens: tuple[int, ...] = (),
        logprobs: tuple[TokenLogprobs, ...] = (),
        error: str | None = None,
        error_kind: ErrorKind = ErrorKind.FAILED,
    ) -> None:
        """End the sequence in any state, with its last event."""
        index, prompt_logprobs = sequence.num_emitted, _take_prompt_logprobs(sequence, tokens)
        sequence.append(tokens)
        self.forget(sequence, reason)
        if not sequence.is_background:
            self._stats.num_finished[reason] += 1
        self._outbox.emit(
            TokenEvent(
                request_id=sequence.request.request_id,
                index=index,
                token_ids=tokens,
                finish_reason=reason,
                stats=sequence.stats,
                error=error,
                error_kind=error_kind,
                logprobs=logprobs,
                prompt_logprobs=prompt_logprobs,
                pinned_fingerprint=sequence.pinned_fingerprint,
            )
        )

    def forget(self, sequence: Sequence, reason: FinishReason) -> None:
        """End the sequence without an event: a later attempt replaces it, or it is refused."""
        sequence.finish_reason = reason
        self._placement.release(sequence)
        del self._by_request_id[sequence.request.request_id]


def _take_prompt_logprobs(sequence: Sequence, tokens: tuple[int, ...]) -> tuple[TokenLogprobs, ...]:
    """Return the prompt log-probabilities to send with the first token, and drop them."""
    if not tokens:
        return ()
    prompt_logprobs, sequence.prompt_logprobs = sequence.prompt_logprobs, ()
    return prompt_logprobs


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
