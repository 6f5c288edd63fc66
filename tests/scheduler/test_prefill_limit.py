"""What a target is fed besides its rounds is limited, and no prompt starves another."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_core.config import SchedulerConfig, SpecMethod
from specdec_core.messages import GroupLease, Role
from specdec_core.sampling_params import SamplingParams
from specdec_core.scheduler import SendLease
from specdec_core.scheduler.ready_queue import (
    MAX_YIELD_S,
    YIELD_S_PER_TOKEN,
    ReadyQueue,
    prefill_key,
)
from specdec_core.scheduler.rows import plan_verification
from specdec_core.scheduler.sequence import KVReservation, Sequence
from tests.scheduler import invariants
from tests.scheduler.cell import Cell, config, request
from tests.scheduler.fake_replica import info
from tests.scheduler.test_grouping import simulate


def cell_of(**limits: float) -> Cell:
    cell = Cell(config(**limits))
    cell.join(info())
    return cell


def add(cell: Cell, *lengths: int, max_tokens: int = 8) -> None:
    """Requests named by their numbers."""
    for length in lengths:
        prompt = tuple(index % 5 for index in range(length))
        cell.add(request(str(len(cell.clients)), prompt, max_tokens))


def answer(cell: Cell) -> None:
    """The target runs its oldest lease; the pool hears of it and decides."""
    while not cell.links["target"].results:  # it may be told to free something first
        cell.handle("target")
    cell.deliver("target")
    cell.advance()


def fed(lease: GroupLease) -> dict[int, int]:
    """Sequence -> ids."""
    return {row.sequence_id: len(row.new_ids) for row in lease.rows}


def test_a_group_takes_the_oldest_prompts_that_fit_and_the_next_one_the_rest() -> None:
    cell = cell_of(max_prefill_tokens=8)
    add(cell, 5, 5, 5, 5)
    cell.advance()
    answer(cell)
    assert [fed(lease) for lease in cell.leases] == [{0: 5, 1: 5}, {0: 1, 1: 1, 2: 5, 3: 5}]


def test_without_a_limit_all_go_at_once() -> None:
    cell = cell_of()
    add(cell, 5, 5, 5, 5)
    cell.advance()
    assert fed(cell.leases[0]) == {0: 5, 1: 5, 2: 5, 3: 5}


def test_prompts_that_wait_keep_no_stream_from_its_seat() -> None:
    """They are older than the rows of streams, which have just been answered."""
    cell = cell_of(max_prefill_tokens=4, max_group_size=2, window=8)
    add(cell, 1, max_tokens=50)
    cell.turn()
    add(cell, 5, 5, 5, 5)
    cell.advance()
    cell.now = 1.0
    answer(cell)
    assert fed(cell.leases[-1]) == {0: 1, 2: 5}


def test_all_leases_that_are_open_count() -> None:
    cell = cell_of(max_prefill_tokens=8, max_group_size=1, window=8, max_open_leases=2)
    add(cell, 5, 7)
    cell.advance()
    cell.now = 1.0
    add(cell, 3)
    cell.advance()
    assert [fed(lease) for lease in cell.leases] == [{0: 5}]
    answer(cell)
    assert [fed(lease) for lease in cell.leases] == [{0: 5}, {1: 7}, {0: 1}]
    cell.now = 2.0
    answer(cell)
    assert [fed(lease) for lease in cell.leases][3:] == [{2: 3}]


def test_a_row_beyond_the_limit_goes_alone() -> None:
    cell = cell_of(max_prefill_tokens=3, max_open_leases=2)
    add(cell, 9)
    cell.advance()
    cell.now = 1.0
    add(cell, 2)
    cell.advance()
    assert [fed(lease) for lease in cell.leases] == [{0: 9}]


def test_a_row_beyond_the_limit_waits_for_others() -> None:
    cell = cell_of(max_prefill_tokens=3, max_open_leases=2, max_group_wait_s=0.0)
    add(cell, 2, 9)
    cell.advance()
    assert [fed(lease) for lease in cell.leases] == [{0: 2}]
    answer(cell)
    assert fed(cell.leases[1]) == {0: 1, 1: 9}


def test_nobody_overtakes_a_prompt_that_has_to_wait() -> None:
    cell = cell_of(max_prefill_tokens=8, max_open_leases=2)
    add(cell, 6, 6)
    cell.now = 1.0
    add(cell, 2)
    cell.advance()
    assert [fed(lease) for lease in cell.leases] == [{0: 6}]


def test_prompts_that_came_together_go_one_after_the_other() -> None:
    """By turns, both would have their first token as late as the last one."""
    cell = cell_of(max_prefill_tokens=4, prefill_chunk=4, max_group_wait_s=0.0)
    add(cell, 12, 12, max_tokens=1)
    cell.advance()
    for _ in range(5):
        cell.now += 1.0
        answer(cell)
    assert [fed(lease) for lease in cell.leases] == 3 * [{0: 4}] + [{1: 4}, {1: 8}]


@pytest.mark.parametrize("max_prefill_tokens", [None, 4])
def test_a_prompt_that_is_alone_goes_by_twice_as_much(max_prefill_tokens: int | None) -> None:
    """Nobody waits for its passes; once somebody may, they are as short as ever."""
    cell = cell_of(max_prefill_tokens=max_prefill_tokens, prefill_chunk=4, max_group_wait_s=0.0)
    add(cell, 30, max_tokens=1)
    cell.advance()
    answer(cell)
    assert [fed(lease) for lease in cell.leases] == [{0: 8}, {0: 8}]
    add(cell, 30, max_tokens=1)
    cell.now = 100.0
    answer(cell)
    answer(cell)
    assert [max(fed(lease).values()) for lease in cell.leases[2:]] == [4, 4]


def test_a_prompt_that_is_scored_does_not() -> None:
    """Its pass would report twice as many places, for which nobody has planned memory."""
    cell = cell_of(prefill_chunk=4)
    params = SamplingParams(max_tokens=1, num_prompt_logprobs=1)
    cell.add(replace(request("a", tuple(range(4)) * 4), params=params))
    cell.run()
    assert max(max(fed(lease).values()) for lease in cell.leases) == 5


def test_what_a_client_brings_back_does_not_either() -> None:
    cell = cell_of(prefill_chunk=4)
    cell.add(request("a", (0,) * 12, 20, resume=(1,) * 12))
    cell.run()
    assert [max(fed(lease).values()) for lease in cell.leases][:3] == [4, 4, 4]
    assert max(len(lease.rows[0].proposal) for lease in cell.leases) <= 4


@pytest.mark.parametrize(
    ("waited", "order"),
    [(0.9, [{0: 8}, {1: 3}, {0: 4}, {0: 4}]), (1.1, [{0: 8}, {0: 4}, {0: 4}, {1: 3}])],
)
def test_a_short_prompt_passes_a_long_one_that_has_begun_until_that_one_has_waited(
    waited: float, order: list[dict[int, int]]
) -> None:
    """`waited`: in units of what the long one yields for its 5 tokens more."""
    cell = cell_of(max_prefill_tokens=4, prefill_chunk=4, max_group_wait_s=0.0)
    add(cell, 16, max_tokens=1)
    cell.advance()
    cell.now = waited * (16 - 8 - 3) * YIELD_S_PER_TOKEN
    add(cell, 3, max_tokens=1)
    for _ in range(3):
        answer(cell)
    assert [fed(lease) for lease in cell.leases] == order


def test_no_prompt_is_so_long_that_it_waits_for_more_than_the_longest_yield() -> None:
    tokens = int(2 * MAX_YIELD_S / YIELD_S_PER_TOKEN)
    reservation = KVReservation("target", cached_len=0)
    turns = [
        prefill_key(plan_verification(Sequence(number, request("", ids), at), reservation, (), 8))
        for number, (ids, at) in enumerate([((1,) * tokens, 0.0), ((1,), MAX_YIELD_S)])
    ]
    assert turns[0] < turns[1]


@settings(max_examples=20)
@given(st.lists(st.tuples(st.floats(0, 20), st.integers(2, 4000)), min_size=1, max_size=30))
def test_rows_that_catch_up_are_kept_by_turn(arrivals: list[tuple[float, int]]) -> None:
    reservation = KVReservation("target", cached_len=0)
    ready = ReadyQueue(Role.TARGET, max_rows=30, max_prefill_tokens=10**6)
    plans = [
        plan_verification(Sequence(number, request("", (1,) * length), at), reservation, (), 8)
        for number, (at, length) in enumerate(arrivals)
    ]
    for plan in plans:
        ready.enqueue(plan)
    for plan in plans[::2]:
        ready.remove(plan.sequence.sequence_id)
    assert ready.prefill_rows(0) == sorted(plans[1::2], key=prefill_key)
    assert ready.num_ready == len(plans[1::2])
    assert [plan.sequence.sequence_id in ready for plan in plans] == [
        number % 2 == 1 for number in range(len(plans))
    ]


def test_while_all_that_are_ready_have_to_wait_nothing_is_sent_and_no_timer_runs() -> None:
    cell = cell_of(max_prefill_tokens=4, max_open_leases=2, lease_ttl_s=30.0)
    add(cell, 5, 5)
    cell.advance()
    cell.now = 1.0
    assert cell.advance() == []
    assert cell.pool.next_deadline() == 30.0


def test_a_request_that_was_aborted_counts_until_its_lease_is_answered() -> None:
    """The replica still runs it."""
    cell = cell_of(max_prefill_tokens=4, max_open_leases=2)
    add(cell, 5, 5)
    cell.advance()
    cell.pool.abort("0", cell.now)
    cell.advance()
    assert len(cell.leases) == 1
    answer(cell)
    assert fed(cell.leases[1]) == {1: 5}


@pytest.mark.parametrize("has_answered", [True, False])
def test_what_was_out_on_a_target_that_comes_back_counts_no_more(has_answered: bool) -> None:
    cell = cell_of(max_prefill_tokens=4, lease_ttl_s=1.0)
    add(cell, 5, 5)
    cell.advance()
    cell.now = 1.0
    cell.advance()
    while cell.links["target"].inbox:
        cell.handle("target")
    if not has_answered:
        cell.links["target"].results.popleft()
    while cell.links["target"].results:
        cell.deliver("target")
    cell.advance()
    assert fed(cell.leases[1]) == {0: 5}
    cell.run()


def test_rows_that_nobody_waits_for_count_too() -> None:
    cell = cell_of(max_prefill_tokens=8)
    cell.add(replace(request("bg", (1,) * 6), is_background=True))
    cell.add(replace(request("bg2", (1,) * 6), is_background=True))
    cell.advance()
    assert [fed(lease) for lease in cell.leases] == [{0: 6}]
    add(cell, 4)
    answer(cell)
    assert fed(cell.leases[1]) == {0: 1, 1: 6, 2: 4}


def test_where_blocks_are_short_no_more_goes_than_the_limit_lets() -> None:
    """0 is the last to be given a block, and there is none; 2 waits for 1, which is out."""
    cell = Cell(config(max_prefill_tokens=4, max_open_leases=2, max_group_wait_s=0.0))
    cell.join(info(num_blocks=5, block_size=4, max_model_len=20))
    cell.add(request("0", (1,) * 3, 12, priority=1))
    cell.turn()
    cell.turn()
    cell.now = 1.0
    add(cell, 5, 5)
    cell.advance()
    assert [fed(lease) for lease in cell.leases[2:]] == [{1: 5}]
    cell.run()
    invariants.check_empty(cell.pool)


def test_who_ranks_first_takes_the_place_of_others_only_within_the_limit() -> None:
    """As it does where those that were chosen got no blocks."""
    ready_queue = ReadyQueue(Role.TARGET, 8, max_prefill_tokens=4)
    reservation = KVReservation("target", cached_len=0)
    first = plan_verification(
        Sequence(0, request("0", (1,) * 5), arrived_at=0.0), reservation, (), 8
    )
    ready_queue.enqueue(first)
    assert ready_queue.first(num_in_flight=0) == [first]
    assert ready_queue.first(num_in_flight=1) == []


def test_the_first_tokens_of_prompts_come_in_turn_and_right() -> None:
    cell = cell_of(max_prefill_tokens=6, prefill_chunk=4, max_open_leases=2)
    add(cell, *[11] * 12)
    cell.run()
    for client in cell.clients.values():
        client.check_plain()
        assert client.last is not None
    invariants.check_empty(cell.pool)


ARRIVALS = st.lists(st.tuples(st.floats(0, 3), st.integers(1, 8)), min_size=1, max_size=25)


@settings(max_examples=8)
@given(
    arrivals=ARRIVALS,
    method=st.sampled_from(SpecMethod),
    max_open_leases=st.integers(1, 2),
)
def test_a_limit_that_nobody_reaches_changes_nothing(
    arrivals: list[tuple[float, int]], method: SpecMethod, max_open_leases: int
) -> None:
    """Where all have a seat: else those that catch up take theirs by turn, not by age."""
    told = []
    for limit in (None, 10**6):
        limits = config(method, max_group_size=8, window=8, prefill_chunk=6)
        limits = replace(limits, max_open_leases=max_open_leases, max_prefill_tokens=limit)
        cell = Cell(limits)
        cell.join(info("target"))
        cell.join(info("draft", Role.DRAFT))
        simulate(cell, arrivals, {"target": 0.05, "draft": 0.02})
        told.append(cell.leases)
    assert told[0] == told[1]


class TimedCell(Cell):
    """Its target runs one lease after the other: each id takes a second. Streams keep books."""

    def __init__(self, config: SchedulerConfig) -> None:
        super().__init__(config)
        self.join(info())
        self._coming: list[tuple[float, int]] = []
        self._free_at = 0.0
        self.told_at: dict[str, list[float]] = {}

    def pass_time(self, until: float) -> None:
        """Let things happen up to then, or until nothing is left to happen."""
        self._decide()
        while self._coming and self._coming[0][0] <= until:
            self.now, _ = heapq.heappop(self._coming)
            while not self.links["target"].results:  # it may be told to free something first
                self.handle("target")
            self.deliver("target")
            self._decide()
        self.now = max(self.now, until) if until < float("inf") else self.now

    def _decide(self) -> None:
        before = {key: len(client.token_ids) for key, client in self.clients.items()}
        for command in self.advance():
            if isinstance(command, SendLease):
                seconds = sum(len(row.new_ids) for row in command.lease.rows)
                self._free_at = max(self._free_at, self.now) + seconds
                heapq.heappush(self._coming, (self._free_at, command.lease.lease_id))
        for key, count in before.items():
            if len(self.clients[key].token_ids) > count:
                self.told_at.setdefault(key, []).append(self.now)


@settings(max_examples=8)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=9),
    limit=st.integers(10, 40),
    max_open_leases=st.integers(1, 2),
)
def test_between_two_tokens_of_a_stream_its_target_catches_up_within_the_limit(
    lengths: list[int], limit: int, max_open_leases: int
) -> None:
    """However many prompts come at once: a second each of the ids, one each of the rounds."""
    num_streams = 3
    cell = TimedCell(
        config(
            max_prefill_tokens=limit,
            prefill_chunk=10,
            max_group_size=16,
            window=16,
            max_open_leases=max_open_leases,
            max_group_wait_s=0.0,
        )
    )
    add(cell, *[1] * num_streams, max_tokens=200)
    cell.pass_time(50.0)
    began = cell.now
    add(cell, *lengths, max_tokens=1)
    cell.pass_time(float("inf"))
    num_rows = num_streams + len(lengths)
    for name in map(str, range(num_streams)):
        times = cell.told_at[name]
        gaps = [b - a for a, b in itertools.pairwise(times) if b > began]
        assert max(gaps) <= limit + num_rows
    assert all(client.last is not None for client in cell.clients.values())


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="max_prefill_tokens must be at least 1, got 0"):
        SchedulerConfig(max_prefill_tokens=0)


def test_the_wait_of_a_prompt_is_counted() -> None:
    cell = cell_of(max_prefill_tokens=4)
    add(cell, 5, 5)
    cell.advance()
    cell.now = 2.0
    answer(cell)
    assert cell.pool.counters().max_wait_s == 2.0


def test_behind_a_row_that_waits_those_that_only_decode_go_all_the_same() -> None:
    rows: Any = [SimpleNamespace(num_catching_up=count) for count in (3, 9, 1, 0)]
    ready = ReadyQueue(Role.TARGET, 8, max_prefill_tokens=5)
    assert ready._within_limit(rows, num_in_flight=1) == [rows[0], rows[3]]
