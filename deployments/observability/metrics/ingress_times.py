"""Time that answers take in an ingress: seconds of its event loop, by stage."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from deployments.observability.metrics.request_times import RequestHistograms
from specdec.v1 import coordination_pb2 as pb


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
    """Time to convert pieces to JSON or messages."""
    requests: RequestHistograms = field(default_factory=RequestHistograms)
    """Durations of whole requests."""

    def add(self, message: pb.IngressTimes) -> None:
        self.num_pieces += message.num_pieces
        self.detokenise.seconds += message.detokenise_s
        self.respond.seconds += message.respond_s
        self.requests.add(message.requests)

    def take(self) -> pb.IngressTimes:
        """Return the times as a message and reset them to zero."""
        message = pb.IngressTimes(
            num_pieces=self.num_pieces,
            detokenise_s=self.detokenise.seconds,
            respond_s=self.respond.seconds,
            requests=self.requests.take(),
        )
        self.num_pieces, self.detokenise.seconds, self.respond.seconds = 0, 0.0, 0.0
        return message
