"""A machine that is gone, or a process that hangs, closes no connection: it is noticed anyway."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest

from deployments.wire import liveness as silence
from specdec_core.messages import Role
from tests.deployments.cell import Cell, cell
from tests.deployments.coordinator.test_cell import PLAIN, collect, expected, request, until


class Cable:
    """A TCP proxy that can fall silent without closing anything."""

    def __init__(self) -> None:
        self.address = ""
        self._is_cut = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def to(self, address: str) -> AsyncIterator[Cable]:
        host, _, port = address.rpartition(":")

        async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
            for way in (self._carry(reader, far_writer), self._carry(far_reader, writer)):
                self._tasks.add(asyncio.ensure_future(way))

        server = await asyncio.start_server(connect, "127.0.0.1", 0)
        near_host, near_port = server.sockets[0].getsockname()
        self.address = f"{near_host}:{near_port}"
        try:
            yield self
        finally:
            for task in self._tasks:
                task.cancel()
            server.close()

    def cut(self) -> None:
        self._is_cut.set()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while content := await reader.read(2**16):
            if self._is_cut.is_set():
                await asyncio.Event().wait()
            writer.write(content)


@contextlib.asynccontextmanager
async def behind_a_cable() -> AsyncIterator[tuple[Cell, Cable]]:
    """A cell whose replica reaches the coordinator through a cable."""
    async with cell(PLAIN) as parts:
        assert parts.endpoint is not None
        direct = parts.endpoint
        async with Cable().to(direct.address) as cable:
            parts.endpoint = replace(direct, address=cable.address)
            parts.start_replica("t0", Role.TARGET)
            await until(lambda: "t0" in parts.driver.replicas)
            parts.endpoint = direct
            yield parts, cable


async def test_the_coordinator_forgets_a_replica_that_has_fallen_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(silence, "HEARTBEAT_S", 0.2)
    monkeypatch.setattr(silence, "SILENCE_S", 1.0)
    async with behind_a_cable() as (parts, cable):
        asked = request(num_tokens=200)
        answer = asyncio.create_task(collect(await parts.client("direct"), asked))
        cable.cut()
        await until(lambda: "t0" not in parts.driver.replicas)
        parts.start_replica("t1", Role.TARGET)
        assert await answer == expected(asked)


def connections_to(port: int) -> Iterator[socket.socket]:
    """Both ends of the TCP connections to a port of this process."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as own:
            is_internet = own.family in (socket.AF_INET, socket.AF_INET6)
            if is_internet and port in (own.getpeername()[1], own.getsockname()[1]):
                yield own


async def test_unacknowledged_bytes_end_a_connection_after_ten_seconds() -> None:
    """The kernel's part of it, which a test without a second machine cannot see at work."""
    async with cell(PLAIN) as parts:
        parts.start_replica("t0", Role.TARGET)
        await parts.client()
        await until(lambda: parts.driver.num_streams == 2)
        assert parts.endpoint is not None
        port = int(parts.endpoint.address.rpartition(":")[2])
        limits = [
            own.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
            for own in connections_to(port)
        ]
        assert len(limits) >= 2
        assert set(limits) == {10_000}
