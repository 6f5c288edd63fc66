"""Which ready rows make the next group of a replica: a pure choice among plain records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from specdec_core.pool import sequence as pool_sequence


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
    likeness: tuple[int, ...]
    """Rows are alike as far as these numbers are near, the first one first."""
    num_scored: int = 0
    """Prompt tokens among the new ids, behind the first, to report log-probabilities of."""

    @property
    def slot_len(self) -> int:
        """Positions that the replica holds at most while it runs the row."""
        return self.end_len + self.num_drafted

    @property
    def ready_since(self) -> float:
        return self.sequence.ready_since


def choose_group(plans: Iterable[RowPlan], max_size: int, overdue_at: float) -> list[RowPlan]:
    """Rows ready at or before `overdue_at` first; else a full group of equal shape; else alike.

    The oldest row is in every group but a full one of equal shape, and in that one too once it is
    overdue: no row waits for more than a bounded number of groups.
    """
    by_age = sorted(plans, key=_age)
    if len(by_age) <= max_size:
        return by_age
    oldest = by_age[0]
    if oldest.ready_since > overdue_at:
        bucket = _largest_bucket(by_age)
        if len(bucket) >= max_size:
            return bucket[:max_size]

    def turn(plan: RowPlan) -> tuple[float, tuple[int, ...]]:
        waited_from = plan.ready_since if plan.ready_since <= overdue_at else float("inf")
        return waited_from, _distance(plan, oldest)

    return sorted(by_age, key=turn)[:max_size]


def _age(plan: RowPlan) -> tuple[float, tuple[float, int]]:
    return plan.ready_since, plan.sequence.rank


def _largest_bucket(by_age: list[RowPlan]) -> list[RowPlan]:
    buckets: defaultdict[tuple[int, ...], list[RowPlan]] = defaultdict(list)
    for plan in by_age:
        buckets[plan.shape].append(plan)
    return max(buckets.values(), key=len)


def _distance(plan: RowPlan, other: RowPlan) -> tuple[int, ...]:
    return tuple(abs(a - b) for a, b in zip(plan.likeness, other.likeness, strict=True))
