"""What the pool says of itself and of its replicas."""

from __future__ import annotations

from specdec_core.config import SchedulerConfig, SpecMethod
from specdec_core.messages import GroupLease, LeaseRow, Role
from specdec_core.request import FinishReason
from specdec_core.scheduler import ReplicaCounters, Scheduler
from specdec_core.scheduler.stats import SchedulerStats
from tests.scheduler.cell import Cell, config, request
from tests.scheduler.fake_replica import info


def test_a_replica_is_described_as_it_is() -> None:
    cell = Cell(config(window=2, max_group_size=2))
    cell.join(info("t1", num_blocks=50, block_size=4))
    for i in range(3):
        cell.add(request(str(i), (1, 2, 3, 4, 1), max_tokens=30))
    cell.turn()
    cell.turn()
    cell.advance()
    (described,) = cell.pool.counters().replicas
    assert described == ReplicaCounters(
        replica_id="t1",
        role=Role.TARGET,
        num_sequences=2,
        max_group_size=2,
        num_blocks=50,
        block_size=4,
        num_free_blocks=46,
        num_leases=2,
        num_rows=4,
        busy_s=0.002,
        is_fenced=False,
        is_draining=False,
    )
    cell.pool.drain("t1", cell.now)
    assert cell.pool.counters().replicas[0].is_draining


def test_waiting_and_running_requests_are_told_apart() -> None:
    cell = Cell(config(window=2, max_group_size=2))
    cell.join(info("t1"))
    for i in range(5):
        cell.add(request(str(i)))
    cell.advance()
    counters = cell.pool.counters()
    assert (counters.num_running, counters.num_waiting) == (2, 3)
    cell.run()
    counters = cell.pool.counters()
    assert (counters.num_running, counters.num_waiting) == (0, 0)
    assert counters.num_finished == {FinishReason.LENGTH: 5}
    assert counters.num_committed == 5 * 8
    assert counters.num_groups == sum(counters.group_sizes)


def test_what_waits_is_counted_in_tokens() -> None:
    cell = Cell(config(window=2, max_group_size=2))
    cell.join(info("t1"))
    for i in range(5):
        cell.add(request(str(i), (1,) * (i + 1)))
    cell.advance()
    assert cell.pool.counters().num_waiting_tokens == 3 + 4 + 5


def test_rows_without_a_draft_replica_are_counted_where_one_would_be_of_use() -> None:
    cell = Cell(config(SpecMethod.DRAFT_MODEL))
    cell.join(info("t1"))
    cell.add(request("a"))
    cell.add(request("plain", speculation_enabled=False))
    cell.advance()
    assert cell.pool.counters().num_undrafted == 1
    cell.join(info("d1", Role.DRAFT))
    cell.advance()
    counters = cell.pool.counters()
    assert counters.num_undrafted == 0
    assert [one.num_sequences for one in counters.replicas] == [2, 1]


def test_every_preemption_is_counted() -> None:
    """Three that fit only one at a time, once they have grown."""
    cell = Cell(config())
    cell.join(info(num_blocks=7, block_size=2))
    clients = [cell.add(request(str(i), (1, 2, 3, 4), max_tokens=8)) for i in range(3)]
    cell.run()
    by_request = [client.last.stats.num_preemptions for client in clients]  # type: ignore[union-attr]
    assert by_request == [0, 1, 2]
    assert cell.pool.counters().num_preemptions == 3


def test_drafted_and_accepted_tokens_are_counted_by_position() -> None:
    cell = Cell(config(SpecMethod.DRAFT_MODEL, num_draft_tokens=3))
    cell.join(info("target"))
    cell.join(info("draft", Role.DRAFT), agreement=0)
    cell.add(request("a", max_tokens=4))
    cell.run()
    counters = cell.pool.counters()
    # One plain token, then proposals of 2 and 1, as the budget allows, and one plain token.
    assert counters.drafted_per_position == (2, 1)
    assert counters.accepted_per_position == ()
    assert (counters.num_drafted, counters.num_accepted) == (3, 0)
    assert (counters.num_sequence_rounds, counters.num_proposed_rounds) == (4, 2)
    assert counters.num_draft_rows == 2


