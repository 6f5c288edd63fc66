"""A replica's thread and its stream: the next lease waits at the thread, none follows a failure."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest

from deployments.coordinator import draining as leaving
from deployments.replica import work_loop
from deployments.wire import liveness as silence
from deployments.wire.endpoint import Endpoint
from specdec_core.config import SchedulerConfig, SpecMethod, SpeculationConfig
from specdec_core.messages import GroupLease, GroupResult, Role
from tests.deployments.cell import Cell, cell, served
from tests.deployments.coordinator.test_cell import collect, expected, request, until
from tests.deployments.fake_replica import FakeReplica

ONE_BY_ONE = SchedulerConfig(
    max_group_size=1,
    speculation=SpeculationConfig(method=SpecMethod.NONE),
    window=4,
    max_open_leases=2,
)


class Watching(FakeReplica):
    """Notes how often the next lease was read while one ran."""

    def __init__(self) -> None:
        super().__init__(Role.TARGET)
        self.read = threading.Semaphore(0)
        self.num_overlapped = 0

    def execute(self, lease: GroupLease) -> GroupResult:
        self.read.acquire(timeout=1)  # its own
        if self.read.acquire(timeout=0.1):
            self.num_overlapped += 1
            self.read.release()
        return super().execute(lease)


async def test_the_next_lease_is_read_while_one_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Watching()
    original = work_loop.lease_from_pb

    def noted(*args: Any) -> GroupLease:
        target.read.release()
        return original(*args)

    monkeypatch.setattr(work_loop, "lease_from_pb", noted)
    async with served(ONE_BY_ONE, target=target) as (_, client):
        asked = [request(name, 10) for name in ("a", "b", "c")]
        answers = await asyncio.gather(*(collect(client, one) for one in asked))
        assert answers == [expected(one) for one in asked]
    assert target.num_overlapped >= 15


class Failing(FakeReplica):
    """Is lost at its third lease."""

    def execute(self, lease: GroupLease) -> GroupResult:
        result = super().execute(lease)
        if self.num_leases == 3:
            raise RuntimeError("device lost")
        return result


async def test_behind_a_failed_lease_nothing_runs_and_the_loop_ends_at_once() -> None:
    async with cell(ONE_BY_ONE) as parts:
        lost = Failing(Role.TARGET)
        parts.start_replica("t0", Role.TARGET, lost)
        client = await parts.client()
        asked = [request(name, 20) for name in ("a", "b", "c")]
        answers = asyncio.gather(*(collect(client, one) for one in asked))
        await until(lambda: parts.loops["t0"].failure is not None)
        await until(lambda: "t0" not in parts.driver.replicas)
        await asyncio.wait_for(parts.loops["t0"].drain(30), 5)
        parts.start_replica("t1", Role.TARGET)
        assert await answers == [expected(one) for one in asked]
        assert lost.num_leases == 3


class Held(FakeReplica):
    """A target whose first lease takes until it is let go."""

    def __init__(self) -> None:
        super().__init__(Role.TARGET)
        self.may_go = threading.Event()
        self.executed: list[tuple[int, int]] = []
        """Epoch and number of every lease that was begun."""

    def execute(self, lease: GroupLease) -> GroupResult:
        self.executed.append((lease.epoch, lease.lease_id))
        self.may_go.wait(20)
        return super().execute(lease)


def open_leases(parts: Cell) -> list[int]:
    return list(parts.driver.scheduler._replicas.by_id["t0"].leases)


@pytest.mark.parametrize("loss", ["fenced", "coordinator"])
async def test_a_lease_that_is_void_before_its_turn_is_not_run(loss: str) -> None:
    """What else would wait for it is the reset, and all that the replica is to do next."""
    held = Held()
    config = replace(ONE_BY_ONE, lease_ttl_s=1.0 if loss == "fenced" else 60.0)
    async with served(config, target=held) as (parts, client):
        asked = [request(name, 10) for name in ("a", "b")]
        answers = asyncio.gather(*(collect(client, one) for one in asked))
        await until(lambda: bool(parts.driver.replicas) and len(open_leases(parts)) == 2)
        await until(lambda: bool(held.executed))  # the first has had its turn
        epoch, (first, second) = parts.driver.epoch, open_leases(parts)
        if loss == "coordinator":
            await parts.kill_coordinator()
            await parts.start_coordinator()
        await until(lambda: parts.loops["t0"]._generation == 1)
        held.may_go.set()
        assert await answers == [expected(one) for one in asked]
        assert (epoch, first) in held.executed
        assert (epoch, second) not in held.executed


async def test_what_follows_a_free_is_read_while_a_lease_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held, read = Held(), []
    original = work_loop.lease_from_pb

    def noted(*args: Any) -> GroupLease:
        read.append(original(*args))
        return read[-1]

    monkeypatch.setattr(work_loop, "lease_from_pb", noted)
    async with served(replace(ONE_BY_ONE, max_open_leases=3), target=held) as (parts, client):
        going = asyncio.create_task(collect(client, request("a", 10)))
        await until(lambda: len(read) == 1)
        leaving = asyncio.create_task(collect(client, request("b", 10)))
        await until(lambda: len(read) == 2)
        leaving.cancel()
        await until(lambda: parts.driver.scheduler.num_live == 1)
        coming = asyncio.create_task(collect(client, request("c", 10)))
        await until(lambda: len(read) == 3)
        assert len(held.executed) == 1
        held.may_go.set()
        assert await going == expected(request("a", 10))
        assert await coming == expected(request("c", 10))
        await until(lambda: not held.cached)


@pytest.mark.parametrize("is_there", [True, False])
async def test_who_is_asked_to_leave_while_it_looks_for_its_first_coordinator(
    is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client may wait there for this very target; without a coordinator nobody does."""
    monkeypatch.setattr(leaving, "_INGRESS_COMES_BACK_S", 0.2)
    monkeypatch.setattr(silence, "HEARTBEAT_S", 0.05)
    async with cell(ONE_BY_ONE) as parts:
        found = asyncio.Event()
        endpoint = parts.endpoint

        async def slow() -> Endpoint:
            await found.wait()
            parts.endpoint = endpoint if is_there else None
            return await Cell.resolve(parts)

        client = await parts.client()
        answer = asyncio.create_task(collect(client, request()))
        await until(lambda: parts.driver.scheduler.num_live == 1)
        parts.resolve = slow  # type: ignore[method-assign]
        parts.start_replica("t0", Role.TARGET)
        going = asyncio.create_task(parts.loops["t0"].drain(30))
        await asyncio.sleep(0.1)
        assert not going.done()
        found.set()
        if is_there:
            assert await answer == expected(request())
            await parts.cancel("client")
        await asyncio.wait_for(going, 10)
        answer.cancel()


async def test_a_lease_that_does_not_end_is_noticed_while_it_runs() -> None:
    held = Held()
    async with served(replace(ONE_BY_ONE, lease_ttl_s=0.2), target=held) as (parts, client):
        answer = asyncio.create_task(collect(client, request()))
        await until(lambda: len(held.executed) == 1)
        assert not parts.loops["t0"].is_stuck
        await until(lambda: parts.loops["t0"].is_stuck)
        held.may_go.set()
        assert await answer == expected(request())
        assert not parts.loops["t0"].is_stuck
