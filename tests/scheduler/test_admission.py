"""Who is admitted, when, and where; who is refused."""

from __future__ import annotations

import pytest

from specdec_core.errors import InvalidRequestError, QueueFullError
from specdec_core.request import ErrorKind, FinishReason
from specdec_core.scheduler import Scheduler, SequenceStatus
from specdec_core.scheduler.sequence import PRIORITY_STEP_S
from tests.scheduler.cell import Cell, config, request
from tests.scheduler.fake_replica import info


def running(cell: Cell) -> set[str]:
    waiting = SequenceStatus.WAITING
    status = {name: cell.pool.status(name) for name in cell.clients}
    return {name for name, s in status.items() if s is not None and s is not waiting}


def test_the_window_bounds_the_admitted_sequences_of_a_target() -> None:
    cell = Cell(config(window=2, max_group_size=2))
    cell.join(info("t1"))
    cell.join(info("t2"))
    for i in range(6):
        cell.add(request(str(i)))
    cell.advance()
    assert running(cell) == {"0", "1", "2", "3"}
    assert [r.num_sequences for r in cell.pool.counters().replicas] == [2, 2]


def test_of_equally_many_sequences_free_blocks_decide() -> None:
    cell = Cell(config())
    cell.join(info("t1", num_blocks=50))
    cell.join(info("t2", num_blocks=51))
    cell.join(info("t0", num_blocks=50))
    for i in range(3):
        cell.add(request(str(i)))
    cell.advance()
    rows = {lease.replica_id: lease.rows[0].sequence_id for lease in cell.leases}
    assert rows == {"t2": 0, "t0": 1, "t1": 2}


def places_of_four(num_blocks: int, prompt_len: int) -> dict[str, list[int]]:
    """Target -> its sequences: a request of so many tokens, then three short ones; blocks of 4."""
    cell = Cell(config())
    cell.join(info("t1", num_blocks=num_blocks))
    cell.join(info("t2", num_blocks=num_blocks))
    for i, length in enumerate((prompt_len, 4, 4, 4)):
        cell.add(request(str(i), prompt=(1,) * length))
    cell.advance()
    return {
        lease.replica_id: sorted(row.sequence_id for row in lease.rows) for lease in cell.leases
    }


def test_targets_with_room_have_as_many_sequences_each() -> None:
    """Whatever their lengths: groups are as full everywhere."""
    assert places_of_four(num_blocks=100, prompt_len=40) == {"t1": [0, 3], "t2": [1, 2]}


def test_a_target_that_is_half_full_is_spared() -> None:
    """Or its sequences would be preempted while another has blocks that nobody needs."""
    assert places_of_four(num_blocks=18, prompt_len=40) == {"t1": [0], "t2": [1, 2, 3]}


def test_where_all_are_half_full_free_blocks_decide() -> None:
    cell = Cell(config())
    cell.join(info("t1", num_blocks=18))
    cell.join(info("t2", num_blocks=18))
    for i, length in enumerate((48, 40, 4, 4)):
        cell.add(request(str(i), prompt=(1,) * length))
    cell.advance()
    on_t2 = [row.sequence_id for x in cell.leases if x.replica_id == "t2" for row in x.rows]
    assert sorted(on_t2) == [1, 2, 3]


def test_blocks_of_the_present_tokens_bound_admission_not_those_of_the_longest_output() -> None:
    cell = Cell(config())
    cell.join(info(num_blocks=10, block_size=4))
    for i in range(6):
        cell.add(request(str(i), prompt=(1,) * 8, max_tokens=30))
    cell.advance()
    # Four of two blocks each; the fifth would leave the others no block to grow into.
    assert len(running(cell)) == 4


def test_a_lower_priority_number_is_admitted_first() -> None:
    cell = Cell(config(window=1, max_group_size=1))
    cell.add(request("late", priority=1))
    cell.add(request("early", priority=0))
    cell.join(info())
    cell.advance()
    assert running(cell) == {"early"}


def test_waiting_long_enough_outweighs_priority() -> None:
    cell = Cell(config(window=1, max_group_size=1))
    cell.add(request("old", priority=1))
    cell.now = PRIORITY_STEP_S + 0.1
    cell.add(request("new", priority=0))
    cell.join(info())
    cell.advance()
    assert running(cell) == {"old"}


