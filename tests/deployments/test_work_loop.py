"""A replica's thread and its stream: the next lease waits at the thread, none follows a failure."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from deployments import work_loop
from specdec_core.config import PoolConfig, SpecMethod, SpeculationConfig
from specdec_core.leases import GroupLease, GroupResult, Role
from tests.deployments.cell import cell
from tests.deployments.fake_replica import FakeReplica
from tests.deployments.test_cell import collect, expected, request, run, until

ONE_BY_ONE = PoolConfig(
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


def test_the_next_lease_is_read_while_one_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Watching()
    original = work_loop.lease_from_pb

    def noted(*args: Any) -> GroupLease:
        target.read.release()
        return original(*args)

    monkeypatch.setattr(work_loop, "lease_from_pb", noted)

    async def scenario() -> None:
        async with cell(ONE_BY_ONE) as parts:
            parts.start_replica("t0", Role.TARGET, target)
            client = await parts.client()
            asked = [request(name, 10) for name in ("a", "b", "c")]
            answers = await asyncio.gather(*(collect(client, one) for one in asked))
            assert answers == [expected(one) for one in asked]

    run(scenario)
    assert target.num_overlapped >= 15


class Failing(FakeReplica):
    """Is lost at its third lease."""

    def execute(self, lease: GroupLease) -> GroupResult:
        result = super().execute(lease)
        if self.num_leases == 3:
            raise RuntimeError("device lost")
        return result


def test_behind_a_failed_lease_nothing_runs_and_the_loop_ends_at_once() -> None:
    async def scenario() -> None:
        async with cell(ONE_BY_ONE) as parts:
            lost = Failing(Role.TARGET)
            parts.start_replica("t0", Role.TARGET, lost)
            client = await parts.client()
            asked = [request(name, 20) for name in ("a", "b", "c")]
            answers = asyncio.gather(*(collect(client, one) for one in asked))
            await until(lambda: parts.loops["t0"].failure is not None)
            await until(lambda: "t0" not in parts.driver.replicas)
            parts.start_replica("t1", Role.TARGET)
            assert await answers == [expected(one) for one in asked]
            assert lost.num_leases == 3

    run(scenario)
