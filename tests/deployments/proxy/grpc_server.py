"""Serve's own gRPC server, without Ray."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any
from unittest.mock import Mock

import grpc
from ray.serve._private.grpc_util import gRPCGenericServer

from deployments.proxy.grpc_errors import add_generation_service
from specdec.v1 import generation_pb2_grpc as pb_grpc


@contextlib.asynccontextmanager
async def channel_to(
    handlers: Callable[..., Any], add: Callable[[Any, Any], None] = add_generation_service
) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to a server with the services that `add` adds, and Serve's kind of `handlers`."""
    server = gRPCGenericServer(handlers, extra_options=[])
    add(Mock(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    await server.stop(None)


@contextlib.asynccontextmanager
async def generation_of(
    handlers: Callable[..., Any],
) -> AsyncIterator[pb_grpc.GenerationServiceStub]:
    """A client of GenerationService on such a server."""
    async with channel_to(handlers) as channel:
        yield pb_grpc.GenerationServiceStub(channel)
