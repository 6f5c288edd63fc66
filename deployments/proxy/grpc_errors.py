"""Ends a gRPC call that no ingress replica can end, with UNAVAILABLE and a request to retry.

Without this, Serve's proxy reports INTERNAL, with the name of an actor, if a replica died. It
reports NOT_FOUND while it has just been started and knows no application yet.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import grpc

from deployments.proxy.grpc_guard import write_all
from deployments.proxy.http_middleware import DIED, STARTING
from specdec.v1 import generation_pb2_grpc as pb_grpc

_WORDED = {
    # Ray's message about an actor that is dead or cannot be reached begins like this.
    (grpc.StatusCode.INTERNAL, "The actor "): DIED,
    (grpc.StatusCode.NOT_FOUND, "Application metadata not set."): STARTING,
}

_Handler = Callable[..., Any]


def add_generation_service(servicer: Any, server: Any) -> None:
    """Add GenerationService to `server`, the server of Serve's proxy.

    `server` replaces every method by what its factory makes.
    """
    factory = server.service_handler_factory
    server.service_handler_factory = lambda **method: _ending_well(factory(**method))
    try:
        pb_grpc.add_GenerationServiceServicer_to_server(servicer, server)
    finally:
        server.service_handler_factory = factory


def _ending_well(handle: _Handler) -> _Handler:
    if inspect.isasyncgenfunction(handle):

        async def stream(request: Any, context: Any) -> None:
            await write_all(handle(request, context), context)
            _word(context)

        return stream

    async def unary(request: Any, context: Any) -> Any:
        response = await handle(request, context)
        _word(context)
        return response

    return unary


def _word(context: Any) -> None:
    for (code, beginning), words in _WORDED.items():
        if context.code() is code and str(context.details()).startswith(beginning):
            context.set_code(grpc.StatusCode.UNAVAILABLE)
            context.set_details(words)
