"""Grouping by equal length, as in EXSPEC: rows of a batch share a pass without padding."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from itertools import islice

from specdec_core.config import SchedulerConfig
from specdec_core.messages import Role
from specdec_core.scheduler.batch_rules import Choice, ReplicaLoad, fill_batch, hold_until
from specdec_core.scheduler.ready_queue import ReadyQueue
from specdec_core.scheduler.rows import Age, ScheduledRow, rank_of

_Shape = tuple[int, int, int]
"""Draft steps, first position and end of the slot. Rows of equal shape need no padding."""
_Length = tuple[int, int]
"""(draft steps, committed tokens in the end), compared by distance. The first integer counts
first."""
_FAR = (float("inf"), 0.0)
"""A distance greater than that of any row."""
_FEW = 4
"""Arrivals are sorted if they are no more than this factor times the rows that a search by length
would read."""


class EqualLength:
    """Batches rows of equal length where lengths allow, until other rows are overdue.

    Rows that have waited SchedulerConfig.max_group_wait_s are overdue and come first. If none is,
    a full batch of one shape is chosen, or else the rows closest in length to the oldest one. The
    oldest row is in every batch, except in a full one of equal shape while it is not overdue. No
    row therefore waits for more than a bounded number of batches.
    """

    def __init__(self, config: SchedulerConfig) -> None:
        self._max_wait_s = config.max_group_wait_s

    def choose(self, ready: ReadyQueue, replica: ReplicaLoad, now: float) -> Choice:
        held_until = hold_until(ready, replica, now, self._max_wait_s)
        if held_until is not None:
            return held_until
        return fill_batch(choose_by_length(ready, now - self._max_wait_s), ready, replica)


def choose_by_length(ready: ReadyQueue, overdue_at: float) -> list[ScheduledRow]:
    """Return up to one batch of decoding rows. Those ready since `overdue_at` are overdue."""
    decoding, count = ready.decoding, ready.max_rows
    if len(decoding) <= count:
        return decoding.oldest(count)
    is_overdue = decoding.ready_since <= overdue_at
    full = [] if is_overdue else _buckets(ready).full_batch()
    return full or _oldest_and_closest(ready, overdue_at)


def _oldest_and_closest(ready: ReadyQueue, overdue_at: float) -> list[ScheduledRow]:
    """Return the overdue rows by age, then the rows closest in length to the oldest one.

    Of equally overdue rows, those closest to the oldest one come first.
    """
    _, first = next(ready.decoding.arrivals())
    origin = _length(min(first.values(), key=rank_of), ready.role)
    chosen: list[ScheduledRow] = []
    for since, rows in ready.decoding.arrivals():
        num_free = ready.max_rows - len(chosen)
        if since > overdue_at or not num_free:
            break
        chosen += _closest(ready, origin, list(rows.values()), num_free)
    num_free = ready.max_rows - len(chosen)
    if num_free:
        taken = {row.sequence.sequence_id for row in chosen}
        buckets = _buckets(ready)
        rest = (age for age in buckets.by_distance(origin) if age[2] not in taken)
        chosen += buckets.rows(islice(rest, num_free))
    return chosen


def _closest(
    ready: ReadyQueue, origin: _Length, rows: list[ScheduledRow], count: int
) -> list[ScheduledRow]:
    """Return the `count` rows, of those that arrived at one time, closest in length to `origin`.

    Among many arrivals they are found faster by a search among all rows.
    """
    if len(rows) <= count:
        return rows
    if len(rows) ** 2 <= _FEW * count * len(ready.decoding):
        by_rank = sorted(rows, key=rank_of)  # nearly sorted, so fast; ties keep it
        (num_steps, length), is_draft = origin, ready.role is Role.DRAFT
        return sorted(  # as in _distance, without a call per row
            by_rank,
            key=lambda row: (
                abs(row.lease_row.num_choices - num_steps) if is_draft else 0,
                abs(row.lease_row.end_len - length),
            ),
        )[:count]
    buckets, since = _buckets(ready), rows[0].sequence.ready_since
    ages = (age for age in buckets.by_distance(origin) if age[0] == since)
    return buckets.rows(islice(ages, count))


def _buckets(ready: ReadyQueue) -> LengthBuckets:
    buckets = ready.decoding.index(lambda: LengthBuckets(ready.role, ready.max_rows))
    assert isinstance(buckets, LengthBuckets), "a queue has the index of one policy"
    return buckets


class LengthBuckets:
    """Index of rows: in order of age under each shape and under each length."""

    def __init__(self, role: Role, max_rows: int) -> None:
        """Batches have at most `max_rows` rows."""
        self._role = role
        self._max_rows = max_rows
        self._rows: dict[int, tuple[ScheduledRow, _Shape, _Length, Age]] = {}
        self._by_shape: dict[_Shape, list[Age]] = {}
        self._full: set[_Shape] = set()
        """Shapes with enough ready rows for a full batch."""
        self._by_length: dict[_Length, list[Age]] = {}
        self._lengths: list[_Length] = []
        """Sorted keys of `_by_length`."""

    def add(self, row: ScheduledRow) -> None:
        """See RowIndex."""
        length, age = _length(row, self._role), row.age
        shape = length[0], row.lease_row.base_len, row.slot_len
        self._rows[age[2]] = row, shape, length, age
        bucket = self._by_shape.setdefault(shape, [])
        _insert(bucket, age)
        if len(bucket) == self._max_rows:
            self._full.add(shape)
        if length not in self._by_length:
            self._by_length[length] = []
            insort(self._lengths, length)
        _insert(self._by_length[length], age)

    def discard(self, sequence_id: int) -> None:
        """See RowIndex."""
        _, shape, length, age = self._rows.pop(sequence_id)
        bucket = self._by_shape[shape]
        del bucket[bisect_left(bucket, age)]
        if len(bucket) < self._max_rows:
            self._full.discard(shape)
        if not bucket:
            del self._by_shape[shape]
        alike = self._by_length[length]
        del alike[bisect_left(alike, age)]
        if not alike:
            del self._by_length[length]
            del self._lengths[bisect_left(self._lengths, length)]

    def rows(self, ages: Iterable[Age]) -> list[ScheduledRow]:
        """Return the rows of these ages."""
        return [self._rows[sequence_id][0] for _, _, sequence_id in ages]

    def full_batch(self) -> list[ScheduledRow]:
        """Return a full batch, the oldest rows of the most frequent shape, or none if none is."""
        buckets = (self._by_shape[shape] for shape in self._full)
        largest = min(buckets, key=lambda bucket: (-len(bucket), bucket[0]), default=[])
        return self.rows(largest[: self._max_rows])

    def by_distance(self, origin: _Length) -> Iterator[Age]:
        """Iterate over all rows by distance from `origin`, then by age."""
        keys = self._lengths
        left = right = bisect_left(keys, origin)
        while left > 0 or right < len(keys):
            below = _distance(keys[left - 1], origin) if left > 0 else _FAR
            above = _distance(keys[right], origin) if right < len(keys) else _FAR
            if below < above:
                left -= 1
                yield from self._by_length[keys[left]]
            elif above < below:
                yield from self._by_length[keys[right]]
                right += 1
            else:
                left -= 1
                both = self._by_length[keys[left]], self._by_length[keys[right]]
                yield from heapq.merge(*both)
                right += 1


def _length(row: ScheduledRow, role: Role) -> _Length:
    num_steps = row.lease_row.num_choices if role is Role.DRAFT else 0
    return num_steps, row.lease_row.end_len


def _distance(length: _Length, other: _Length) -> tuple[float, float]:
    return abs(length[0] - other[0]), abs(length[1] - other[1])


def _insert(ages: list[Age], age: Age) -> None:
    """Insert an age in order: nearly always at the end, because rows become ready in order."""
    if not ages or ages[-1] < age:
        ages.append(age)
    else:
        insort(ages, age)
