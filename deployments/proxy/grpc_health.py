"""The standard health service, grpc.health.v1.Health, of Serve's proxies.

The proxy itself answers it, from what an ingress replica answers to GenerationService.Health. So
there is an answer when no replica is there, and a Watch outlives the replicas that it asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from ray.serve._private.proxy_request_response import gRPCStreamingType
from ray.serve.grpc_util import RayServegRPCContext

from deployments.proxy.http_middleware import Leaving
from specdec.health import health_pb2 as health
from specdec.v1 import generation_pb2 as pb

SERVICE = pb.DESCRIPTOR.services_by_name["GenerationService"].full_name
HEALTH = health.DESCRIPTOR.services_by_name["Health"].full_name
SERVICES = ("", SERVICE)
"""Names of services with a health status. "" is the whole server."""
ANSWER_S = 3.0
"""Maximum wait for an ingress replica. Serve itself waits until there is one."""
WATCH_S = 2.0
"""Time between two questions for one Watch."""
_PROXY_HEALTH = "/ray.serve.RayServeAPIService/Healthz"
"""Serve's own health: UNAVAILABLE while the proxy is drained, or knows no application yet."""

_Status = health.HealthCheckResponse.ServingStatus
_Handler = Callable[[Any, RayServegRPCContext], Awaitable[bytes]]


def add_health(server: Any) -> None:
    """Add the health service to `server`, the server of Serve's proxy, without Serve's routing."""

    def asked(method: str) -> _Handler:
        handler: _Handler = server.service_handler_factory(
            service_method=method, streaming_type=gRPCStreamingType.UNARY_UNARY
        )
        return handler

    servicer = HealthServicer(asked(_PROXY_HEALTH), asked(f"/{SERVICE}/Health"))
    server.add_passthrough_service(HEALTH)
    handlers = grpc.method_handlers_generic_handler(HEALTH, _methods(servicer))
    server.add_generic_rpc_handlers((handlers,))


class HealthServicer:
    """One method per RPC."""

    def __init__(self, proxy_health: _Handler, service_health: _Handler) -> None:
        """Both are handlers of Serve's proxy."""
        self._proxy_health = proxy_health
        self._service_health = service_health
        self._leaving = Leaving()

    async def check(
        self, message: health.HealthCheckRequest, context: Any
    ) -> health.HealthCheckResponse:
        if message.service not in SERVICES:
            await context.abort(
                grpc.StatusCode.NOT_FOUND,
                f"service {message.service!r} is unknown: use {SERVICE!r} or ''",
            )
        return health.HealthCheckResponse(status=await self._status(context))

    async def list(
        self, message: health.HealthListRequest, context: Any
    ) -> health.HealthListResponse:
        found = health.HealthCheckResponse(status=await self._status(context))
        return health.HealthListResponse(statuses=dict.fromkeys(SERVICES, found))

    async def watch(
        self, message: health.HealthCheckRequest, context: Any
    ) -> AsyncIterator[health.HealthCheckResponse]:
        is_known, last = message.service in SERVICES, None
        while True:
            status = await self._status(context) if is_known else _Status.SERVICE_UNKNOWN
            if status != last:
                yield health.HealthCheckResponse(status=status)
            last = status
            await asyncio.sleep(WATCH_S)

    async def _status(self, context: Any) -> _Status:
        """Return the status. Ends the call of a client that may not ask."""
        code, _ = await _answer(self._proxy_health, None, context)  # it reads no message
        is_leaving = self._leaving.has_left(is_healthy=code is grpc.StatusCode.OK)
        code, answer = await _answer(self._service_health, pb.HealthRequest(), context)
        if code is grpc.StatusCode.PERMISSION_DENIED:
            await context.abort(
                code, "this server answers local callers only: start it with --host"
            )
        is_ready = code is grpc.StatusCode.OK and pb.HealthResponse.FromString(answer).ready
        return _Status.SERVING if is_ready and not is_leaving else _Status.NOT_SERVING


async def _answer(handler: _Handler, message: Any, context: Any) -> tuple[grpc.StatusCode, bytes]:
    """Return how `handler` answers the client of `context`, without ending the client's call."""
    own = RayServegRPCContext(context)
    try:
        answer = await asyncio.wait_for(handler(message, own), ANSWER_S)
    except TimeoutError:
        return grpc.StatusCode.DEADLINE_EXCEEDED, b""
    return own.code() or grpc.StatusCode.OK, answer


def _methods(servicer: HealthServicer) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
    return {
        "Check": grpc.unary_unary_rpc_method_handler(
            servicer.check,
            health.HealthCheckRequest.FromString,
            health.HealthCheckResponse.SerializeToString,
        ),
        "List": grpc.unary_unary_rpc_method_handler(
            servicer.list,
            health.HealthListRequest.FromString,
            health.HealthListResponse.SerializeToString,
        ),
        "Watch": grpc.unary_stream_rpc_method_handler(
            servicer.watch,
            health.HealthCheckRequest.FromString,
            health.HealthCheckResponse.SerializeToString,
        ),
    }
