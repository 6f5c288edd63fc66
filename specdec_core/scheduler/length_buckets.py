"""Ready rows by shape and by likeness: those that could share a pass with little or no padding."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator

Age = tuple[float, float, int]
"""(ready since, rank, sequence ID, which is the end of its rank). A lower age is older."""
Shape = tuple[int, ...]
Likeness = tuple[int, ...]
"""Sort key of one or two integers, compared by distance. The first integer counts first."""


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
