"""When targets may leave: the last one not before the ingresses, which may still bring requests."""

from __future__ import annotations

import asyncio

import pytest

from deployments.coordinator.connections import ConnectedReplica
from deployments.coordinator.driver import SchedulerDriver
from specdec.v1 import coordination_pb2 as pb
from specdec_core.config import SchedulerConfig
from specdec_core.kv_cache.spec import FullAttentionSpec
from specdec_core.messages import ReplicaInfo, Role
from specdec_core.request import Request
from specdec_core.sampling_params import SamplingParams
from specdec_core.scheduler import Drained, Scheduler, SendLease
from tests.deployments.outboxes import taken


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def driver(clock: Clock) -> SchedulerDriver:
    return SchedulerDriver(Scheduler(SchedulerConfig(), epoch=1), epoch=1, clock=clock)


def registered(driver: SchedulerDriver, name: str, role: Role = Role.TARGET) -> ConnectedReplica:
    info = ReplicaInfo(
        replica_id=name,
        role=role,
        incarnation=1,
        num_blocks=100,
        kv_cache_spec=FullAttentionSpec(4),
        max_model_len=64,
        vocab_size=13,
        model_digest="model",
    )
    return driver.register(info)


def asked_to_leave(driver: SchedulerDriver, replica: ConnectedReplica) -> bool:
    """Whether it may, at once."""
    driver.drain(replica)
    return may_leave(driver, replica)


def may_leave(driver: SchedulerDriver, replica: ConnectedReplica) -> bool:
    for _ in range(2):  # the pool is told, and then tells the replica
        driver.decide()
    return is_told(replica)


def beats(driver: SchedulerDriver, replica: ConnectedReplica) -> None:
    driver.on_heartbeat(replica, pb.Occupancy(num_free_blocks=100))


def is_told(replica: ConnectedReplica) -> bool:
    commands = taken(replica.outbox) or [] if replica.outbox.has_items() else []
    return any(isinstance(command, Drained) for command in commands)


def test_the_last_target_serves_what_an_ingress_brings_although_it_was_asked_to_leave(
    driver: SchedulerDriver,
) -> None:
    """A redeploy asks it seconds before the ingresses, whose clients it may not have yet."""
    target, ingress = registered(driver, "t"), driver.attach()
    assert not asked_to_leave(driver, target)
    params = SamplingParams(max_tokens=3)
    request = Request(request_id="late", prompt_token_ids=(1, 2), params=params)
    driver.submit(ingress, request, resume=False)
    driver.decide()
    assert any(isinstance(command, SendLease) for command in taken(target.outbox) or [])


def test_it_stays_until_the_last_ingress_has_left(driver: SchedulerDriver, clock: Clock) -> None:
    target, first, second = registered(driver, "t"), driver.attach(), driver.attach()
    assert not asked_to_leave(driver, target)
    driver.detach(first)
    clock.now += 3
    assert not may_leave(driver, target)
    driver.detach(second)
    clock.now += 3
    assert may_leave(driver, target)


async def test_its_heartbeat_wakes_who_lets_it_go(driver: SchedulerDriver, clock: Clock) -> None:
    """Without a request nothing else happens after the last ingress has left."""
    target, ingress = registered(driver, "t"), driver.attach()
    driver.drain(target)
    running = asyncio.create_task(driver.run())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not is_told(target)
    driver.detach(ingress)
    clock.now += 3
    beats(driver, target)
    while not is_told(target):
        await asyncio.sleep(0.001)
    running.cancel()


def test_when_every_ingress_has_gone_it_leaves_unless_one_comes_back(
    driver: SchedulerDriver, clock: Clock
) -> None:
    """Whose stream broke is back within a second."""
    target, ingress = registered(driver, "t"), driver.attach()
    driver.decide()
    driver.detach(ingress)
    assert not asked_to_leave(driver, target)
    clock.now += 1.5
    ingress = driver.attach()
    assert not may_leave(driver, target)
    driver.detach(ingress)
    clock.now += 1.5
    assert not may_leave(driver, target)
    clock.now += 1
    assert may_leave(driver, target)


def test_a_coordinator_that_has_just_begun_expects_the_ingresses_of_the_one_before(
    driver: SchedulerDriver, clock: Clock
) -> None:
    """They bring back what they have not got to the end, and nobody else would serve it."""
    target, draft = registered(driver, "t"), registered(driver, "d", Role.DRAFT)
    assert not asked_to_leave(driver, target)
    assert asked_to_leave(driver, draft)
    clock.now += 14
    assert not may_leave(driver, target)
    clock.now += 2
    assert may_leave(driver, target)


def test_beside_a_target_that_stays_it_leaves_at_once(driver: SchedulerDriver) -> None:
    """A service that scales down, and a redeploy that keeps the settings and has room for both."""
    first, second = registered(driver, "t1"), registered(driver, "t2")
    driver.attach()
    driver.drain(first)
    beats(driver, second)
    assert may_leave(driver, first)


