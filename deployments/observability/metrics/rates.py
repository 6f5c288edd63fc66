"""What was added to totals between two readings of them, and how fast, restarts included. Pure.

Whoever counts is a source, and begins at 0 with each of its lives. Another life, or a total that
has fallen, means that everything it has now was added since the earlier reading. Of a source that
was not read earlier nothing is known: what it has may be old.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

Source = str | int
Name = str | tuple[str, int]
"""Of a total; those of a list have their index."""


@dataclass(frozen=True, slots=True)
class Totals:
    """What one source has counted in its life so far."""

    counts: Mapping[Name, float]
    life: Hashable = None
    """None: only totals that fall tell a new one."""


class Reading(NamedTuple):
    """All sources at one moment of a steady clock."""

    at_s: float
    sources: Mapping[Source, Totals]


@dataclass(frozen=True, slots=True)
class Growth:
    """What came in some seconds."""

    counts: Mapping[Name, float]
    seconds: float | None
    """None: since the beginning."""

    def __getitem__(self, name: Name) -> float:
        return self.counts.get(name, 0)

    def each(self, name: str) -> tuple[float, ...]:
        """Of a list, by index."""
        places = [
            place[1] for place in self.counts if isinstance(place, tuple) and place[0] == name
        ]
        return tuple(self[name, place] for place in range(max(places, default=-1) + 1))

    def per_second(self, count: float) -> float | None:
        return count / self.seconds if self.seconds else None


def so_far(reading: Reading) -> Growth:
    """Everything, of all sources together."""
    return Growth(_sum(totals.counts for totals in reading.sources.values()), None)


def between(earlier: Reading, now: Reading) -> Growth:
    """Of all sources together."""
    return Growth(
        _sum(one.counts for one in by_source(earlier, now).values()), _seconds(earlier, now)
    )


def by_source(earlier: Reading, now: Reading) -> dict[Source, Growth]:
    """Of each that was read both times."""
    seconds = _seconds(earlier, now)
    return {
        source: Growth(_added(earlier.sources[source], totals), seconds)
        for source, totals in now.sources.items()
        if source in earlier.sources
    }


def _added(earlier: Totals, now: Totals) -> Mapping[Name, float]:
    has_fallen = any(now.counts.get(name, 0) < count for name, count in earlier.counts.items())
    if has_fallen or now.life != earlier.life:
        return now.counts
    return {name: count - earlier.counts.get(name, 0) for name, count in now.counts.items()}


def _seconds(earlier: Reading, now: Reading) -> float:
    return max(now.at_s - earlier.at_s, 1e-3)


def _sum(several: Iterable[Mapping[Name, float]]) -> Mapping[Name, float]:
    total: Counter[Name] = Counter()
    for counts in several:
        total.update(counts)
    return total
