"""Times of answers at an ingress: latencies of requests, seconds of its event loop by stage."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from deployments.observability.metrics.families.requests import (
    COUNTED,
    INPUT,
    OBSERVED,
    OUTPUT,
    REPLAY_DIVERGENCES,
)
from deployments.observability.metrics.histogram import Histogram
from deployments.observability.tracing.request_span import TracedAnswer
from specdec.v1 import coordination_pb2
from specdec.v1 import generation_pb2 as pb
from specdec_core.request import FinishReason, Request, RequestStats, TokenEvent

_BOUNDS = {metric.name: metric.bounds for metric in (*OBSERVED, *COUNTED)}
_WHOLE = ("specdec_e2e_request_latency_seconds", "gen_ai_server_request_duration_seconds")
_TO_FIRST = ("specdec_time_to_first_token_seconds", "gen_ai_server_time_to_first_token_seconds")
_PER_TOKEN = (
    "specdec_request_time_per_output_token_seconds",
    "gen_ai_server_time_per_output_token_seconds",
)
"""Each of these three: our metric of a time, and that of the GenAI conventions."""
_ACCEPTANCE = ("specdec_request_acceptance_rate", "specdec_request_acceptance_length")


class Observation(NamedTuple):
    name: str
    """Name of the metric."""
    value: float
    kind: str = ""
    """Value of its label, where it has one."""


REPLAY_DIVERGED = Observation(REPLAY_DIVERGENCES, 0.0)


class RequestWatch:
    """Times of one request at its ingress, from the receipt of its token IDs."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._began_s = time.perf_counter()
        self._received_s: list[float] = []
        self.last: TracedAnswer | None = None
        """Last event so far, with the end of the answer if that has come."""

    @property
    def first_s(self) -> float | None:
        """Time of the first event. Tokens that the client had brought back do not count."""
        return self._received_s[0] if self._received_s else None

    def receive(self, now_s: float) -> None:
        """Record an event that came at `now_s`, by `time.perf_counter`. Do not call it for tokens
        that the client had brought back."""
        self._received_s.append(now_s)

    def end(
        self, last: TokenEvent, reason: FinishReason, stats: RequestStats | None
    ) -> list[Observation]:
        """Return the observations of the request, with its `last` event. There are none unless the
        request was served to its end."""
        if reason not in (FinishReason.STOP, FinishReason.LENGTH):
            return []
        num_tokens = last.index + len(last.token_ids)
        num_fresh = num_tokens - len(self._request.resume_token_ids)
        first_s, last_s = self._received_s[0], self._received_s[-1]
        whole_s, to_first_s = last_s - self._began_s, first_s - self._began_s
        decode_s, queue_s = last_s - first_s, 0.0 if stats is None else stats.queue_s
        found = [
            Observation("gen_ai_client_token_usage", len(self._request.prompt_token_ids), INPUT),
            Observation("gen_ai_client_token_usage", num_tokens, OUTPUT),
            *(Observation(name, whole_s) for name in _WHOLE),
            *(Observation(name, to_first_s) for name in _TO_FIRST),
            Observation("specdec_request_queue_time_seconds", queue_s),
            Observation("specdec_request_prefill_time_seconds", to_first_s - queue_s),
            Observation("specdec_request_decode_time_seconds", decode_s),
        ]
        for before_s, now_s in pairwise(self._received_s):
            found.append(Observation("specdec_inter_token_latency_seconds", now_s - before_s))
        if num_fresh > 1:
            per_token_s = decode_s / (num_fresh - 1)
            found += [Observation(name, per_token_s) for name in _PER_TOKEN]
        if stats is not None and stats.num_drafted:
            acceptance = stats.num_accepted / stats.num_drafted, stats.mean_acceptance_length
            found += map(Observation, _ACCEPTANCE, acceptance)
        return found


class Timer:
    """`with timer:` adds the time of its body to `seconds`. The body never awaits."""

    __slots__ = ("seconds", "started_s")

    def __init__(self) -> None:
        self.seconds = 0.0
        self.started_s = 0.0

    def __enter__(self) -> None:
        self.started_s = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self.seconds += time.perf_counter() - self.started_s


@dataclass(eq=False, slots=True)
class IngressTimes:
    """Times of all answers together. An ingress counts from its last report to the coordinator."""

    num_pieces: int = 0
    detokenise: Timer = field(default_factory=Timer)
    """Time to convert token IDs to text, stop strings included."""
    respond: Timer = field(default_factory=Timer)
    """Time to convert chunks to JSON or messages."""
    histograms: dict[tuple[str, str], Histogram] = field(default_factory=dict)
    """Histograms of ended requests, by the name of the metric and the value of its label."""

    def observe(self, observations: Iterable[Observation]) -> None:
        for name, value, kind in observations:
            self._histogram(name, kind).observe(value)

    def add(self, message: coordination_pb2.IngressTimes) -> None:
        """Add reported times. Raises ValueError if buckets differ and LookupError for an unknown
        metric."""
        self.num_pieces += message.num_pieces
        self.detokenise.seconds += message.detokenise_s
        self.respond.seconds += message.respond_s
        for found in message.requests:
            self._histogram(found.name, found.kind).add(found.buckets, found.sum)

    def requests(self) -> Iterator[pb.HistogramStatus]:
        """Yield the histograms as messages."""
        for (name, kind), found in self.histograms.items():
            yield pb.HistogramStatus(name=name, kind=kind, sum=found.sum_s, buckets=found.buckets)

    def take(self) -> coordination_pb2.IngressTimes:
        """Return the times as a message and reset them to zero."""
        message = coordination_pb2.IngressTimes(
            num_pieces=self.num_pieces,
            detokenise_s=self.detokenise.seconds,
            respond_s=self.respond.seconds,
            requests=self.requests(),
        )
        self.num_pieces, self.detokenise.seconds, self.respond.seconds = 0, 0.0, 0.0
        self.histograms.clear()
        return message

    def _histogram(self, name: str, kind: str) -> Histogram:
        histogram = self.histograms.get((name, kind))
        if histogram is None:
            histogram = self.histograms[name, kind] = Histogram(_BOUNDS[name])
        return histogram
