"""Calls that come faster than a proxy reads them wait; none is cancelled by the server."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from ray.serve._private import constants

from deployments.proxy.grpc_guard import make_grpc_patient
from specdec.v1 import generation_pb2 as pb
from specdec.v1 import generation_pb2_grpc as pb_grpc

NUM_CALLS = 3500
"""More than gRPC lets wait by itself."""


class Servicer(pb_grpc.GenerationServiceServicer):
    async def Health(self, request: pb.HealthRequest, context: Any) -> pb.HealthResponse:
        return pb.HealthResponse(ready=True)


@contextmanager
def busy_server(options: Sequence[tuple[str, Any]]) -> Iterator[tuple[str, threading.Event]]:
    """Its loop is busy with something else, and reads no call, until it is told to go on."""
    started, may_go, stop = threading.Event(), threading.Event(), threading.Event()
    addresses: list[str] = []

    async def serve() -> None:
        server = grpc.aio.server(options=options)
        pb_grpc.add_GenerationServiceServicer_to_server(Servicer(), server)
        addresses.append(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
        await server.start()
        started.set()
        may_go.wait()
        await asyncio.to_thread(stop.wait)
        await server.stop(None)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    started.wait()
    try:
        yield addresses[0], may_go
    finally:
        may_go.set()
        stop.set()
        thread.join()


def codes(options: Sequence[tuple[str, Any]], wait_s: float) -> Counter[str]:
    """How the calls of a burst end. The server goes on when one has, at the latest after
    `wait_s`."""
    with busy_server(options) as (address, may_go), grpc.insecure_channel(address) as channel:
        stub = pb_grpc.GenerationServiceStub(channel)
        calls = [stub.Health.future(pb.HealthRequest(), timeout=120) for _ in range(NUM_CALLS)]
        one_has_ended = threading.Event()
        for call in calls:
            call.add_done_callback(lambda call: one_has_ended.set())
        one_has_ended.wait(wait_s)
        may_go.set()
        return Counter(call.code().name for call in calls)


@pytest.fixture
def proxy_options(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Those of the gRPC servers that Serve makes after its hook was called."""
    options = list(constants.DEFAULT_GRPC_SERVER_OPTIONS)
    monkeypatch.setattr(constants, "DEFAULT_GRPC_SERVER_OPTIONS", options)
    make_grpc_patient()
    return options


def test_a_burst_waits_for_a_busy_proxy(proxy_options: list[tuple[str, Any]]) -> None:
    assert codes(proxy_options, wait_s=1) == {"OK": NUM_CALLS}


def test_without_the_limits_a_part_of_the_burst_is_lost() -> None:
    """What the other test would show, were the options not taken."""
    assert codes((), wait_s=60)["OK"] < NUM_CALLS


def test_serve_is_told_once(proxy_options: list[tuple[str, Any]]) -> None:
    before = list(proxy_options)
    make_grpc_patient()
    assert proxy_options == before
    names = [name for name, _ in proxy_options]
    assert "grpc.server_max_unrequested_time_in_server" in names
    assert "grpc.max_receive_message_length" in names, "Serve's own are kept"
