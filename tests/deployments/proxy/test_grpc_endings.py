"""The statuses that Serve's own gRPC server sends when an ingress replica has died."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc
import pytest

from specdec.v1 import generation_pb2 as pb
from tests.deployments.proxy.grpc_server import generation_of

DEAD = "The actor 140b is unavailable: Actor is unavailable.. The task may have been executed."

DETAILS = "grpc-status-details-bin"

ROUTELESS = "Application metadata not set. Ping /ray.serve.RayServeAPIService/ListApplications"
"""Of a proxy that has just been started."""


def handlers(code: grpc.StatusCode, details: str) -> Callable[..., Any]:
    """As Serve's proxy makes them: they set a status and end."""

    def factory(service_method: str, streaming_type: Any) -> Callable[..., Any]:
        async def unary(request: Any, context: Any) -> bytes:
            context.set_code(code)
            context.set_details(details)
            return b""

        async def stream(request: Any, context: Any) -> AsyncIterator[bytes]:
            yield pb.GenerateResponse(text="first").SerializeToString()
            context.set_code(code)
            context.set_details(details)

        return stream if streaming_type.name == "UNARY_STREAM" else unary

    return factory


async def ends(code: grpc.StatusCode, details: str) -> list[tuple[grpc.StatusCode, str]]:
    """How GenerateOnce and Generate end."""
    found = []
    async with generation_of(handlers(code, details)) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await stub.GenerateOnce(pb.GenerateRequest())
        found.append((error.value.code(), error.value.details()))
        call = stub.Generate(pb.GenerateRequest())
        assert (await call.read()).text == "first"
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call.read()
        found.append((error.value.code(), error.value.details()))
    return found


@pytest.mark.parametrize(
    ("code", "details"),
    [(grpc.StatusCode.INTERNAL, DEAD), (grpc.StatusCode.NOT_FOUND, ROUTELESS)],
)
def test_who_may_send_the_call_again_is_told_so(code: grpc.StatusCode, details: str) -> None:
    for told, words in asyncio.run(ends(code, details)):
        assert told is grpc.StatusCode.UNAVAILABLE
        assert "again" in words


@pytest.mark.parametrize(
    ("code", "details"),
    [
        (grpc.StatusCode.INTERNAL, "internal error"),
        (grpc.StatusCode.NOT_FOUND, "model 'x' is not served here: use 'y'"),
        (grpc.StatusCode.INVALID_ARGUMENT, "The actor in the prompt is too old"),
    ],
)
def test_any_other_end_is_left_as_it_is(code: grpc.StatusCode, details: str) -> None:
    assert asyncio.run(ends(code, details)) == [(code, details)] * 2


def refusing(messages: Sequence[pb.GenerateResponse]) -> Callable[..., Any]:
    """As Serve's proxy passes on a stream that the ingress refuses after these messages."""

    def factory(service_method: str, streaming_type: Any) -> Callable[..., Any]:
        async def stream(request: Any, context: Any) -> AsyncIterator[bytes]:
            for message in messages:
                yield message.SerializeToString()
            context.set_code(grpc.StatusCode.INVALID_ARGUMENT)
            context.set_details("temperature is -1: the minimum is 0")
            context.set_trailing_metadata([(DETAILS, b"packed")])
            yield pb.GenerateResponse().SerializeToString()

        return stream

    return factory


@pytest.mark.parametrize("texts", [[], ["first"], ["first", "second"]])
async def test_the_trailers_of_an_error_come_without_the_message_that_brought_them(
    texts: list[str],
) -> None:
    messages = [pb.GenerateResponse(text=text) for text in texts]
    async with generation_of(refusing(messages)) as stub:
        call = stub.Generate(pb.GenerateRequest())
        assert [await call.read() for _ in messages] == messages
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call.read()
        assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert dict(error.value.trailing_metadata() or ())[DETAILS] == b"packed"
