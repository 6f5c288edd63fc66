"""Who says nothing is as good as dead: a stopped process closes no stream."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from deployments import silence
from deployments.endpoint import Endpoint
from deployments.lease_translation import register_to_pb
from specdec.v1 import coordination_pb2 as pb
from specdec.v1 import coordination_pb2_grpc as pb_grpc
from specdec_core.leases import Role
from tests.deployments.cell import Cell, cell
from tests.deployments.fake_replica import FakeReplica
from tests.deployments.test_cell import PLAIN, collect, expected, request, run, until


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "SILENCE_S", 0.5)
    monkeypatch.setattr(silence, "HEARTBEAT_S", 0.05)


async def registered_and_mute(parts: Cell, stub: pb_grpc.CoordinatorServiceStub) -> Any:
    """A target's stream; nothing more is heard of it."""
    assert parts.endpoint is not None
    call = stub.Work(metadata=parts.endpoint.metadata)
    info = FakeReplica(Role.TARGET).info("mute", 1)
    await call.write(pb.WorkUp(register=register_to_pb(info)))
    assert (await call.read()).HasField("registered")
    return call


async def next_lease(call: Any) -> None:
    while not (await call.read()).HasField("lease"):
        pass


def test_a_target_that_is_silent_is_left_out_long_before_its_lease_ends() -> None:
    async def scenario() -> None:
        async with cell(PLAIN) as parts:
            assert parts.endpoint is not None
            async with parts.endpoint.channel() as channel:
                call = await registered_and_mute(parts, pb_grpc.CoordinatorServiceStub(channel))
                client = await parts.client()
                answer = asyncio.create_task(collect(client, request()))
                await next_lease(call)
                parts.start_replica("t1", Role.TARGET)
                assert await answer == expected(request())
                assert list(parts.driver.replicas) == ["t1"]

    assert PLAIN.lease_ttl_s > 20, "or the lease would do it within the scenario's own limit"
    run(scenario)


def test_who_has_nothing_to_do_beats_and_stays() -> None:
    async def scenario() -> None:
        async with cell(PLAIN) as parts:
            parts.start_replica("t0", Role.TARGET)
            client = await parts.client()
            await until(lambda: client.state is not None and client.state.num_targets == 1)
            replica, stream = parts.driver.replicas["t0"], client._outgoing
            await asyncio.sleep(2)
            assert parts.driver.replicas["t0"] is replica
            assert client._outgoing is stream

    run(scenario)


class _Mute(pb_grpc.CoordinatorServiceServicer):
    """Greets, and hangs."""

    async def Generate(
        self, messages: AsyncIterator[pb.GenerateUp], context: object
    ) -> AsyncIterator[pb.GenerateDown]:
        yield pb.GenerateDown(state=pb.PoolState(epoch=1, num_targets=1))
        await asyncio.sleep(60)

    async def Work(
        self, messages: AsyncIterator[pb.WorkUp], context: object
    ) -> AsyncIterator[pb.WorkDown]:
        yield pb.WorkDown(registered=pb.Registered(epoch=1))
        await asyncio.sleep(60)


@contextlib.asynccontextmanager
async def mute_coordinator() -> AsyncIterator[Endpoint]:
    server = grpc.aio.server()
    pb_grpc.add_CoordinatorServiceServicer_to_server(_Mute(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield Endpoint(address=f"127.0.0.1:{port}", token="")
    await server.stop(None)


def test_from_a_coordinator_that_hangs_everybody_goes_to_the_next() -> None:
    async def scenario() -> None:
        async with cell(PLAIN) as parts, mute_coordinator() as mute:
            alive, parts.endpoint = parts.endpoint, mute
            parts.start_replica("t0", Role.TARGET)
            client = await parts.client()
            await until(lambda: parts.loops["t0"].is_registered and client.state is not None)
            answer = asyncio.create_task(collect(client, request()))
            parts.endpoint = alive
            assert await answer == expected(request())

    run(scenario)