def test_beside_a_target_that_says_nothing_it_stays(driver: SchedulerDriver) -> None:
    """Who was heard from before it asked may hang by now, and is taken for dead seconds later."""
    first, second = registered(driver, "t1"), registered(driver, "t2")
    driver.attach()
    beats(driver, second)
    assert not asked_to_leave(driver, first)
    driver.leave(second)
    assert not may_leave(driver, first)


def test_beside_a_target_that_is_fenced_it_stays(driver: SchedulerDriver, clock: Clock) -> None:
    """Its pass hangs, and its heartbeats, which another thread sends, go on."""
    first, second = registered(driver, "t1"), registered(driver, "t2")
    ingress = driver.attach()
    for name in "ab":
        params = SamplingParams(max_tokens=3)
        request = Request(request_id=name, prompt_token_ids=(1, 2), params=params)
        driver.submit(ingress, request, resume=False)
    driver.decide()
    clock.now += SchedulerConfig().lease_ttl_s + 1
    driver.decide()
    assert first.is_fenced
    assert second.is_fenced
    driver.on_reset_done(first, 1)
    driver.drain(first)
    beats(driver, second)
    driver.decide()
    assert not first.may_leave
    driver.on_reset_done(second, 1)
    driver.decide()
    assert first.may_leave


def test_beside_a_target_that_has_gone_since_it_stays(driver: SchedulerDriver) -> None:
    first, second = registered(driver, "t1"), registered(driver, "t2")
    driver.attach()
    driver.drain(first)
    beats(driver, second)
    driver.leave(second)
    assert not may_leave(driver, first)
    beats(driver, second)  # read only now
    assert not may_leave(driver, first)


def test_what_it_says_itself_does_not_let_it_go(driver: SchedulerDriver) -> None:
    first, _ = registered(driver, "t1"), registered(driver, "t2")
    driver.attach()
    driver.drain(first)
    beats(driver, first)
    assert not may_leave(driver, first)


def test_a_draft_is_nobody_who_stays(driver: SchedulerDriver) -> None:
    first, draft = registered(driver, "t1"), registered(driver, "d", Role.DRAFT)
    driver.attach()
    driver.drain(first)
    beats(driver, draft)
    assert not may_leave(driver, first)


def test_it_leaves_as_soon_as_another_one_has_come(driver: SchedulerDriver) -> None:
    old, _ = registered(driver, "old"), driver.attach()
    assert not asked_to_leave(driver, old)
    new = registered(driver, "new")
    beats(driver, new)
    assert may_leave(driver, old)


@pytest.mark.parametrize("is_gone", [True, False])
def test_of_all_targets_that_leave_the_last_one_stays(
    driver: SchedulerDriver, is_gone: bool
) -> None:
    """Also while the one before it, which may go, has not gone yet."""
    first, last = registered(driver, "t1"), registered(driver, "t2")
    driver.attach()
    driver.drain(first)
    driver.drain(last)
    for one in (first, last):
        beats(driver, one)
    assert may_leave(driver, first)
    if is_gone:
        driver.leave(first)
    assert not may_leave(driver, last)
    beats(driver, last)
    assert not may_leave(driver, last)


def test_of_those_that_leave_who_asked_last_stays(driver: SchedulerDriver) -> None:
    """It has the most time left, whichever coordinator the others asked before this one."""
    restarted, redeployed = registered(driver, "t1"), registered(driver, "t2")
    driver.attach()
    driver.drain(redeployed)
    driver.drain(restarted, asked_ago_s=5.0)
    beats(driver, restarted)
    assert not may_leave(driver, redeployed)
    assert not may_leave(driver, restarted)
    beats(driver, redeployed)
    assert may_leave(driver, restarted)
    assert not may_leave(driver, redeployed)


def test_who_comes_back_while_it_leaves_has_to_ask_again(driver: SchedulerDriver) -> None:
    """Its stream broke, and with it what it had asked for. It asks right behind registering, so
    until it has said more, nobody takes it for one that stays."""
    old, _ = registered(driver, "t"), driver.attach()
    driver.drain(old)
    new = registered(driver, "t")
    driver.leave(old)
    beside = registered(driver, "beside")
    assert not may_leave(driver, new)
    assert not asked_to_leave(driver, beside)
    driver.drain(new)
    for one in (new, beside):
        beats(driver, one)
    assert may_leave(driver, beside)
    assert not may_leave(driver, new)


def test_a_draft_leaves_at_once(driver: SchedulerDriver) -> None:
    registered(driver, "t")
    driver.attach()
    assert asked_to_leave(driver, registered(driver, "d", Role.DRAFT))
