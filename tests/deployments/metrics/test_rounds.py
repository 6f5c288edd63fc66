"""Where a lease's time is booked: by hand on a clock of the test's, and over real streams."""

from __future__ import annotations

import asyncio

import pytest

from deployments.coordinator.driver import SchedulerDriver
from deployments.coordinator.streams import IngressOutbox, WorkOutbox
from deployments.observability.metrics.round_stages import LeaseTimes, Stage, StageHistograms
from specdec_core.messages import GroupLease, GroupResult, Role
from specdec_core.scheduler import Scheduler, SendLease
from tests.deployments.cell import Cell, cell, served
from tests.deployments.coordinator.test_cell import DRAFTING, PLAIN, collect, request
from tests.deployments.fake_replica import FakeReplica


class Clock:
    """Goes when the test says so."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def sums(stages: StageHistograms) -> dict[Stage, float]:
    return {stage: found.sum_s for (_, stage), found in stages.items() if sum(found.buckets)}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def stages() -> StageHistograms:
    return {}


def test_what_a_fenced_replica_has_not_answered_is_forgotten(
    clock: Clock, stages: StageHistograms
) -> None:
    """It skips what is void: nothing else would take it out of the book."""
    times = LeaseTimes(Role.TARGET, stages, clock)
    times.decided(7, received_s=100.0)
    times.sent(7)
    times.void()
    assert times.answered(7, came_s=100.064, pass_s=0.050, held_s=0.053) is None


def test_a_leases_time_is_booked_once(clock: Clock, stages: StageHistograms) -> None:
    times = LeaseTimes(Role.TARGET, stages, clock)
    times.decided(7, received_s=100.0)
    clock.now = 100.004
    times.sent(7)
    times.answered(7, came_s=100.064, pass_s=0.050, held_s=0.053)
    assert sums(stages) == pytest.approx(
        {
            Stage.SCHEDULE: 0.004,
            Stage.WIRE: 0.007,
            Stage.REPLICA: 0.003,
            Stage.VERIFY: 0.050,
            Stage.ADDED: 0.014,
        }
    )


def test_a_lease_that_followed_no_answer_was_not_held_up_by_the_schedule(
    clock: Clock, stages: StageHistograms
) -> None:
    times = LeaseTimes(Role.DRAFT, stages, clock)
    times.decided(7, received_s=None)
    times.sent(7)
    times.answered(7, came_s=100.020, pass_s=0.010, held_s=0.015)
    assert sums(stages) == pytest.approx(
        {Stage.WIRE: 0.005, Stage.REPLICA: 0.005, Stage.DRAFT: 0.010}
    )


def test_what_passes_while_another_lease_runs_is_added_to_no_round(
    clock: Clock, stages: StageHistograms
) -> None:
    times = LeaseTimes(Role.TARGET, stages, clock)
    for lease_id in (1, 2):
        times.decided(lease_id, received_s=99.0)
        times.sent(lease_id)
    times.answered(1, came_s=100.012, pass_s=0.010, held_s=0.010)
    times.answered(2, came_s=100.024, pass_s=0.010, held_s=0.011)
    assert sums(stages)[Stage.WIRE] == pytest.approx(0.002 + 0.001)
    assert sums(stages)[Stage.ADDED] == pytest.approx(1.002 + 0.002)


def test_an_answer_counts_once_and_only_to_a_lease_that_left(
    clock: Clock, stages: StageHistograms
) -> None:
    times = LeaseTimes(Role.TARGET, stages, clock)
    times.decided(1, received_s=None)
    times.decided(2, received_s=None)
    times.sent(2)
    for lease_id in (1, 2, 2, 3):
        times.answered(lease_id, came_s=101.0, pass_s=0.5, held_s=0.6)
    assert sum(stages[Role.TARGET, Stage.VERIFY].buckets) == 1


def mean(parts: Cell, stage: Stage) -> float:
    found = parts.driver.stages[Role.TARGET, stage]
    return found.sum_s / sum(found.buckets)


class Paced(FakeReplica):
    """Takes `takes_s` of `clock` for what it calls 10 ms."""

    def __init__(self, clock: Clock, takes_s: float) -> None:
        super().__init__(Role.TARGET)
        self._clock = clock
        self._takes_s = takes_s

    def execute(self, lease: GroupLease) -> GroupResult:
        self._clock.now += self._takes_s
        return super().execute(lease)._replace(seconds=0.01)


def pace_pool(parts: Cell, clock: Clock, takes_s: float) -> None:
    """Every decision takes `takes_s` of `clock`."""
    advance = parts.driver.scheduler.advance

    def paced(now: float) -> object:
        clock.now += takes_s
        return advance(now)

    parts.driver.scheduler.advance = paced  # type: ignore[method-assign,assignment]


@pytest.mark.parametrize(
    ("stage", "pass_takes_s", "decision_takes_s"),
    [(Stage.REPLICA, 0.03, 0.0), (Stage.SCHEDULE, 0.01, 0.02)],
)
async def test_who_is_slow_is_told(
    stage: Stage,
    pass_takes_s: float,
    decision_takes_s: float,
    clock: Clock,
) -> None:
    """On one clock of the test's: nothing else takes any time, however busy the machine is."""
    async with cell(PLAIN, clock=clock) as parts:
        pace_pool(parts, clock, decision_takes_s)
        parts.start_replica("t0", Role.TARGET, Paced(clock, pass_takes_s))
        client = await parts.client()
        await collect(client, request(num_tokens=8))
        others = {Stage.WIRE, Stage.REPLICA, Stage.SCHEDULE} - {stage}
        assert mean(parts, stage) == pytest.approx(0.02)
        # A heartbeat may have had a decision of its own while a pass was under way.
        assert all(mean(parts, other) < 0.01 for other in others)
        assert mean(parts, Stage.ADDED) >= 0.0199


async def test_every_lease_of_both_roles_is_booked() -> None:
    async with served(DRAFTING, has_draft=True) as (parts, client):
        while len(parts.driver.replicas) < 2:
            await asyncio.sleep(0.005)
        await collect(client, request(num_tokens=40))
        stages = parts.driver.stages
        for role, stage, name in (
            (Role.TARGET, Stage.VERIFY, "t0"),
            (Role.DRAFT, Stage.DRAFT, "d0"),
        ):
            num_leases = parts.replicas[name].num_leases
            assert sum(stages[role, stage].buckets) == num_leases > 0
            assert stages[role, stage].sum_s == pytest.approx(0.001 * num_leases)


async def test_the_next_lease_is_read_by_its_writer_before_the_tokens_of_the_last_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put: list[str] = []
    for outbox, name in ((WorkOutbox, "lease"), (IngressOutbox, "tokens")):
        original = outbox.put

        def noting(self: object, *item: object, original=original, name=name) -> None:  # type: ignore[no-untyped-def]
            put.append(name)
            original(self, *item)

        monkeypatch.setattr(outbox, "put", noting)
    driver = SchedulerDriver(Scheduler(PLAIN, epoch=1), epoch=1)
    running = asyncio.create_task(driver.run())
    fake = FakeReplica(Role.TARGET)
    replica = driver.register(fake.info("t0", 1))
    driver.submit(driver.attach(), request(), resume=False)
    for _ in range(3):
        (command,) = await replica.outbox.take() or ()
        put.append("read")
        assert isinstance(command, SendLease)
        driver.on_result(replica, fake.execute(command.lease), replica.occupancy)
    await replica.outbox.take()
    put.append("read")
    while put.count("tokens") < 3:
        await asyncio.sleep(0)
    running.cancel()
    assert put == ["lease", "read"] + ["lease", "read", "tokens"] * 3
