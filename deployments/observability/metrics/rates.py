"""Totals of a PoolStatus, and how fast they grow between two of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from specdec.v1 import generation_pb2 as pb

Source = str | int
Name = str | tuple[str, int]
"""Name of a total. Totals of a list have their index."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals that one source has counted in its generation so far."""

    counts: Mapping[Name, float]
    generation: Hashable = None
    """Identity of the generation. Without it, only a fallen total shows that a new one began."""


class Reading(NamedTuple):
    """All sources at one moment of a steady clock."""

    at_s: float
    sources: Mapping[Source, Totals]


@dataclass(frozen=True, slots=True)
class Growth:
    """Counts that were added in a number of seconds."""

    counts: Mapping[Name, float]
    seconds: float | None
    """Duration. None means since the beginning."""

    def __getitem__(self, name: Name) -> float:
        return self.counts.get(name, 0)

    def each(self, name: str) -> tuple[float, ...]:
        """Return the counts of a list, by index."""
        indices = [
            index[1] for index in self.counts if isinstance(index, tuple) and index[0] == name
        ]
        return tuple(self[name, index] for index in range(max(indices, default=-1) + 1))

    def per_second(self, count: float) -> float | None:
        return count / self.seconds if self.seconds else None


def so_far(reading: Reading) -> Growth:
    """Return the whole totals, summed over all sources."""
    return Growth(_sum(totals.counts for totals in reading.sources.values()), None)


def between(earlier: Reading, now: Reading) -> Growth:
    """Return the growth between two readings, summed over all sources."""
    return Growth(
        _sum(one.counts for one in by_source(earlier, now).values()), _seconds(earlier, now)
    )


def by_source(earlier: Reading, now: Reading) -> dict[Source, Growth]:
    """Return the growth of each source that is in both readings."""
    seconds = _seconds(earlier, now)
    return {
        source: Growth(_added(earlier.sources[source], totals), seconds)
        for source, totals in now.sources.items()
        if source in earlier.sources
    }


def _added(earlier: Totals, now: Totals) -> Mapping[Name, float]:
    has_fallen = any(now.counts.get(name, 0) < count for name, count in earlier.counts.items())
    if has_fallen or now.generation != earlier.generation:
        return now.counts
    return {name: count - earlier.counts.get(name, 0) for name, count in now.counts.items()}


def _seconds(earlier: Reading, now: Reading) -> float:
    return max(now.at_s - earlier.at_s, 1e-3)


def _sum(several: Iterable[Mapping[Name, float]]) -> Mapping[Name, float]:
    total: Counter[Name] = Counter()
    for counts in several:
        total.update(counts)
    return total


GROUP_SIZES = "group_sizes"
ACCEPTED = "accepted_per_position"
BUSY_S, ROWS = "busy_s", "num_rows"


def of_cells(status: pb.PoolStatusResponse, at_s: float) -> Reading:
    """Return a reading with cells as sources. Their generation is the coordinator's epoch."""
    return Reading(at_s, {one.cell: Totals(_counts(one), one.epoch) for one in _cells(status)})


def of_replicas(status: pb.PoolStatusResponse, at_s: float) -> Reading:
    """Return a reading with replica IDs as sources. The coordinator counts for a replica from its
    registration on."""
    generations = {one.cell: one.epoch for one in _cells(status)}
    return Reading(
        at_s,
        {
            one.replica_id: Totals(
                {BUSY_S: one.busy_s, ROWS: one.num_rows}, generations.get(one.cell)
            )
            for one in status.replicas
        },
    )


def _cells(status: pb.PoolStatusResponse) -> Iterable[pb.PoolStatusResponse]:
    return status.cells or [status]


def _counts(one: pb.PoolStatusResponse) -> Mapping[Name, float]:
    counts: dict[Name, float] = {name: count for name, count in one.counters.items()}
    for name in (GROUP_SIZES, ACCEPTED):
        counts |= {(name, index): count for index, count in enumerate(getattr(one, name))}
    return counts
