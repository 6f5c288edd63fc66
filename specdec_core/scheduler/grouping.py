"""Which ready rows make the next group of a replica: a pure choice among plain records."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter

from specdec_core.messages import LeaseRow
from specdec_core.scheduler import sequence as pool_sequence
from specdec_core.scheduler.length_buckets import Age, LengthBuckets, Likeness, Shape
from specdec_core.speculation.k_cause import DraftLengthReason

_FEW = 4
"""So many times the rows that are wanted are looked at one by one."""
_SPARE = 64
"""Empty cohorts are not counted below this."""


@dataclass(eq=False, slots=True)
class ScheduledRow:
    """What a sequence would be leased for now."""

    sequence: pool_sequence.Sequence
    row: LeaseRow
    """Made when it is planned, right behind the sequence's last round: by the time it is chosen
    thousands of others have pushed what it is made of out of the cache."""
    slot_len: int
    """Positions that the replica holds at most while it runs the row."""
    shape: Shape
    """Rows of equal shape need no padding and no mask of their own."""
    likeness: Likeness
    """Rows are alike as far as these numbers are near, the first one first."""
    is_resuming: bool = False
    """It checks what a client has brought back: as a catch-up, not as drafted tokens."""
    num_found: int = 0
    """New ids that the target has cached, as was known at version `found_at` (PrefixIndex)."""
    found_at: int = 0

    @property
    def end_len(self) -> int:
        """Committed tokens cached afterwards."""
        return self.row.end_len

    @property
    def num_drafted(self) -> int:
        """Positions fed behind `end_len`."""
        return self.slot_len - self.row.end_len

    @property
    def num_catching_up(self) -> int:
        """Ids that it feeds besides the pending one, drafted ones left out."""
        row = self.row
        return len(row.new_ids) - 1 + (len(row.proposal) if self.is_resuming else 0)

    @property
    def num_choices(self) -> int:
        return self.row.num_choices

    @property
    def proposal(self) -> tuple[int, ...]:
        return self.row.proposal

    def shortened(self, num_drafted: int) -> ScheduledRow:
        """The plan with fewer tokens to draft or to check."""
        row, excess = self.row, self.num_drafted - num_drafted
        row = row._replace(
            num_choices=row.num_choices - excess, proposal=row.proposal[:num_drafted]
        )
        slot_len = self.slot_len - excess
        return ScheduledRow(
            self.sequence, row, slot_len, self.shape, self.likeness, self.is_resuming
        )

    def note(self, cause: DraftLengthReason) -> None:
        """What decided how many drafted tokens it checks."""
        current = self.sequence.round
        if current is not None:
            current.cause = cause

    @property
    def age(self) -> Age:
        rank, sequence_id = self.sequence.rank
        return self.sequence.ready_since, rank, sequence_id


rank_of: Callable[[ScheduledRow], tuple[float, int]] = attrgetter("sequence.rank")


class DecodeQueue:
    """Plans by age, so that a choice looks at a group's worth of them: thousands may be ready while
    32 are wanted.

    Rows become ready together, as the group that they were, and wait in a cohort. While rows are
    overdue, cohorts alone say who goes: only a choice that goes by shape or likeness lets the rows
    that came since be entered by those, too.
    """

    def __init__(self, max_size: int, by_shape: bool) -> None:
        """Groups have at most `max_size` rows. `by_shape`: see PoolConfig.group_by_shape."""
        self._max_size = max_size
        self._by_shape = by_shape
        self._cohorts: dict[float, dict[int, ScheduledRow]] = {}
        """Ready since -> the rows, by sequence."""
        self.cohort_of: dict[int, dict[int, ScheduledRow]] = {}
        """Sequence -> the cohort that it is in."""
        self._sinces: list[float] = []
        """Of the cohorts, in order; also of those that are empty by now."""
        self._unranked: set[float] = set()
        """Of the cohorts whose rows did not come by rank."""
        self._alike = LengthBuckets(max_size)
        self._to_enter: dict[int, ScheduledRow] = {}
        """Not yet in `_alike`, where shapes are looked at."""

    def __len__(self) -> int:
        return len(self.cohort_of)

    def __iter__(self) -> Iterator[ScheduledRow]:
        return (cohort[sequence_id] for sequence_id, cohort in self.cohort_of.items())

    @property
    def ready_since(self) -> float:
        """Of the oldest row."""
        self._drop_empty()
        return self._sinces[0]

    def put(self, plan: ScheduledRow) -> None:
        """Add a sequence's plan, which has none here."""
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
        """Take a sequence's plan out, which has one here."""
        del self.cohort_of.pop(sequence_id)[sequence_id]
        if self._by_shape and self._to_enter.pop(sequence_id, None) is None:
            self._alike.discard(sequence_id)

    def by_age(self) -> Iterator[ScheduledRow]:
        """All rows; whoever takes the first ones only does not pay for the others."""
        self._drop_empty()
        for since in self._sinces:
            if since in self._unranked:
                self._rank(since)
            yield from self._cohorts[since].values()

    def choose(self, overdue_at: float) -> list[ScheduledRow]:
        """Rows ready at or before `overdue_at` first; else a full group of one shape; else alike.

        They are the group; their order says nothing.
        The oldest row is in every group but a full one of equal shape, and in that one too once it
        is overdue: no row waits for more than a bounded number of groups.
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
        """Once for many choices: thousands may have become ready together."""
        self._unranked.discard(since)
        cohort = self._cohorts[since]
        by_rank = sorted(cohort.values(), key=rank_of)
        cohort.clear()
        cohort.update((plan.sequence.sequence_id, plan) for plan in by_rank)

    def _drop_empty(self) -> None:
        """Forget the cohorts that have gone: the first ones now, others once they are many."""
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
        """All rows by shape and likeness."""
        for plan in self._to_enter.values():
            self._alike.put(plan.shape, plan.likeness, plan.age)
        self._to_enter.clear()
        return self._alike

    def _oldest_and_alike(self, overdue_at: float) -> list[ScheduledRow]:
        """Overdue rows by age, those that are equally overdue and the rest as like the oldest."""
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
        """Of rows that are equally old. Many of them are found faster among all rows."""
        cohort = self._cohorts[since]
        if len(cohort) <= count:
            return list(cohort.values())
        if len(cohort) ** 2 <= _FEW * count * len(self):
            first, last = origin[0], origin[-1]  # as Alike's, without a call per row
            by_rank = sorted(cohort.values(), key=rank_of)  # they came so: fast, and then kept
            return sorted(
                by_rank,
                key=lambda plan: (abs(plan.likeness[0] - first), abs(plan.likeness[-1] - last)),
            )[:count]
        ages = (age for age in self._entered.by_likeness(origin) if age[0] == since)
        return self._plans(list(islice(ages, count)))

    def _plans(self, ages: list[Age]) -> list[ScheduledRow]:
        return [self.cohort_of[sequence_id][sequence_id] for _, _, sequence_id in ages]
