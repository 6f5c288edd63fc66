"""A client that gives or takes nothing loses its connection; one that is merely slow does not."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn
from ray.serve._private.http_util import validate_http_proxy_callback_return

from benchmarks.overload.http_exchange import connection, parse
from deployments.proxy import hooks as proxy_hook
from deployments.proxy.http_guard import EdgeLimits, GuardedHttp
from deployments.proxy.http_middleware import ProxyAnswers

SHORT_S = 0.3
AMPLE_S = 1.0
"""For those who are not to be given up, on a machine that does other things too."""
LONG_S = 60.0
PATIENT = {"head_s": LONG_S, "body_s": LONG_S, "unread_s": LONG_S}
GET = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"


class Application:
    """Answers each request with as many pieces as it is told to, and notes how requests ended."""

    def __init__(self, num_pieces: int = 1, piece: bytes = b"ok") -> None:
        self.pieces = [piece] * num_pieces
        self.num_answered = 0
        self.num_disconnected = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        message = {"more_body": True}
        while message.get("more_body", False):
            message = await receive()
        if message["type"] == "http.disconnect":
            self.num_disconnected += 1
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for piece in self.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        self.num_answered += 1


@contextlib.asynccontextmanager
async def serving(application: Any, **limits: Any) -> AsyncIterator[int]:
    class Protocol(GuardedHttp):
        pass

    Protocol.limits = EdgeLimits(**PATIENT | limits)
    settings = {"lifespan": "off", "log_config": None, "access_log": False}
    server = uvicorn.Server(uvicorn.Config(application, http=Protocol, **settings))
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    with socket.socket() as link:
        link.bind(("127.0.0.1", 0))
        task = asyncio.create_task(server._serve(sockets=[link]))
        while not server.started:
            await asyncio.sleep(0.005)
        try:
            yield link.getsockname()[1]
        finally:
            server.should_exit = server.force_exit = True
            await task


@contextlib.asynccontextmanager
async def client_of(
    application: Any, **limits: Any
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with serving(application, **limits) as port, connection("127.0.0.1", port) as link:
        yield link


@pytest.mark.parametrize(
    "beginning",
    [b"", b"GET", b"GET / HTTP/1.1\r\nhost: localhost\r\nx-lo", b"\r\n\r\n"],
    ids=["nothing", "a word", "half a header", "empty lines"],
)
async def test_who_does_not_finish_a_header_is_given_up(beginning: bytes) -> None:
    async with client_of(Application(), head_s=SHORT_S) as (reader, writer):
        writer.write(beginning)
        assert await reader.read() == b""


async def test_who_does_not_finish_a_body_is_given_up_and_the_request_with_it() -> None:
    application = Application()
    async with client_of(application, body_s=SHORT_S) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\nhalf")
        assert await reader.read() == b""
        assert (application.num_disconnected, application.num_answered) == (1, 0)


async def test_a_header_without_an_end_is_refused() -> None:
    async with client_of(Application(), max_head_bytes=100_000) as (reader, writer):
        # No more than it takes: what comes behind a refusal resets the connection.
        start = b"GET / HTTP/1.1\r\nhost: localhost\r\nx-long: "
        writer.write(start + b"a" * (100_001 - len(start)))
        assert parse(await reader.read()).status == 431


async def test_a_large_header_within_the_limit_is_read() -> None:
    async with client_of(Application(), max_head_bytes=100_000) as (reader, writer):
        large = b"x-long: " + b"a" * 50_000
        writer.write(b"GET / HTTP/1.1\r\nconnection: close\r\n" + large + b"\r\n\r\n")
        assert parse(await reader.read()).body == b"ok"


async def test_who_does_not_read_is_given_up_and_the_request_with_it() -> None:
    application = Application(1000, b"x" * 65536)
    async with serving(application, unread_s=SHORT_S) as port, _reading_nothing(port) as link:
        link.send(GET)
        while not application.num_answered:
            await asyncio.sleep(0.005)
        await _until_gone(link)


@pytest.mark.parametrize("pauses", [1, pytest.param(2, marks=pytest.mark.nightly)])
async def test_each_request_of_a_connection_has_the_whole_time(pauses: int) -> None:
    """Between them the keep-alive time of uvicorn holds, not ours."""
    application = Application()
    async with client_of(application, head_s=AMPLE_S, body_s=AMPLE_S, unread_s=AMPLE_S) as (
        reader,
        writer,
    ):
        for _ in range(pauses):
            writer.write(GET)
            await reader.readuntil(b"0\r\n\r\n")
            await asyncio.sleep(1.5 * AMPLE_S)
        writer.write(GET)
        assert (await reader.readuntil(b"0\r\n\r\n")).startswith(b"HTTP/1.1 200")


async def test_a_slow_answer_to_an_eager_reader_takes_as_long_as_it_takes() -> None:
    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.sleep(1.5 * AMPLE_S)
        await send({"type": "http.response.body", "body": b"late"})

    limits = {"head_s": AMPLE_S, "body_s": AMPLE_S, "unread_s": AMPLE_S}
    async with client_of(slow, **limits) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        assert parse(await reader.read()).body == b"late"


async def test_serves_proxies_take_this_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    """Serve makes a uvicorn.Config without naming a protocol, after it has called the hook."""
    monkeypatch.setattr(proxy_hook, "make_grpc_patient", lambda: None)
    monkeypatch.setattr(uvicorn.config, "HTTP_PROTOCOLS", dict(uvicorn.config.HTTP_PROTOCOLS))
    middleware = validate_http_proxy_callback_return(proxy_hook.guard())
    assert [each.cls for each in middleware] == [ProxyAnswers]
    made = uvicorn.Config(Application())
    made.load()
    assert made.http_protocol_class is GuardedHttp


@contextlib.asynccontextmanager
async def _reading_nothing(port: int) -> AsyncIterator[socket.socket]:
    with socket.socket() as link:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        link.connect(("127.0.0.1", port))
        yield link


async def _until_gone(link: socket.socket) -> None:
    """An aborted connection is reset: writing to it fails."""
    while True:
        try:
            link.send(b"x")
        except OSError:
            return
        await asyncio.sleep(0.02)
