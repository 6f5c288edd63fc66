"""Displayed figures from totals: shares, and how requests ended. Pure."""

from __future__ import annotations

from typing import NamedTuple

from deployments.observability.metrics.rates import Growth, between, of_cells, so_far
from deployments.wire.counter_names import FAILED, FINISHED, REJECTED
from specdec.v1 import generation_pb2 as pb


class Poll(NamedTuple):
    """A status and the time of its arrival, in seconds of a steady clock."""

    status: pb.PoolStatusResponse
    at_s: float


class Share(NamedTuple):
    """A part of a whole."""

    part: float
    whole: float

    def __str__(self) -> str:
        return f"{self.part / self.whole:.0%}" if self.whole else "-"


def share(counts: Growth, part: str, whole: str) -> Share:
    return Share(counts[part], counts[whole])


def totals(status: pb.PoolStatusResponse) -> Growth:
    """Return the growth since the start of the coordinators."""
    return so_far(of_cells(status, 0.0))


def lately(poll: Poll, earlier: Poll | None) -> Growth:
    """Return the growth between the polls. Without an earlier poll, return the totals."""
    if earlier is None:
        return totals(poll.status)
    return between(of_cells(*earlier), of_cells(*poll))


def finished(counts: Growth) -> dict[str, int]:
    """Return the number of ended requests by finish reason, zeros left out."""
    return _by_end(counts, FINISHED)


def refused(counts: Growth) -> dict[str, int]:
    """Return the number of requests that the coordinators refused, by reason."""
    return _by_end(counts, REJECTED)


def failed(counts: Growth) -> dict[str, int]:
    """Return the number of requests that a scheduler ended with an error, by kind."""
    return _by_end(counts, FAILED)


def _by_end(counts: Growth, prefix: str) -> dict[str, int]:
    names = sorted(name for name in counts.counts if str(name).startswith(prefix))
    return {str(name).removeprefix(prefix): int(counts[name]) for name in names if counts[name]}
