"""Displayed figures from totals: shares, and how requests ended. Pure."""

from __future__ import annotations

from typing import NamedTuple

from deployments.observability.metrics.rates import Growth, between, of_cells, so_far
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


def ends(counts: Growth, prefix: str) -> dict[str, int]:
    """Return the counters whose names start with `prefix`, by the rest of the name, without zeros.

    `prefix` is FINISHED (finish reasons), REJECTED (reasons of refusal) or FAILED (kinds of error).
    """
    names = sorted(name for name in counts.counts if str(name).startswith(prefix))
    return {str(name).removeprefix(prefix): int(counts[name]) for name in names if counts[name]}
