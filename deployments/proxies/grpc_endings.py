"""How a gRPC call ends whose ingress replica died: UNAVAILABLE, and that it may be sent again.

By itself Serve's proxy says INTERNAL, with the name of an actor.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from deployments.proxies.http_endings import DIED
from specdec.v1 import generation_pb2_grpc as pb_grpc

_DEAD_ACTOR = "The actor "
"""So begins what Ray says of an actor that is dead or cannot be reached."""

_Handler = Callable[..., Any]


def add_generation_service(servicer: Any, server: Any) -> None:
    """For grpc_options.grpc_servicer_functions. `server` is Serve's: it takes the place of every
    method by what its factory makes."""
    factory = server.service_handler_factory
    server.service_handler_factory = lambda **method: _ending_well(factory(**method))
    try:
        pb_grpc.add_GenerationServiceServicer_to_server(servicer, server)
    finally:
        server.service_handler_factory = factory


def _ending_well(handle: _Handler) -> _Handler:
    if inspect.isasyncgenfunction(handle):

        async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
            async for response in handle(request, context):
                yield response
            _word(context)

        return stream

    async def unary(request: Any, context: Any) -> Any:
        response = await handle(request, context)
        _word(context)
        return response

    return unary


def _word(context: Any) -> None:
    is_internal = context.code() is grpc.StatusCode.INTERNAL
    if is_internal and str(context.details()).startswith(_DEAD_ACTOR):
        context.set_code(grpc.StatusCode.UNAVAILABLE)
        context.set_details(DIED)
