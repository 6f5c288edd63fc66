"""Who says nothing is as good as dead: a stopped process closes no stream."""

from __future__ import annotations

import asyncio

import pytest

from deployments import coordinator_service, work_loop
from deployments.lease_translation import register_to_pb
from specdec.v1 import coordination_pb2 as pb
from specdec.v1 import coordination_pb2_grpc as pb_grpc
from specdec_core.leases import Role
from tests.deployments.cell import Cell, cell
from tests.deployments.fake_replica import FakeReplica
from tests.deployments.test_cell import PLAIN, collect, expected, request, run, until


async def registered_and_mute(parts: Cell, stub: pb_grpc.CoordinatorServiceStub) -> object:
    """A target's stream that took a lease and is never heard of again."""
    assert parts.endpoint is not None
    call = stub.Work(metadata=parts.endpoint.metadata)
    info = FakeReplica(Role.TARGET).info("mute", 1)
    await call.write(pb.WorkUp(register=register_to_pb(info)))
    assert (await call.read()).HasField("registered")
    return call


def test_a_target_that_is_silent_is_left_out_long_before_its_lease_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coordinator_service, "SILENCE_S", 0.5)
    monkeypatch.setattr(work_loop, "HEARTBEAT_S", 0.05)

    async def scenario() -> None:
        async with cell(PLAIN) as parts:
            assert parts.endpoint is not None
            async with parts.endpoint.channel() as channel:
                call = await registered_and_mute(parts, pb_grpc.CoordinatorServiceStub(channel))
                client = await parts.client()
                answer = asyncio.create_task(collect(client, request()))
                assert (await call.read()).HasField("lease")  # type: ignore[attr-defined]
                parts.start_replica("t1", Role.TARGET)
                assert await answer == expected(request())
                assert list(parts.driver.replicas) == ["t1"]

    assert PLAIN.lease_ttl_s > 20, "or the lease would do it within the scenario's own limit"
    run(scenario)


def test_a_replica_that_only_beats_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_service, "SILENCE_S", 0.5)
    monkeypatch.setattr(work_loop, "HEARTBEAT_S", 0.05)

    async def scenario() -> None:
        async with cell(PLAIN) as parts:
            parts.start_replica("t0", Role.TARGET)
            await until(lambda: "t0" in parts.driver.replicas)
            first = parts.driver.replicas["t0"]
            await asyncio.sleep(1.5)
            assert parts.driver.replicas["t0"] is first

    run(scenario)
