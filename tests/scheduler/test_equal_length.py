"""Grouping by equal length (EXSPEC): which rows share a pass, and that none waits for ever."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_core.messages import LeaseRow, Role
from specdec_core.scheduler.equal_length import choose_by_length
from specdec_core.scheduler.ready_queue import ReadyQueue
from specdec_core.scheduler.rows import ScheduledRow, age_of, plan_drafting
from specdec_core.scheduler.sequence import KVReservation, Sequence
from tests.scheduler.cell import Cell, config, request
from tests.scheduler.fake_replica import info

numbers = itertools.count()


def row(ready_since: float, length: int, num_fed: int = 1) -> ScheduledRow:
    sequence = Sequence(next(numbers), request("a"), 0.0)
    sequence.ready_since = ready_since
    lease_row = LeaseRow(sequence.sequence_id, length, 0, (1,), num_choices=num_fed)
    return ScheduledRow(sequence, lease_row, length + num_fed)


def choose_group(rows: list[ScheduledRow], max_size: int, overdue_at: float) -> list[ScheduledRow]:
    ready = ReadyQueue(Role.TARGET, max_size)
    for each in rows:
        ready.enqueue(each)
    return choose_by_length(ready, overdue_at)


def lengths(group: list[ScheduledRow]) -> list[int]:
    return [each.lease_row.base_len for each in group]


def test_all_rows_go_when_they_fit_one_group() -> None:
    rows = [row(3, 6), row(1, 5), row(2, 90)]
    assert sorted(lengths(choose_group(rows, 3, overdue_at=0))) == [5, 6, 90]


def test_a_full_group_of_equal_rows_goes_before_an_older_row() -> None:
    rows = [row(1, 5), row(2, 9), row(3, 9), row(4, 9, 2), row(5, 7)]
    assert lengths(choose_group(rows, 2, overdue_at=0)) == [9, 9]


def test_a_row_is_overdue_at_its_bound() -> None:
    rows = [row(1, 5), row(2, 9), row(3, 9)]
    assert lengths(choose_group(rows, 2, overdue_at=1)) == [5, 9]
    assert lengths(choose_group(rows, 2, overdue_at=0.5)) == [9, 9]


def test_the_largest_bucket_wins_among_full_ones() -> None:
    rows = [row(1, 5), row(2, 5), row(3, 9), row(4, 9), row(5, 9)]
    assert lengths(choose_group(rows, 2, overdue_at=0)) == [9, 9]


def test_otherwise_the_oldest_row_takes_those_of_similar_length() -> None:
    rows = [row(2, 90), row(1, 50), row(3, 52), row(4, 10), row(5, 49)]
    assert lengths(choose_group(rows, 3, overdue_at=0)) == [50, 49, 52]


def test_rows_of_a_draft_are_alike_if_it_drafts_as_many_tokens() -> None:
    ready = ReadyQueue(Role.DRAFT, 2)
    for since, num_tokens in enumerate((4, 1, 0, 3, 4)):
        sequence = Sequence(since, request("a", (1,) * 9), arrived_at=0.0)
        sequence.ready_since = float(since)
        reservation = KVReservation("draft", cached_len=8)
        ready.enqueue(plan_drafting(sequence, reservation, num_tokens, chunk=8))
    assert [row.num_choices for row in choose_by_length(ready, overdue_at=-1)] == [4, 4]
    ready.remove(4)
    assert [row.num_choices for row in choose_by_length(ready, overdue_at=-1)] == [4, 3]


def test_overdue_rows_go_first_by_age_and_the_rest_of_the_group_resembles_the_oldest() -> None:
    rows = [row(1, 50), row(2, 9), row(3, 7), row(4, 51), row(5, 7), row(6, 7)]
    assert lengths(choose_group(rows, 3, overdue_at=2)) == [50, 9, 51]


def test_rows_that_are_equally_overdue_keep_to_similar_lengths() -> None:
    rows = [row(1, 50), row(1, 9), row(1, 51), row(1, 8)]
    assert lengths(choose_group(rows, 2, overdue_at=2)) == [50, 51]


def test_of_many_rows_that_are_equally_overdue_the_same_go_as_of_few() -> None:
    """Many are looked for among all rows, few one by one."""
    oldest = row(1, 50)
    many = [row(2, (37 * number) % 401) for number in range(200)]
    later = [row(3, 50) for _ in range(20)]
    nearest = sorted(many, key=lambda one: abs(one.lease_row.base_len - 50))[:4]
    group = choose_group([oldest, *many, *later], 5, overdue_at=2)
    assert [one.sequence.sequence_id for one in group] == [
        one.sequence.sequence_id for one in (oldest, *nearest)
    ]


def test_a_full_group_of_equal_rows_goes_first_until_the_oldest_has_waited_its_bound() -> None:
    cell = Cell(config(max_group_size=2, window=3, max_group_wait_s=10.0, grouping="equal_length"))
    cell.join(info())
    for i, length in enumerate((5, 9, 9)):
        cell.add(request(str(i), (1,) * length))
    cell.advance()
    assert [row.sequence_id for row in cell.leases[0].rows] == [1, 2]


def test_equal_length_groups_are_formed_and_counted_when_lengths_allow() -> None:
    cell = Cell(config(max_group_size=4, window=16, max_group_wait_s=10.0, grouping="equal_length"))
    cell.join(info())
    for i in range(16):
        cell.add(request(str(i), (1,) * (3 + 2 * (i % 4)), max_tokens=2, seed=i))
    cell.run()
    counters = cell.pool.counters()
    assert counters.num_groups == counters.num_equal_length_groups == 8
    assert counters.group_sizes == (0, 0, 0, 0, 8)


def naive_group(rows: list[ScheduledRow], max_size: int, overdue_at: float) -> list[ScheduledRow]:
    """The rule, from the rows themselves."""
    by_age = sorted(rows, key=lambda each: each.age)
    if len(by_age) <= max_size:
        return by_age
    oldest = by_age[0]
    if oldest.sequence.ready_since > overdue_at:
        buckets: dict[tuple[int, ...], list[ScheduledRow]] = {}
        for each in by_age:
            buckets.setdefault((each.lease_row.base_len, each.slot_len), []).append(each)
        largest = max(buckets.values(), key=len)
        if len(largest) >= max_size:
            return largest[:max_size]

    def turn(each: ScheduledRow) -> tuple[float, int]:
        since = each.sequence.ready_since
        waited_from = since if since <= overdue_at else float("inf")
        return waited_from, abs(each.end_len - oldest.end_len)

    return sorted(by_age, key=turn)[:max_size]


@settings(max_examples=50)
@given(
    events=st.lists(
        st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(1, 2), st.booleans()),
        max_size=60,
    ),
    max_size=st.integers(1, 4),
    overdue_at=st.sampled_from([-1, 4, 9]),
    num_sinces=st.sampled_from([1, 2, 10]),
)
def test_rows_that_come_and_go_are_chosen_as_from_a_list_of_them(
    events: list[tuple[int, int, int, bool]], max_size: int, overdue_at: int, num_sinces: int
) -> None:
    ready, rows = ReadyQueue(Role.TARGET, max_size), []
    for since, length, num_fed, leaves in events:
        if leaves and rows:
            gone = rows.pop(since % len(rows))
            ready.remove(gone.sequence.sequence_id)
        else:
            rows.append(row(float(since % num_sinces), length, num_fed))
            ready.enqueue(rows[-1])
        chosen = choose_by_length(ready, overdue_at)
        expected = naive_group(rows, max_size, overdue_at)
        assert sorted(chosen, key=age_of) == sorted(expected, key=age_of)
    assert sorted(p.age for p in ready) == sorted(p.age for p in rows)
