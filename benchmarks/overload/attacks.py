"""Clients that hang, send rubbish or never end: each an endless task, many of them in one process.

They are cheap by intent: what the others lose shall be lost to the server's care for these, not to
the processor time of the load generator.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc

from benchmarks.overload.asking import generate_request, metadata
from benchmarks.overload.http_exchange import completion, connection, post
from benchmarks.overload.questions import Server, prompts
from specdec.v1 import coordination_pb2 as coordination
from specdec.v1 import coordination_pb2_grpc as coordination_grpc
from specdec.v1 import generation_pb2_grpc as pb_grpc

_PAUSE_S = 1.0
"""Between two strokes of one client."""
_AT_ONCE_S = 0.1
_LOGPROBS = 20
"""Of a slow reader's answer: many bytes for little work."""
_SMALL_WINDOW = 2048
"""Receive buffer of a slow reader, so that little waits in the kernel."""
_PROMPT = prompts(1)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is attacked."""

    server: Server
    coordinator_ports: tuple[int, ...]
    slow_tokens: int
    """Of a slow reader's answer: work that is done before the others are measured."""


Tally = Counter[str]
"""How often each thing happened, for the report."""
Attack = Callable[[Target, Tally], Awaitable[None]]


async def slow_http_reader(target: Target, tally: Tally) -> None:
    """Asks for a long streamed answer and reads a byte a second."""
    body = completion(target.server, _PROMPT, target.slow_tokens)
    body |= {"stream": True, "logprobs": _LOGPROBS}
    async with _narrow(target.server.port) as (reader, writer):
        writer.write(post(target.server, "/v1/completions", body))
        while await reader.read(1):
            tally["slow http: bytes read"] += 1
            await asyncio.sleep(_PAUSE_S)
    tally["slow http: closed by the server"] += 1
    await asyncio.Event().wait()


async def slow_grpc_reader(target: Target, tally: Tally) -> None:
    """The same over gRPC, a message now and then from a window that holds few."""
    options = (
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", _SMALL_WINDOW),
    )
    message = generate_request(target.server, _PROMPT, target.slow_tokens)
    message.sampling.logprobs = _LOGPROBS
    async with grpc.aio.insecure_channel(target.server.grpc_address, options=options) as channel:
        call = pb_grpc.GenerationServiceStub(channel).Generate(
            message, metadata=metadata(target.server)
        )
        while await call.read() is not grpc.aio.EOF:
            tally["slow grpc: messages read"] += 1
            await asyncio.sleep(5 * _PAUSE_S)


async def silent_connection(target: Target, tally: Tally) -> None:
    """Connects and says nothing."""
    await _hold(target.server.port, b"", "silent", tally)


async def silent_grpc_connection(target: Target, tally: Tally) -> None:
    await _hold(target.server.grpc_port, b"", "silent grpc", tally)


async def half_a_header(target: Target, tally: Tally) -> None:
    await _hold(
        target.server.port,
        b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nx-a",
        "head",
        tally,
    )


async def half_a_body(target: Target, tally: Tally) -> None:
    whole = post(target.server, "/v1/completions", completion(target.server, _PROMPT, 4))
    await _hold(target.server.port, whole[:-10], "half body", tally)


async def garbage(target: Target, tally: Tally) -> None:
    """Random bytes at every port in turn."""
    rng = random.Random(id(tally) ^ len(tally))
    ports = (target.server.port, target.server.grpc_port, *target.coordinator_ports)
    while True:
        for port in ports:
            with contextlib.suppress(OSError, TimeoutError):
                async with connection(target.server.host, port) as (reader, writer):
                    writer.write(rng.randbytes(4096))
                    async with asyncio.timeout(_PAUSE_S):
                        await reader.read(4096)
            tally["garbage sent"] += 1
            await asyncio.sleep(_PAUSE_S)


async def endless_header(target: Target, tally: Tally) -> None:
    """A header that never ends, 64 KiB at a time."""
    start = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nx-long: "
    await _pour(target.server.port, start, b"a" * 65536, "header", tally)


async def endless_body(target: Target, tally: Tally) -> None:
    """A body without a length that never ends."""
    head = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    await _pour(target.server.port, head, b"10000\r\n" + b"a" * 65536 + b"\r\n", "body", tally)