def test_one_more_than_max_queued_is_refused_with_a_hint() -> None:
    cell = Cell(config(max_queued=2))
    cell.add(request("0"))
    cell.add(request("1"))
    with pytest.raises(QueueFullError, match="2 requests are waiting, the limit is 2") as refused:
        cell.add(request("2"))
    assert refused.value.retry_after_s > 0
    assert cell.pool.status("2") is None


def test_a_request_that_fits_at_once_never_counts_as_queued() -> None:
    cell = Cell(config(max_queued=0, window=1, max_group_size=1))
    cell.join(info())
    client = cell.add(request("0"))
    with pytest.raises(QueueFullError):
        cell.add(request("1"))
    cell.run()
    client.check_plain()


def test_a_request_that_a_target_is_about_to_take_has_left_the_queue() -> None:
    cell = Cell(config(max_queued=1, window=1, max_group_size=1))
    cell.add(request("0"))
    cell.join(info())
    cell.add(request("1"))
    assert cell.pool.status("1") is SequenceStatus.WAITING
    with pytest.raises(QueueFullError):
        cell.add(request("2"))


def test_a_queue_that_is_just_full_admits_nobody_before_it_must() -> None:
    cell = Cell(config(max_queued=1, window=1, max_group_size=1))
    cell.join(info())
    cell.add(request("late", priority=1))
    cell.add(request("early", priority=0))
    assert running(cell) == {"early"}


def test_a_resumed_request_is_not_refused_for_a_full_queue() -> None:
    cell = Cell(config(max_queued=0))
    cell.add(request("0", emitted=(1,)))
    assert cell.pool.status("0") is SequenceStatus.WAITING


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "message"),
    [
        ((1,) * 15, 6, "prompt of 15 tokens and max_tokens 6 make 21, the limit is 20"),
        ((0, 5), 3, r"token id 5 is not in 0\.\.4"),
        ((1, -1), 3, r"token id -1 is not in 0\.\.4"),
    ],
)
def test_what_no_target_can_ever_run_is_refused(
    prompt: tuple[int, ...], max_tokens: int, message: str
) -> None:
    cell = Cell(config())
    cell.join(info("small", max_model_len=10))
    cell.join(info("large", max_model_len=20))
    with pytest.raises(InvalidRequestError, match=message):
        cell.add(request("a", prompt, max_tokens))
    assert not cell.pool.has_work


def test_capacity_counts_as_a_length_limit_too() -> None:
    cell = Cell(config())
    cell.join(info(num_blocks=2, block_size=4, max_model_len=100))
    with pytest.raises(InvalidRequestError, match="the limit is 9"):
        cell.add(request("a", (1,) * 5, 5))
    client = cell.add(request("b", (1,) * 5, 4))  # the ninth token is never fed
    cell.run()
    client.check_plain()
    assert client.reason is FinishReason.LENGTH


def test_without_a_target_a_request_waits_and_is_checked_at_admission() -> None:
    cell = Cell(config())
    hopeless = cell.add(request("long", (1,) * 15, 6))
    foreign = cell.add(request("foreign", (9,)))
    fine = cell.add(request("fine"))
    cell.advance()
    assert cell.pool.status("long") is SequenceStatus.WAITING
    cell.join(info(max_model_len=20))
    cell.run()
    assert hopeless.reason is foreign.reason is FinishReason.ERROR
    assert hopeless.last is not None
    assert "the limit is 20" in str(hopeless.last.error)
    assert hopeless.last.error_kind is ErrorKind.INVALID
    fine.check_plain()


def test_time_in_the_queue_is_reported() -> None:
    cell = Cell(config())
    client = cell.add(request())
    cell.now = 3.0
    cell.join(info())
    cell.run()
    assert client.last is not None
    assert client.last.stats is not None
    assert client.last.stats.queue_s == 3.0


def test_the_pool_reads_no_clock_and_starts_empty() -> None:
    pool = Scheduler(config(), epoch=1)
    assert not pool.has_work
    assert pool.advance(-5.0) == []
    assert pool.next_deadline() is None
