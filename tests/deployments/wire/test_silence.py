"""Who says nothing is as good as dead: a stopped process closes no stream."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
import weakref
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import Mock

import grpc
import pytest

from deployments.coordinator.driver import SchedulerDriver
from deployments.coordinator.service import CoordinatorServicer
from deployments.wire import liveness as silence
from deployments.wire.endpoint import Endpoint
from deployments.wire.lease_codec import register_to_pb
from deployments.wire.liveness import received
from specdec.v1 import coordination_pb2 as pb
from specdec.v1 import coordination_pb2_grpc as pb_grpc
from specdec_core.messages import Role
from specdec_core.scheduler import Scheduler
from tests.deployments.cell import Cell, cell, served
from tests.deployments.coordinator.test_cell import PLAIN, collect, expected, request, until
from tests.deployments.fake_replica import FakeReplica


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


async def test_a_target_that_is_silent_is_left_out_long_before_its_lease_ends() -> None:
    began_s = time.monotonic()
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
    assert time.monotonic() - began_s < PLAIN.lease_ttl_s


async def test_who_has_nothing_to_do_beats_and_stays() -> None:
    async with served(PLAIN) as (parts, client):
        await until(lambda: client.state is not None and client.state.num_targets == 1)
        replica, stream = parts.driver.replicas["t0"], client._outgoing
        await asyncio.sleep(2.5 * silence.SILENCE_S)
        assert parts.driver.replicas["t0"] is replica
        assert client._outgoing is stream


async def test_who_stood_still_himself_hears_what_has_come_before_he_gives_anybody_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Coordinator, target and ingress share a loop here: all of them stand still."""
    monkeypatch.setattr(silence, "SILENCE_S", 1.0)
    async with served(PLAIN) as (parts, client):
        await until(lambda: client.state is not None and client.state.num_targets == 1)
        replica, stream = parts.driver.replicas["t0"], client._outgoing
        told = replica.occupancy
        time.sleep(1.5 * silence.SILENCE_S)
        await until(lambda: replica.occupancy is not told)
        assert await collect(client, request()) == expected(request())
        assert parts.driver.replicas["t0"] is replica
        assert client._outgoing is stream


async def test_the_time_that_a_message_takes_here_is_not_its_senders_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(silence, "SILENCE_S", 0.1)

    async def three() -> AsyncIterator[int]:
        for number in range(3):
            yield number

    read = []
    async for number in received(three()):
        await asyncio.sleep(2 * silence.SILENCE_S)
        read.append(number)
    assert read == [0, 1, 2]


async def test_who_is_cancelled_while_he_listens_is_cancelled() -> None:
    async def nothing() -> AsyncIterator[int]:
        await asyncio.sleep(60)
        yield 0

    async def listen() -> None:
        async for _ in received(nothing()):
            pass

    listening = asyncio.create_task(listen())
    await asyncio.sleep(0)
    listening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listening


async def test_who_is_silent_and_does_not_read_is_left_out_though_a_write_to_him_does_not_end() -> (
    None
):
    async def introduction() -> AsyncIterator[pb.WorkUp]:
        info = FakeReplica(Role.TARGET).info("mute", 1)
        yield pb.WorkUp(register=register_to_pb(info))
        await asyncio.sleep(60)

    driver = SchedulerDriver(Scheduler(PLAIN, epoch=1), epoch=1)
    stream: Any = CoordinatorServicer(driver).Work(introduction(), Mock())
    assert (await anext(stream)).HasField("registered")
    assert list(driver.replicas) == ["mute"]
    await until(lambda: not driver.replicas)  # nobody asks for the next message
    await stream.aclose()


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


async def test_from_a_coordinator_that_hangs_everybody_goes_to_the_next() -> None:
    async with cell(PLAIN) as parts, mute_coordinator() as mute:
        alive, parts.endpoint = parts.endpoint, mute
        parts.start_replica("t0", Role.TARGET)
        client = await parts.client()
        await until(lambda: parts.loops["t0"].is_registered and client.state is not None)
        answer = asyncio.create_task(collect(client, request()))
        parts.endpoint = alive
        assert await answer == expected(request())


def test_a_stream_that_has_ended_leaves_no_garbage() -> None:
    """A proxy has thousands in a minute, each with its request, and seldom looks for garbage."""
    ended: list[weakref.ref[asyncio.Task[Any]]] = []

    async def listen() -> None:
        async def nothing() -> AsyncIterator[int]:
            yield 1

        with silence.heartbeats(lambda: None):
            async for _ in received(nothing()):
                pass

    async def scenario() -> None:
        task = asyncio.create_task(listen())
        ended.append(weakref.ref(task))
        await task
        del task
        await asyncio.sleep(0)
        assert ended[0]() is None

    gc.disable()
    try:
        asyncio.run(scenario())
    finally:
        gc.enable()
