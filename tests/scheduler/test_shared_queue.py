"""A full queue: every client has its share of it, and whoever is refused learns when to return."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_core.errors import QueueFullError
from specdec_core.request import Request
from specdec_core.scheduler import SequenceStatus
from specdec_core.scheduler.fair_queue import (
    LONGEST_RETRY_S,
    RETRY_AFTER_S,
    RetryHint,
    most_waiting,
)
from tests.scheduler.cell import Cell, config, request
from tests.scheduler.fake_replica import info


def asked(request_id: str, client: str) -> Request:
    return replace(request(request_id), client=client)


def flooded(max_queued: int) -> Cell:
    cell = Cell(config(max_queued=max_queued))
    for number in range(max_queued):
        cell.add(asked(f"flood-{number}", "flood"))
    return cell


def test_a_client_that_fills_the_queue_does_not_keep_others_out() -> None:
    cell = flooded(10)
    with pytest.raises(QueueFullError):
        cell.add(asked("flood-10", "flood"))
    cell.add(asked("light", "light"))
    assert cell.pool.status("light") is SequenceStatus.WAITING


def test_beyond_its_share_a_client_is_refused_like_any_other() -> None:
    cell = flooded(10)
    for number in range(5):
        cell.add(asked(f"second-{number}", "second"))
    with pytest.raises(QueueFullError, match="15 requests are waiting, the limit is 10"):
        cell.add(asked("second-5", "second"))
    for number in range(4):
        cell.add(asked(f"third-{number}", "third"))
    with pytest.raises(QueueFullError):
        cell.add(asked("third-4", "third"))


def test_nobody_who_waits_is_refused_for_a_newcomer() -> None:
    cell = flooded(4)
    for number in range(2):
        cell.add(asked(f"second-{number}", "second"))
    for name in ("flood", "second"):
        with pytest.raises(QueueFullError):
            cell.add(asked("one more", name))
    cell.advance()
    assert all(cell.pool.status(name) is SequenceStatus.WAITING for name in cell.clients)
    cell.join(info())
    cell.run()
    for client in cell.clients.values():
        client.check_plain()


def test_without_a_queue_nobody_waits_in_it() -> None:
    cell = Cell(config(max_queued=0))
    with pytest.raises(QueueFullError):
        cell.add(asked("a", "one"))


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32), max_queued=st.integers(0, 5))
def test_the_queue_is_bounded_and_open_to_whoever_has_nothing_in_it(
    seed: int, max_queued: int
) -> None:
    """k clients: the first may have all places, the second half as many again, and so on."""
    random = Random(seed)
    steps = [(random.randrange(7), random.random() < 0.1) for _ in range(120)]
    cell = Cell(config(max_queued=max_queued))
    waiting: Counter[str] = Counter()
    for number, (client, leaves) in enumerate(steps):
        name = str(client)
        if leaves and waiting[name]:
            gone = next(k for k, c in cell.clients.items() if c.request.client == name)
            cell.pool.abort(gone, cell.now)
            cell.advance()
            del cell.clients[gone]
            waiting[name] -= 1
            continue
        was_empty = not waiting[name]
        with suppress(QueueFullError):
            cell.add(asked(f"r{number}", name))
            waiting[name] += 1
        assert waiting[name] or not (was_empty and max_queued)
        bound = sum(-(-max_queued // place) for place in range(1, 8))
        assert waiting.total() == cell.pool.num_waiting <= bound == most_waiting(max_queued, 7)


def test_whoever_is_refused_before_anything_is_known_hears_the_least() -> None:
    assert RetryHint().refused(5.0) == RETRY_AFTER_S


def test_the_hint_is_when_it_would_be_its_turn() -> None:
    hint = RetryHint()
    hint.note(32, is_waiting=True, now=0.0)  # into an empty pool: no measure
    for second in range(1, 11):
        hint.note(1, is_waiting=True, now=2.0 * second)
    assert [hint.refused(20.0) for _ in range(3)] == [2.0, 4.0, 6.0]
    hint.note(2, is_waiting=True, now=24.0)
    assert hint.refused(24.0) == 4.0, "of four that were refused two have found room"


def test_the_hint_has_a_least_and_a_most() -> None:
    hint = RetryHint()
    hint.note(0, is_waiting=True, now=0.0)
    hint.note(100, is_waiting=True, now=0.1)
    assert hint.refused(0.1) == RETRY_AFTER_S
    assert hint.refused(1e6) == LONGEST_RETRY_S


def test_a_hint_has_one_decimal() -> None:
    hint = RetryHint()
    hint.note(0, is_waiting=True, now=0.0)
    hint.note(3, is_waiting=True, now=10.0)
    assert hint.refused(10.0) == 3.3


def test_an_empty_queue_forgets_its_rate() -> None:
    hint = RetryHint()
    hint.note(0, is_waiting=True, now=0.0)
    hint.note(1, is_waiting=True, now=50.0)
    hint.note(1, is_waiting=False, now=51.0)
    hint.note(0, is_waiting=True, now=5000.0)
    assert hint.refused(5000.0) == RETRY_AFTER_S


def test_the_rate_is_that_of_late() -> None:
    """A queue that stood for long and then moves fast is not taken for a slow one."""
    hint, now = RetryHint(), 0.0
    hint.note(0, is_waiting=True, now=now)
    for _ in range(100):
        now += 10.0
        hint.note(1, is_waiting=True, now=now)
    for _ in range(2000):
        now += 0.1
        hint.note(1, is_waiting=True, now=now)
    assert [hint.refused(now) for _ in range(20)][-1] <= 3.0


def test_a_pool_tells_how_fast_its_queue_moves() -> None:
    cell = Cell(config(max_queued=30, window=1, max_group_size=1))
    cell.join(info())
    for number in range(31):
        cell.add(replace(asked(str(number), "one"), params=request(max_tokens=1).params))
    for _ in range(10):  # each turn one request is answered
        cell.turn()
        cell.now += 3.0
    cell.advance()
    while cell.pool.num_waiting < 30:
        cell.add(asked(f"more-{cell.pool.num_waiting}", "one"))
    with pytest.raises(QueueFullError) as refused:
        cell.add(asked("late", "one"))
    assert 2.0 <= refused.value.retry_after_s <= 4.0
