"""Without a preference for equal shapes a group is the oldest rows, whatever their lengths."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_core.scheduler.ready_queue import DecodeQueue
from specdec_core.scheduler.rows import ScheduledRow
from tests.scheduler.cell import Cell, config, request
from tests.scheduler.fake_replica import info
from tests.scheduler.test_equal_length import lengths, row


def test_the_oldest_rows_go_first_though_others_are_alike() -> None:
    ready = DecodeQueue()
    for since, length in ((1, 5), (2, 70), (3, 9), (4, 9), (5, 9)):
        ready.put(row(since, length))
    assert lengths(ready.oldest(2)) == [5, 70]


def test_rows_of_one_age_go_by_rank() -> None:
    ready = DecodeQueue()
    rows = [row(1, length) for length in (50, 9, 51, 8)]
    for each in reversed(rows):
        ready.put(each)
    assert lengths(ready.oldest(2)) == [50, 9]


def test_the_pool_does_as_it_is_configured() -> None:
    cell = Cell(config(max_group_size=2, window=3, max_group_wait_s=10.0))
    cell.join(info())
    for i, length in enumerate((5, 9, 9)):
        cell.add(request(str(i), (1,) * length))
    cell.advance()
    assert [row.sequence_id for row in cell.leases[0].rows] == [0, 1]


@settings(max_examples=40)
@given(
    events=st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=60),
    max_size=st.integers(1, 4),
    order=st.randoms(use_true_random=False),
)
def test_rows_that_come_in_any_order_and_go_are_chosen_by_age(
    events: list[tuple[int, bool]], max_size: int, order: random.Random
) -> None:
    ready = DecodeQueue()
    rows: list[ScheduledRow] = []
    fresh = [row(float(since), 5) for since, _ in events]
    order.shuffle(fresh)
    for arriving, (since, leaves) in zip(fresh, events, strict=True):
        if leaves and rows:
            ready.discard(rows.pop(since % len(rows)).sequence.sequence_id)
        else:
            rows.append(arriving)
            ready.put(arriving)
        if rows:
            chosen = {each.age for each in ready.oldest(max_size)}
            assert chosen == set(sorted(each.age for each in rows)[:max_size])
