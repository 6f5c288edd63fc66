"""What is shown of totals: shares, and how requests ended. Pure."""

from __future__ import annotations

from typing import NamedTuple

from deployments.observability.metrics.families.requests import FAILED, FINISHED, REJECTED
from deployments.observability.metrics.rates import Growth, between, so_far
from deployments.observability.metrics.status_totals import of_cells
from specdec.v1 import generation_pb2 as pb


class Poll(NamedTuple):
    """A status, and when it came by a steady clock."""

    status: pb.PoolStatusResponse
    at_s: float


class Share(NamedTuple):
    """So many of so many."""

    part: float
    whole: float

    def __str__(self) -> str:
        return f"{self.part / self.whole:.0%}" if self.whole else "-"


def share(counts: Growth, part: str, whole: str) -> Share:
    return Share(counts[part], counts[whole])


def totals(status: pb.PoolStatusResponse) -> Growth:
    """Since the start of the coordinators."""
    return so_far(of_cells(status, 0.0))


def lately(poll: Poll, earlier: Poll | None) -> Growth:
    """Between the polls; all of it where there is nothing to compare with."""
    if earlier is None:
        return totals(poll.status)
    return between(of_cells(*earlier), of_cells(*poll))


def finished(counts: Growth) -> dict[str, int]:
    """Requests by how they ended; those that did."""
    return _by_end(counts, FINISHED)


def refused(counts: Growth) -> dict[str, int]:
    """Requests that the coordinators did not take, by why."""
    return _by_end(counts, REJECTED)


def failed(counts: Growth) -> dict[str, int]:
    """Requests that a pool ended with an error, by its kind."""
    return _by_end(counts, FAILED)


def _by_end(counts: Growth, prefix: str) -> dict[str, int]:
    names = sorted(name for name in counts.counts if str(name).startswith(prefix))
    return {str(name).removeprefix(prefix): int(counts[name]) for name in names if counts[name]}
