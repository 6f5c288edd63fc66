"""A driver asks its pool by the deadline that holds, and after each answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from deployments.coordinator.connections import ConnectedReplica
from deployments.coordinator.driver import SchedulerDriver
from deployments.coordinator.service import CoordinatorServicer
from deployments.coordinator.streams import WorkOutbox
from specdec.v1 import coordination_pb2 as pb
from specdec_core.config import SchedulerConfig
from specdec_core.messages import Role
from specdec_core.request import FinishReason, Request
from specdec_core.sampling_params import SamplingParams
from specdec_core.scheduler import Scheduler
from tests.deployments.fake_replica import FakeReplica
from tests.deployments.outboxes import taken, told


class ClockedPool:
    """Notes when it is asked; its deadline is what the test says."""

    def __init__(self, deadline: float) -> None:
        self.deadline: float | None = deadline
        self.asked_s: list[float] = []

    def advance(self, now: float) -> tuple[()]:
        self.asked_s.append(now)
        if self.deadline is not None and now >= self.deadline:
            self.deadline = None
        return ()

    def next_deadline(self) -> float | None:
        return self.deadline

    def drain(self, replica_id: str, now: float) -> None:
        """An event that changes nothing else."""


def met_after(first_s: float, then_s: float) -> tuple[float, list[float]]:
    """Of a pool whose deadline an event moves from `first_s` to `then_s`: what it was, and when
    the pool was asked."""
    started = time.monotonic()
    pool: Any = ClockedPool(started + first_s)

    async def scenario() -> None:
        driver = SchedulerDriver(pool, epoch=1)
        running = asyncio.create_task(driver.run())
        await _until(lambda: len(pool.asked_s) == 1)
        pool.deadline = started + then_s
        driver.drain(cast(Any, _Draft()))
        await _until(lambda: pool.deadline is None)
        running.cancel()

    asyncio.run(asyncio.wait_for(scenario(), 30))
    return started + then_s, pool.asked_s


class _Draft:
    info = SimpleNamespace(replica_id="r", role=Role.DRAFT)
    may_leave = False


async def _until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.001)


def test_a_deadline_that_moved_on_is_met_and_asked_for_in_vain_once_at_most() -> None:
    deadline, asked_s = met_after(0.2, 0.4)
    assert asked_s[-1] >= deadline
    # At the start, at the event, at the first deadline in vain, and by a clock that is coarse.
    assert len(asked_s) <= 6


def test_a_deadline_that_came_nearer_is_not_slept_through() -> None:
    deadline, asked_s = met_after(3600, 0.2)
    assert asked_s[-1] >= deadline


async def test_a_replica_that_answered_is_given_work_before_the_next_answer_is_read() -> None:
    log: list[str] = []

    class Pool(ClockedPool):
        def advance(self, now: float) -> tuple[()]:
            log.append("decided")
            return super().advance(now)

    class Driver(SchedulerDriver):
        def on_result(self, replica: ConnectedReplica, *_: object) -> None:
            log.append(replica.info.replica_id)

    async def answers() -> AsyncIterator[pb.WorkUp]:
        yield pb.WorkUp(result=pb.GroupResult())
        await asyncio.Event().wait()

    pool: Any = Pool(deadline=time.monotonic() + 3600)
    driver = Driver(pool, epoch=1)
    servicer = CoordinatorServicer(driver)
    tasks = [asyncio.create_task(driver.run())]
    await _until(lambda: bool(log))
    log.clear()
    for name in ("first", "second", "third"):
        info = FakeReplica(Role.TARGET).info(name, 1)
        replica = SimpleNamespace(info=info, outbox=WorkOutbox())
        reading = servicer._read_results(answers(), cast(Any, replica))
        tasks.append(asyncio.create_task(reading))
    await _until(lambda: len(log) == 6)
    for task in tasks:
        task.cancel()
    assert log == ["first", "decided", "second", "decided", "third", "decided"]


def test_the_name_of_an_aborted_request_is_free_before_its_end_is_told() -> None:
    """Abort and submission come in one turn of the loop, in which the pool decides nothing."""
    driver = SchedulerDriver(Scheduler(SchedulerConfig(), epoch=1), epoch=1, clock=lambda: 1.0)
    params = SamplingParams(max_tokens=100)
    request = Request(request_id="a", prompt_token_ids=(1, 2, 3), params=params)
    one, other = driver.attach(), driver.attach()
    driver.submit(one, request, resume=False)
    driver.submit(other, request, resume=False)
    assert [failure is None for _, failure in told(other)] == [False]
    driver.abort(one, "a")
    driver.submit(other, request, resume=False)
    assert [event.finish_reason for event, _ in told(one)] == [FinishReason.ABORT]
    assert not told(other)
    assert driver.scheduler.status("a") is not None
    assert driver.requests.keys_of(other) == ["a"]


def test_a_request_that_is_submitted_again_is_answered_over_its_new_stream() -> None:
    """Its ingress is back before the coordinator has noticed that the old stream is broken."""
    driver = SchedulerDriver(Scheduler(SchedulerConfig(), epoch=1), epoch=1, clock=lambda: 1.0)
    params = SamplingParams(max_tokens=2)
    request = Request(request_id="a", prompt_token_ids=(1, 2, 3), params=params)
    old, new = driver.attach(), driver.attach()
    driver.submit(old, request, resume=False)
    driver.submit(new, replace(request, emitted_token_ids=(7, 8)), resume=True)
    driver.decide()
    assert not told(old)
    assert [event.finish_reason for event, _ in told(new)] == [FinishReason.LENGTH]


def test_a_heartbeat_tells_the_load_to_its_own_ingress() -> None:
    """To all of them, it would be messages by the square of their number."""
    driver = SchedulerDriver(Scheduler(SchedulerConfig(), epoch=1), epoch=1, clock=lambda: 1.0)
    request = Request(request_id="a", prompt_token_ids=(1, 2, 3), params=SamplingParams())
    one, other = driver.attach(), driver.attach()
    assert [taken(outbox).state.num_live for outbox in (one, other)] == [0, 0]
    driver.submit(one, request, resume=False)
    driver.beat(one)
    assert taken(one).state.num_live == 1
    assert not other.has_items()
    driver.beat(other)
    assert taken(other).state.num_live == 1
    driver.beat(other)
    assert not taken(other).HasField("state")