async def great_length(target: Target, tally: Tally) -> None:
    """Declares a gigabyte."""
    head = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000000\r\n\r\n"
    await _pour(target.server.port, head, b"a" * 65536, "length", tally)


async def come_and_go(target: Target, tally: Tally) -> None:
    """Begins a stream and leaves, again and again."""
    body = completion(target.server, _PROMPT, 200) | {"stream": True}
    request = post(target.server, "/v1/completions", body)
    while True:
        with contextlib.suppress(OSError, TimeoutError):
            async with connection(target.server.host, target.server.port) as (reader, writer):
                writer.write(request)
                await asyncio.wait_for(reader.read(1), _AT_ONCE_S)
        tally["came and went"] += 1
        await asyncio.sleep(5 * _PAUSE_S)


async def fake_worker(target: Target, tally: Tally) -> None:
    """A replica without the coordinator's token, and with a made-up lease result."""
    register = coordination.Register(protocol_version=1, replica_id="fake", incarnation=1)
    replayed = coordination.WorkUp(result=coordination.GroupResult(lease_id=1))
    while True:
        for port in target.coordinator_ports:
            async with grpc.aio.insecure_channel(f"{target.server.host}:{port}") as channel:
                stub = coordination_grpc.CoordinatorServiceStub(channel)
                messages = [coordination.WorkUp(register=register), replayed]
                call = stub.Work(iter(messages), timeout=5, metadata=(("authorization", "guess"),))
                try:
                    async for _ in call:
                        tally["FAKE WORKER WAS TOLD SOMETHING"] += 1
                except grpc.aio.AioRpcError as error:
                    tally[f"fake worker: {error.code().name}"] += 1
            await asyncio.sleep(_PAUSE_S)


ATTACKS: Mapping[Attack, int] = {
    slow_http_reader: 16,
    slow_grpc_reader: 8,
    silent_connection: 15,
    silent_grpc_connection: 10,
    half_a_header: 15,
    half_a_body: 10,
    garbage: 6,
    endless_header: 4,
    endless_body: 4,
    great_length: 4,
    come_and_go: 4,
    fake_worker: 4,
}
"""A hundred clients."""


def attackers(target: Target, tally: Tally, share: float = 1.0) -> list[asyncio.Task[None]]:
    """So much of the hundred, at least one of each."""
    return [
        asyncio.create_task(_endlessly(attack, target, tally))
        for attack, count in ATTACKS.items()
        for _ in range(max(1, round(share * count)))
    ]


async def _endlessly(attack: Attack, target: Target, tally: Tally) -> None:
    """Whoever is thrown out comes back."""
    name = getattr(attack, "__name__", "attack")
    while True:
        try:
            await attack(target, tally)
        except (OSError, grpc.aio.AioRpcError) as error:
            tally[f"{name}: {type(error).__name__}"] += 1
        await asyncio.sleep(_PAUSE_S)


async def _hold(port: int, beginning: bytes, name: str, tally: Tally) -> None:
    async with connection("127.0.0.1", port) as (reader, writer):
        writer.write(beginning)
        while await reader.read(1024):
            pass
    tally[f"{name}: given up by the server"] += 1


async def _pour(port: int, start: bytes, more: bytes, name: str, tally: Tally) -> None:
    """A stroke a second until the server has had enough."""
    async with connection("127.0.0.1", port) as (reader, writer):
        writer.write(start)
        answer = asyncio.ensure_future(reader.read(64))
        while not answer.done():
            writer.write(more)
            await writer.drain()
            tally[f"{name}: pieces taken"] += 1
            await asyncio.wait({answer}, timeout=_PAUSE_S)
        said = answer.result().split(b" ")[1:2]
    tally[f"{name}: ended with {said[0].decode() if said else 'nothing'}"] += 1


@contextlib.asynccontextmanager
async def _narrow(port: int) -> Any:
    """A connection with a small receive buffer and nothing read ahead."""
    link = socket.socket()
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL_WINDOW)
    link.setblocking(False)
    await asyncio.get_running_loop().sock_connect(link, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=link, limit=_SMALL_WINDOW)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
