"""Selection of the ready rows for the next group of a replica: a pure choice among records.

Rows are kept by shape and by likeness, so that those of a group need little or no padding.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import islice

from specdec_core.scheduler.rows import Age, Likeness, ScheduledRow, Shape, rank_of


class LengthBuckets:
    """Index of rows, in order of age under each shape and under each likeness."""

    def __init__(self, max_size: int) -> None:
        """Groups have at most `max_size` rows."""
        self._max_size = max_size
        self._rows: dict[int, tuple[Shape, Likeness, Age]] = {}
        self._of_shape: dict[Shape, list[Age]] = {}
        self._full: set[Shape] = set()
        """Shapes with enough ready rows for a full group."""
        self._of_likeness: dict[Likeness, list[Age]] = {}
        self._likenesses: list[Likeness] = []
        """Sorted keys of `_of_likeness`."""

    @property
    def has_full(self) -> bool:
        """Whether a whole group of one shape is ready."""
        return bool(self._full)

    def put(self, shape: Shape, likeness: Likeness, age: Age) -> None:
        """Add the row of a sequence that has none here."""
        self._rows[age[2]] = shape, likeness, age
        bucket = self._of_shape.setdefault(shape, [])
        _insert(bucket, age)
        if len(bucket) == self._max_size:
            self._full.add(shape)
        if likeness not in self._of_likeness:
            self._of_likeness[likeness] = []
            insort(self._likenesses, likeness)
        _insert(self._of_likeness[likeness], age)

    def discard(self, sequence_id: int) -> None:
        """Remove a sequence's row."""
        shape, likeness, age = self._rows.pop(sequence_id)
        bucket = self._of_shape[shape]
        del bucket[bisect_left(bucket, age)]
        if len(bucket) < self._max_size:
            self._full.discard(shape)
        if not bucket:
            del self._of_shape[shape]
        alike = self._of_likeness[likeness]
        del alike[bisect_left(alike, age)]
        if not alike:
            del self._of_likeness[likeness]
            del self._likenesses[bisect_left(self._likenesses, likeness)]

    def largest_bucket(self) -> list[Age]:
        """Return a full group: the oldest rows of the most frequent shape."""
        buckets = (self._of_shape[shape] for shape in self._full)
        largest = min(buckets, key=lambda bucket: (-len(bucket), bucket[0]))
        return largest[: self._max_size]

    def by_likeness(self, origin: Likeness) -> Iterator[Age]:
        """Iterate over all rows by distance from `origin`, then by age.

        Second numbers count only among rows whose first number is equal.
        """
        keys = self._likenesses
        left = right = bisect_left(keys, origin)
        while left > 0 or right < len(keys):
            below = _distance(keys[left - 1], origin) if left > 0 else _FAR
            above = _distance(keys[right], origin) if right < len(keys) else _FAR
            if below < above:
                left -= 1
                yield from self._of_likeness[keys[left]]
            elif above < below:
                yield from self._of_likeness[keys[right]]
                right += 1
            else:
                left -= 1
                both = self._of_likeness[keys[left]], self._of_likeness[keys[right]]
                yield from heapq.merge(*both)
                right += 1


_FAR = (float("inf"), 0.0)
"""A distance greater than that of any row."""


def _distance(likeness: Likeness, other: Likeness) -> tuple[float, float]:
    return abs(likeness[0] - other[0]), abs(likeness[-1] - other[-1])


def _insert(ages: list[Age], age: Age) -> None:
    """Insert an age in order: nearly always at the end, because rows become ready in order."""
    if not ages or ages[-1] < age:
        ages.append(age)
    else:
        insort(ages, age)


_FEW = 4
"""A cohort is sorted if it is no larger than this factor times the rows that a search by likeness
would read."""
_SPARE = 64
"""Number of empty cohorts that are tolerated before all of them are removed."""


