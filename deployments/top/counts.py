"""What happened between two statuses of one life of the service. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

from specdec.v1 import generation_pb2 as pb

FINISHED = "num_finished_"


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


@dataclass(frozen=True, slots=True)
class Counts:
    """Totals, or what was added to them in some seconds."""

    counters: Mapping[str, int]
    group_sizes: tuple[int, ...]
    accepted: tuple[int, ...]
    seconds: float | None
    """None: since the start of the coordinators."""

    def __getitem__(self, name: str) -> int:
        return self.counters.get(name, 0)

    def share(self, part: str, whole: str) -> Share:
        return Share(self[part], self[whole])

    def per_second(self, count: float) -> float | None:
        return count / self.seconds if self.seconds else None

    @property
    def finished(self) -> dict[str, int]:
        """Requests by how they ended."""
        names = sorted(name for name in self.counters if name.startswith(FINISHED))
        return {name.removeprefix(FINISHED): self[name] for name in names if self[name]}


def totals(status: pb.PoolStatusResponse) -> Counts:
    sizes, accepted = tuple(status.group_sizes), tuple(status.accepted_per_position)
    return Counts(dict(status.counters), sizes, accepted, None)


def between(poll: Poll, earlier: Poll | None) -> Counts:
    """Totals where there is nothing to compare with: another life counts from 0."""
    now = totals(poll.status)
    if earlier is None or lives(poll.status) != lives(earlier.status):
        return now
    before = totals(earlier.status)
    counters = {name: count - before[name] for name, count in now.counters.items()}
    return Counts(
        counters,
        _minus(now.group_sizes, before.group_sizes),
        _minus(now.accepted, before.accepted),
        max(poll.at_s - earlier.at_s, 1e-3),
    )


def lives(status: pb.PoolStatusResponse) -> dict[int, int]:
    """Epochs of the coordinators that answered, by cell."""
    return {one.cell: one.epoch for one in status.cells or [status]}


def _minus(counts: Sequence[int], before: Sequence[int]) -> tuple[int, ...]:
    return tuple(a - b for a, b in zip_longest(counts, before, fillvalue=0))
