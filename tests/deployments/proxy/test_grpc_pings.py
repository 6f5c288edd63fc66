"""Keepalive pings of clients, with and without calls, do not end their connections."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
import pytest

from deployments.coordinator.server import PortLimits
from deployments.proxy.grpc_guard import SERVER_OPTIONS
from specdec.v1 import generation_pb2 as pb
from specdec.v1 import generation_pb2_grpc as pb_grpc

WAIT_S = 9.0
"""Wait of a request for its slot: more pings of `FAST_MS` than gRPC allows by default."""
FAST_MS, SLOW_MS = 1000, 2000
STREAMS = 4
Seen = tuple[set[str], set[str]]
"""Codes of calls and states of connections."""


class Waiting(pb_grpc.GenerationServiceServicer):
    """A server whose requests wait for a slot."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s

    async def Generate(
        self, request: pb.GenerateRequest, context: Any
    ) -> AsyncIterator[pb.GenerateResponse]:
        await asyncio.sleep(self._wait_s)
        yield pb.GenerateResponse(text="first")

    async def GenerateOnce(self, request: pb.GenerateRequest, context: Any) -> pb.GenerateResponse:
        await asyncio.sleep(self._wait_s)
        return pb.GenerateResponse(text="whole")

    async def Health(self, request: pb.HealthRequest, context: Any) -> pb.HealthResponse:
        return pb.HealthResponse()


@contextlib.asynccontextmanager
async def serving(options: Sequence[tuple[str, Any]], wait_s: float) -> AsyncIterator[str]:
    server = grpc.aio.server(options=options)
    pb_grpc.add_GenerationServiceServicer_to_server(Waiting(wait_s), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


def client_options(keepalive_ms: int, **others: int) -> list[tuple[str, Any]]:
    """`others`: of a client that sends as many pings as it likes."""
    return [
        ("grpc.keepalive_time_ms", keepalive_ms),
        ("grpc.keepalive_timeout_ms", 5000),
        ("grpc.use_local_subchannel_pool", 1),  # a connection for each client
        *((f"grpc.{name}", value) for name, value in others.items()),
    ]


async def waits(address: str, options: list[tuple[str, Any]]) -> set[str]:
    """The codes of four streams and of one whole answer, on one connection."""

    async def stream(stub: Any) -> str:
        call = stub.Generate(pb.GenerateRequest())
        with contextlib.suppress(grpc.aio.AioRpcError):
            await call.read()
        return str((await call.code()).name)

    async def whole(stub: Any) -> str:
        call = stub.GenerateOnce(pb.GenerateRequest())
        return str((await call.code()).name)

    async with grpc.aio.insecure_channel(address, options=options) as channel:
        stub = pb_grpc.GenerationServiceStub(channel)
        return set(await asyncio.gather(*(stream(stub) for _ in range(STREAMS)), whole(stub)))


async def idles(address: str, options: list[tuple[str, Any]], wait_s: float) -> set[str]:
    """The states of a connection without calls."""
    options = [*options, ("grpc.keepalive_permit_without_calls", 1)]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        await pb_grpc.GenerationServiceStub(channel).Health(pb.HealthRequest())
        states = {(state := channel.get_state()).name}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while True:
                    await channel.wait_for_state_change(state)
                    states.add((state := channel.get_state()).name)
        return states


async def seen(
    server_options: Sequence[tuple[str, Any]], pings_ms: Sequence[int], wait_s: float
) -> Seen:
    """Codes of calls and states of connections, of clients that ping at these intervals."""
    unbounded = {"http2.max_pings_without_data": 0}
    clients = [client_options(ms, **others) for ms in pings_ms for others in ({}, unbounded)]
    async with serving(server_options, wait_s) as address:
        calls = asyncio.gather(*(waits(address, client) for client in clients))
        idle = asyncio.gather(*(idles(address, client, wait_s) for client in clients))
        codes, states = await asyncio.gather(calls, idle)
    return set().union(*codes), set().union(*states)


def without_pings() -> list[tuple[str, Any]]:
    """The options of a proxy without those for pings."""
    return [(name, value) for name, value in SERVER_OPTIONS if "ping" not in name]


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Seen]:
    """By server; all wait at the same time."""
    both = (FAST_MS, SLOW_MS)
    waits = {
        "proxy": seen(SERVER_OPTIONS, both, WAIT_S),
        "coordinator": seen(PortLimits().options, both, WAIT_S),
        "without": seen(without_pings(), (FAST_MS,), WAIT_S),
    }

    async def all_of_them() -> list[Seen]:
        return await asyncio.gather(*waits.values())

    return dict(zip(waits, asyncio.run(all_of_them()), strict=True))


@pytest.mark.parametrize("server", ["proxy", "coordinator"])
def test_a_server_ends_no_call_and_no_connection_for_pings(
    outcomes: dict[str, Seen], server: str
) -> None:
    assert outcomes[server] == ({"OK"}, {"READY"})


def test_without_the_options_pings_end_both(outcomes: dict[str, Seen]) -> None:
    """The other tests would show the fault."""
    codes, states = outcomes["without"]
    assert "UNAVAILABLE" in codes
    assert "IDLE" in states


@pytest.mark.nightly
@pytest.mark.parametrize("pings_ms", [1000, 2000, 5000])
def test_a_proxy_ends_nothing_during_a_long_wait(pings_ms: int) -> None:
    assert asyncio.run(seen(SERVER_OPTIONS, (pings_ms,), 45.0)) == ({"OK"}, {"READY"})
