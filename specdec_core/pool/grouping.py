"""Which ready rows make the next group of a replica: a pure choice among plain records."""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple, TypeVar

from specdec_core.pool import sequence as pool_sequence

Age = tuple[float, tuple[float, int]]
"""(ready since, rank): the lower, the older. The rank ends with the sequence's id."""
Likeness = tuple[int, ...]
_Entry = tuple[Likeness, Age]
_Item = TypeVar("_Item", Age, _Entry)
_FEW = 4
"""So many times the rows that are wanted are looked at one by one."""


class RowPlan(NamedTuple):
    """What a sequence would be leased for now."""

    sequence: pool_sequence.Sequence
    base_len: int
    end_len: int
    """Committed tokens cached afterwards."""
    num_choices: int
    proposal: tuple[int, ...]
    num_drafted: int
    """Positions fed behind `end_len`."""
    shape: tuple[int, ...]
    """Rows of equal shape need no padding and no mask of their own."""
    likeness: Likeness
    """Rows are alike as far as these numbers are near, the first one first."""
    num_scored: int = 0
    """Prompt tokens among the new ids, behind the first, to report log-probabilities of."""

    @property
    def slot_len(self) -> int:
        """Positions that the replica holds at most while it runs the row."""
        return self.end_len + self.num_drafted

    @property
    def age(self) -> Age:
        return self.sequence.ready_since, self.sequence.rank


def rank_of(plan: RowPlan) -> tuple[float, int]:
    return plan.sequence.rank


class ReadyRows:
    """Plans in the orders that groups are chosen by, so that a choice looks at a group's worth of
    them: thousands may be ready while 32 are wanted."""

    def __init__(self, max_size: int) -> None:
        """Groups have at most `max_size` rows."""
        self._max_size = max_size
        self._plans: dict[int, tuple[RowPlan, Age]] = {}
        self._ages: list[Age] = []
        self._alike: list[_Entry] = []
        self._buckets: dict[tuple[int, ...], list[Age]] = {}
        """By shape."""
        self._full: set[tuple[int, ...]] = set()
        """Shapes of which a whole group is ready."""

    def __len__(self) -> int:
        return len(self._plans)

    def __iter__(self) -> Iterator[RowPlan]:
        return (plan for plan, _ in self._plans.values())

    @property
    def ready_since(self) -> float:
        """Of the oldest row."""
        return self._ages[0][0]

    def put(self, plan: RowPlan) -> None:
        """Add a sequence's plan, which has none here."""
        age = plan.age
        self._plans[plan.sequence.sequence_id] = plan, age
        insort(self._ages, age)
        insort(self._alike, (plan.likeness, age))
        bucket = self._buckets.setdefault(plan.shape, [])
        insort(bucket, age)
        if len(bucket) == self._max_size:
            self._full.add(plan.shape)

    def discard(self, sequence_id: int) -> None:
        """Take a sequence's plan out, if it has one."""
        if sequence_id not in self._plans:
            return
        plan, age = self._plans.pop(sequence_id)
        _remove(self._ages, age)
        _remove(self._alike, (plan.likeness, age))
        bucket = self._buckets[plan.shape]
        _remove(bucket, age)
        if len(bucket) < self._max_size:
            self._full.discard(plan.shape)
        if not bucket:
            del self._buckets[plan.shape]

    def choose(self, overdue_at: float) -> list[RowPlan]:
        """Rows ready at or before `overdue_at` first; else a full group of one shape; else alike.

        The oldest row is in every group but a full one of equal shape, and in that one too once it
        is overdue: no row waits for more than a bounded number of groups.
        """
        if len(self) <= self._max_size:
            ages: Iterable[Age] = self._ages
        elif self.ready_since > overdue_at and self._full:
            ages = islice(self._largest_bucket(), self._max_size)
        else:
            ages = self._oldest_and_alike(overdue_at)
        return [self._plans[sequence_id][0] for _, (_, sequence_id) in ages]

    def _largest_bucket(self) -> list[Age]:
        buckets = (self._buckets[shape] for shape in self._full)
        return min(buckets, key=lambda bucket: (-len(bucket), bucket[0]))

    def _oldest_and_alike(self, overdue_at: float) -> list[Age]:
        """Overdue rows by age, those that are equally overdue and the rest as like the oldest."""
        origin = self._plan_of(self._ages[0]).likeness
        num_overdue = bisect_right(self._ages, overdue_at, key=_since)
        chosen: list[Age] = []
        while len(chosen) < min(num_overdue, self._max_size):
            end = bisect_right(self._ages, _since(self._ages[len(chosen)]), key=_since)
            room = self._max_size - len(chosen)
            chosen += self._most_alike(origin, self._ages[len(chosen) : end], room)
        taken = set(chosen)
        rest = (age for age in self._by_likeness(origin) if age not in taken)
        return chosen + list(islice(rest, self._max_size - len(chosen)))

    def _most_alike(self, origin: Likeness, ages: list[Age], count: int) -> list[Age]:
        """Of rows that are equally old. Many of them are found faster among all rows."""
        if len(ages) <= _FEW * count:
            near = [(_distance(self._plan_of(age).likeness, origin), age) for age in ages]
            return [age for _, age in heapq.nsmallest(count, near)]
        wanted = set(ages)
        return list(islice((age for age in self._by_likeness(origin) if age in wanted), count))

    def _by_likeness(self, origin: Likeness) -> Iterator[Age]:
        """All rows, by distance from `origin` and then by age; of numbers behind the first, those
        count only among rows whose first one is equal."""
        alike = self._alike
        left = right = bisect_left(alike, origin, key=_likeness)
        while left > 0 or right < len(alike):
            below = _distance(alike[left - 1][0], origin) if left > 0 else _FAR
            above = _distance(alike[right][0], origin) if right < len(alike) else _FAR
            start, end = left, right
            if below <= above:
                start = bisect_left(alike, alike[left - 1][0], key=_likeness)
            if above <= below:
                end = bisect_right(alike, alike[right][0], key=_likeness)
            yield from heapq.merge(map(_age, alike[start:left]), map(_age, alike[right:end]))
            left, right = start, end

    def _plan_of(self, age: Age) -> RowPlan:
        return self._plans[age[1][1]][0]


_FAR = (float("inf"),)
"""Farther than any row."""


def _since(age: Age) -> float:
    return age[0]


def _likeness(entry: _Entry) -> Likeness:
    return entry[0]


def _age(entry: _Entry) -> Age:
    return entry[1]


def _remove(ordered: list[_Item], item: _Item) -> None:
    del ordered[bisect_left(ordered, item)]


def _distance(likeness: Likeness, other: Likeness) -> tuple[float, ...]:
    return tuple([abs(a - b) for a, b in zip(likeness, other, strict=True)])
