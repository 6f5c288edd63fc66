"""Calls that come faster than a proxy reads them wait; none is cancelled by the server."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from ray.serve._private import constants

from deployments.edge.grpc_limits import make_grpc_patient
from specdec.v1 import generation_pb2 as pb
from specdec.v1 import generation_pb2_grpc as pb_grpc

NUM_CALLS = 3500
"""More than gRPC lets wait by itself."""
BUSY_S = 1.5


class Servicer(pb_grpc.GenerationServiceServicer):
    async def Health(self, request: pb.HealthRequest, context: Any) -> pb.HealthResponse:
        return pb.HealthResponse(ready=True)


@contextmanager
def busy_server(options: Sequence[tuple[str, Any]]) -> Iterator[str]:
    """Its loop does something else for a while, and reads no call meanwhile."""
    loop, started, stop = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    address = ""

    async def serve() -> None:
        nonlocal address
        server = grpc.aio.server(options=options)
        pb_grpc.add_GenerationServiceServicer_to_server(Servicer(), server)
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        started.set()
        await asyncio.sleep(0.1)
        time.sleep(BUSY_S)
        await stop.wait()
        await server.stop(None)

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    started.wait()
    try:
        yield address
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


def codes(address: str) -> Counter[str]:
    with grpc.insecure_channel(address) as channel:
        grpc.channel_ready_future(channel).result(10)
        stub = pb_grpc.GenerationServiceStub(channel)
        calls = [stub.Health.future(pb.HealthRequest(), timeout=60) for _ in range(NUM_CALLS)]
        return Counter(call.code().name for call in calls)


@pytest.fixture
def proxy_options(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Those of the gRPC servers that Serve makes after its hook was called."""
    options = list(constants.DEFAULT_GRPC_SERVER_OPTIONS)
    monkeypatch.setattr(constants, "DEFAULT_GRPC_SERVER_OPTIONS", options)
    make_grpc_patient()
    return options


def test_a_burst_waits_for_a_busy_proxy(proxy_options: list[tuple[str, Any]]) -> None:
    with busy_server(proxy_options) as address:
        assert codes(address) == {"OK": NUM_CALLS}


def test_without_the_limits_a_burst_is_not_answered(proxy_options: list[tuple[str, Any]]) -> None:
    """What the other test would show, were the options not taken."""
    with busy_server(()) as address:
        assert codes(address)["OK"] < NUM_CALLS


def test_serve_is_told_once(proxy_options: list[tuple[str, Any]]) -> None:
    before = list(proxy_options)
    make_grpc_patient()
    assert proxy_options == before
    names = [name for name, _ in proxy_options]
    assert "grpc.server_max_unrequested_time_in_server" in names
    assert "grpc.max_receive_message_length" in names, "Serve's own are kept"