class DecodeQueue:
    """Plans of ready rows by age. A choice reads about one group of them, although thousands may be
    ready while 32 are wanted.

    The rows of one group become ready together and wait in a cohort. While rows are overdue, the
    cohorts alone decide the choice. New rows are entered by shape and likeness only when a choice
    needs that.
    """

    def __init__(self, max_size: int, by_shape: bool) -> None:
        """Groups have at most `max_size` rows. `by_shape`: see PoolConfig.group_by_shape."""
        self._max_size = max_size
        self._by_shape = by_shape
        self._cohorts: dict[float, dict[int, ScheduledRow]] = {}
        """Time since which rows are ready -> these rows, by sequence ID."""
        self.cohort_of: dict[int, dict[int, ScheduledRow]] = {}
        """Sequence ID -> the cohort that the sequence is in."""
        self._sinces: list[float] = []
        """Sorted keys of `_cohorts`, those of empty cohorts included."""
        self._unranked: set[float] = set()
        """Keys of the cohorts whose rows did not arrive in order of rank."""
        self._alike = LengthBuckets(max_size)
        self._to_enter: dict[int, ScheduledRow] = {}
        """Rows that are not yet in `_alike`; empty unless groups are formed by shape."""

    def __len__(self) -> int:
        return len(self.cohort_of)

    def __iter__(self) -> Iterator[ScheduledRow]:
        return (cohort[sequence_id] for sequence_id, cohort in self.cohort_of.items())

    @property
    def ready_since(self) -> float:
        """Time since which the oldest row is ready."""
        self._drop_empty()
        return self._sinces[0]

    def put(self, plan: ScheduledRow) -> None:
        """Add the plan of a sequence that has none here."""
        sequence = plan.sequence
        sequence_id, since = sequence.sequence_id, sequence.ready_since
        cohort = self._cohorts.get(since)
        if cohort is None:
            cohort = self._cohorts[since] = {}
            insort(self._sinces, since)
        elif cohort and sequence.rank < next(reversed(cohort.values())).sequence.rank:
            self._unranked.add(since)
        cohort[sequence_id] = plan
        self.cohort_of[sequence_id] = cohort
        if self._by_shape:
            self._to_enter[sequence_id] = plan

    def discard(self, sequence_id: int) -> None:
        """Remove the plan of a sequence that has one here."""
        del self.cohort_of.pop(sequence_id)[sequence_id]
        if self._by_shape and self._to_enter.pop(sequence_id, None) is None:
            self._alike.discard(sequence_id)

    def by_age(self) -> Iterator[ScheduledRow]:
        """Iterate over all rows, the oldest first. Rows that are not taken cost nothing."""
        self._drop_empty()
        for since in self._sinces:
            if since in self._unranked:
                self._rank(since)
            yield from self._cohorts[since].values()

    def choose(self, overdue_at: float) -> list[ScheduledRow]:
        """Return the rows of the next group, in no particular order.

        Unless groups are formed by shape, they are the oldest rows. By shape, rows that became
        ready at or before `overdue_at` come first. If none is overdue, a full group of one shape is
        chosen, or else the rows most like the oldest one. The oldest row is in every group, except
        in a full one of equal shape while it is not overdue. No row therefore waits for more than a
        bounded number of groups.
        """
        self._drop_empty()
        if len(self.cohort_of) <= self._max_size:
            return [plan for since in self._sinces for plan in self._cohorts[since].values()]
        if not self._by_shape:
            return self._oldest()
        is_overdue = self.ready_since <= overdue_at
        if not is_overdue and self._entered.has_full:
            return self._plans(self._entered.largest_bucket())
        return self._oldest_and_alike(overdue_at)

    def _oldest(self) -> list[ScheduledRow]:
        return list(islice(self.by_age(), self._max_size))

    def _rank(self, since: float) -> None:
        """Sort a cohort by rank, once for many choices. Its rows may be thousands."""
        self._unranked.discard(since)
        cohort = self._cohorts[since]
        by_rank = sorted(cohort.values(), key=rank_of)
        cohort.clear()
        cohort.update((plan.sequence.sequence_id, plan) for plan in by_rank)

    def _drop_empty(self) -> None:
        """Forget empty cohorts: the first ones now, the others once they are many."""
        sinces, cohorts = self._sinces, self._cohorts
        num_gone = 0
        while num_gone < len(sinces) and not cohorts[sinces[num_gone]]:
            del cohorts[sinces[num_gone]]
            self._unranked.discard(sinces[num_gone])
            num_gone += 1
        del sinces[:num_gone]
        if len(sinces) > 2 * len(self) + _SPARE:
            self._cohorts = {since: cohort for since, cohort in cohorts.items() if cohort}
            self._sinces = sorted(self._cohorts)
            self._unranked &= self._cohorts.keys()

    @property
    def _entered(self) -> LengthBuckets:
        """Index of all rows by shape and likeness, brought up to date."""
        for plan in self._to_enter.values():
            self._alike.put(plan.shape, plan.likeness, plan.age)
        self._to_enter.clear()
        return self._alike

    def _oldest_and_alike(self, overdue_at: float) -> list[ScheduledRow]:
        """Return the overdue rows by age, then the rows most like the oldest one.

        Of equally overdue rows, those most like the oldest one come first.
        """
        origin = min(self._cohorts[self._sinces[0]].values(), key=rank_of).likeness
        chosen: list[ScheduledRow] = []
        for since in self._sinces:
            if since > overdue_at or len(chosen) == self._max_size:
                break
            chosen += self._most_alike(origin, since, self._max_size - len(chosen))
        if len(chosen) == self._max_size:
            return chosen
        taken = {plan.sequence.sequence_id for plan in chosen}
        rest = (age for age in self._entered.by_likeness(origin) if age[2] not in taken)
        return chosen + self._plans(list(islice(rest, self._max_size - len(chosen))))

    def _most_alike(self, origin: Likeness, since: float, count: int) -> list[ScheduledRow]:
        """Return the `count` rows of a cohort that are most like `origin`.

        In a large cohort they are found faster by a search among all rows.
        """
        cohort = self._cohorts[since]
        if len(cohort) <= count:
            return list(cohort.values())
        if len(cohort) ** 2 <= _FEW * count * len(self):
            first, last = origin[0], origin[-1]  # as in _distance, without a call per row
            by_rank = sorted(cohort.values(), key=rank_of)  # nearly sorted, so fast; ties keep it
            return sorted(
                by_rank,
                key=lambda plan: (abs(plan.likeness[0] - first), abs(plan.likeness[-1] - last)),
            )[:count]
        ages = (age for age in self._entered.by_likeness(origin) if age[0] == since)
        return self._plans(list(islice(ages, count)))

    def _plans(self, ages: list[Age]) -> list[ScheduledRow]:
        return [self.cohort_of[sequence_id][sequence_id] for _, _, sequence_id in ages]
