"""Asks over gRPC, and reads the pool's status."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import grpc

from benchmarks.chaos.answers import Attempt, AttemptError, Failure
from deployments.wire.endpoint import MESSAGE_OPTIONS
from specdec.v1 import generation_pb2 as pb
from specdec.v1 import generation_pb2_grpc as pb_grpc

_RETRYABLE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)
_OPTIONS = (
    *MESSAGE_OPTIONS,
    # A proxy is back within seconds: who waits longer between attempts measures himself.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
)


class GrpcClient:
    """GenerationService."""

    def __init__(self, stub: pb_grpc.GenerationServiceStub) -> None:
        self._stub = stub

    async def ask(self, attempt: Attempt) -> None:
        """Fill `attempt`. Raises AttemptError."""
        message = attempt.asked.message()
        try:
            if attempt.asked.way.is_streamed:
                async for part in self._stub.Generate(message):
                    _take(attempt, part)
            else:
                _take(attempt, await self._stub.GenerateOnce(message))
        except grpc.aio.AioRpcError as error:
            raise AttemptError(_failure(error)) from error
        if not attempt.finish_reason:
            told = "the stream ended without a finish reason"
            raise AttemptError(Failure(kind="cut", message=told, says_retry=False))

    async def status(self, timeout_s: float) -> pb.PoolStatusResponse | None:
        """None where nobody tells it in time."""
        try:
            status: pb.PoolStatusResponse = await self._stub.PoolStatus(
                pb.PoolStatusRequest(), timeout=timeout_s
            )
        except grpc.aio.AioRpcError:
            return None
        return status


@contextlib.asynccontextmanager
async def grpc_client(port: int) -> AsyncIterator[GrpcClient]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=_OPTIONS) as channel:
        yield GrpcClient(pb_grpc.GenerationServiceStub(channel))


def _take(attempt: Attempt, part: pb.GenerateResponse) -> None:
    reason = pb.FinishReason.Name(part.finish_reason) if part.finish_reason else None
    attempt.take(part.token_ids, part.text, reason)


def _failure(error: grpc.aio.AioRpcError) -> Failure:
    return Failure(
        kind=f"gRPC {error.code().name}",
        message=str(error.details())[:300],
        says_retry=error.code() in _RETRYABLE,
    )
