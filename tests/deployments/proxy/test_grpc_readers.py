"""A gRPC client that does not read loses its stream; one that is merely slow does not."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any
from unittest.mock import AsyncMock, Mock

import grpc
import pytest

from deployments.proxy import grpc_guard as grpc_readers
from specdec.v1 import generation_pb2 as pb
from tests.deployments.proxy.grpc_server import generation_of

UNREAD_S = 0.5
LARGE = pb.GenerateResponse(text="x" * 2**20)
"""More than a client lets wait on its way."""


class Answers:
    """As Serve's proxy: waits for the ingress, passes on, and notes whether it was told to stop."""

    def __init__(self, num_pieces: int, pause_s: float = 0.0) -> None:
        self.num_sent = 0
        self.was_cancelled = False
        self._num_pieces = num_pieces
        self._pause_s = pause_s

    def handler(self, service_method: str, streaming_type: Any) -> Callable[..., Any]:
        async def stream(request: Any, context: Any) -> AsyncIterator[bytes]:
            try:
                for _ in range(self._num_pieces):
                    await asyncio.sleep(self._pause_s)
                    yield LARGE.SerializeToString()
                    self.num_sent += 1
            except asyncio.CancelledError:
                self.was_cancelled = True
                if not context.code():
                    context.set_code(grpc.StatusCode.CANCELLED)

        return stream


@contextlib.asynccontextmanager
async def stream_of(answers: Answers) -> AsyncIterator[Any]:
    """What a client of Generate reads from."""
    async with generation_of(answers.handler) as stub:
        yield stub.Generate(pb.GenerateRequest())


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_readers, "UNREAD_S", UNREAD_S)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


async def test_who_does_not_read_is_given_up_and_the_request_with_it() -> None:
    answers = Answers(1000)
    async with stream_of(answers) as stream:
        assert await stream.read() == LARGE
        await until(lambda: answers.was_cancelled)
        assert answers.num_sent < 100
        with contextlib.suppress(grpc.aio.AioRpcError):
            while await stream.read() != grpc.aio.EOF:
                pass
        assert await stream.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "read" in await stream.details()


async def test_who_leaves_without_having_read_ends_the_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = Answers(1000)
    monkeypatch.setattr(grpc_readers, "UNREAD_S", 600.0)
    async with stream_of(answers) as stream:
        assert await stream.read() == LARGE
        stream.cancel()
        await until(lambda: answers.was_cancelled)


async def test_a_message_that_cannot_be_sent_ends_the_request() -> None:
    """So gRPC tells now and then of a client that leaves while a message waits for it."""
    answers = Answers(1000)
    context = Mock(write=AsyncMock(side_effect=RuntimeError("Failed execute_batch")))
    context.code.return_value = None
    stream = answers.handler("Generate", None)(pb.GenerateRequest(), context)
    with pytest.raises(RuntimeError, match="execute_batch"):
        await grpc_readers.write_all(stream, context)
    assert answers.was_cancelled


@pytest.mark.parametrize(("writes_s", "reads_s"), [(0.0, 0.3), (0.75, 0.0)])
async def test_slow_readers_and_slow_answers_take_as_long_as_they_take(
    writes_s: float, reads_s: float
) -> None:
    num_pieces = 3 if reads_s else 2
    async with stream_of(Answers(num_pieces, writes_s)) as stream:
        for _ in range(num_pieces):
            assert await stream.read() == LARGE
            await asyncio.sleep(reads_s)
        assert await stream.read() == grpc.aio.EOF