def test_rows_that_wait_for_a_draft_are_counted() -> None:
    """It does not answer; the target has answered all."""
    cell = Cell(config(SpecMethod.DRAFT_MODEL, max_group_size=1, max_open_leases=1))
    cell.join(info("target"))
    cell.join(info("draft", Role.DRAFT))
    for i in range(4):
        cell.add(request(str(i), max_tokens=9))
    for _ in range(8):
        cell.advance()
        if cell.links["target"].inbox:
            cell.handle("target")
            cell.deliver("target")
    assert len(cell.links["draft"].inbox) == 1
    assert cell.pool.counters().num_draft_queued == 3


def test_what_the_controller_believes_is_told() -> None:
    pool = Scheduler(SchedulerConfig(), epoch=1)
    assert "acceptance_draft_model" in pool.counters().k_policy


def test_a_request_has_its_number_while_it_lives() -> None:
    cell = Cell(config())
    cell.join(info())
    cell.add(request("a"))
    cell.add(request("b"))
    assert [cell.pool.sequence_id(name) for name in "abc"] == [0, 1, None]
    cell.run()
    assert cell.pool.sequence_id("a") is None


def lease(role: Role, *rows: LeaseRow) -> GroupLease:
    return GroupLease(lease_id=1, epoch=1, replica_id="r", role=role, rows=rows, ttl_s=1.0)


def row(num_new: int = 1, num_drafted: int = 0, num_choices: int = 1) -> LeaseRow:
    return LeaseRow(
        sequence_id=0,
        base_len=9,
        base_hash=0,
        new_ids=(1,) * num_new,
        proposal=(2,) * num_drafted,
        num_choices=num_choices,
    )


def test_waits_are_summed_and_the_longest_is_kept() -> None:
    stats = SchedulerStats()
    stats.record_group(lease(Role.TARGET, row(), row()), [1.0, 2.0])
    stats.record_group(lease(Role.TARGET, row()), [0.5])
    assert (stats.max_wait_s, stats.sum_wait_s) == (2.0, 3.5)


def test_a_draft_s_waits_are_those_of_rows_that_it_extends() -> None:
    stats = SchedulerStats()
    stats.record_draft_lease(lease(Role.DRAFT, row(num_choices=0), row(num_choices=3)), [5.0, 0.25])
    stats.record_draft_lease(lease(Role.DRAFT, row(num_choices=1)), [0.125])
    assert stats.max_draft_wait_s == 0.25
    assert stats.num_draft_rows == 2
    assert stats.max_wait_s == 0.0


def test_rows_of_a_group_are_equal_when_they_feed_equally_much() -> None:
    """Whether what they feed is committed or drafted."""
    stats = SchedulerStats()
    stats.record_group(lease(Role.TARGET, row(1, 2), row(2, 1), row(3, 0)), [0.0] * 3)
    assert stats.num_equal_length_groups == 1
    stats.record_group(lease(Role.TARGET, row(1, 2), row(1, 1)), [0.0] * 2)
    assert stats.num_equal_length_groups == 1


def test_a_wait_begins_when_the_row_is_ready() -> None:
    cell = Cell(config(window=2, max_group_size=1))
    cell.now = 1.0
    cell.join(info())
    cell.add(request("a"))
    cell.add(request("b"))
    cell.advance()
    cell.now = 3.0
    cell.handle("target")
    cell.deliver("target")
    cell.advance()
    assert cell.leases[-1].rows[0].sequence_id == 1
    counters = cell.pool.counters()
    assert (counters.max_wait_s, counters.sum_wait_s, counters.max_draft_wait_s) == (2.0, 2.0, 0.0)
