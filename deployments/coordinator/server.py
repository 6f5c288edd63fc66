"""The coordinator's port: which calls it accepts, how much they may send, and its time limits."""

from __future__ import annotations

import hmac
import logging
import os
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import grpc

from deployments.coordinator.driver import SchedulerDriver
from deployments.coordinator.service import REGISTER_TIMEOUT_S, CoordinatorServicer
from deployments.runtime.memory import STEADY_ALLOCATOR
from deployments.wire.endpoint import PING_OPTIONS, PROBE_OPTIONS, TOKEN_KEY, Endpoint
from deployments.wire.tls_files import TlsFiles
from specdec.v1 import coordination_pb2_grpc as pb_grpc

logger = logging.getLogger(__name__)

_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
_Context = grpc.aio.ServicerContext[Any, Any]


_GRPC_SETTINGS = {"GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener"}
"""Makes gRPC wait in the older way, in which the thread that waits for bytes also reads them. A
message then wakes one thread fewer. Only coordinators use it, because using it in all processes of
a service gained nothing (benchmarks/results/wire_cost.json)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortLimits:
    """Limits on the resources that unknown or broken peers can take of a coordinator."""

    max_message_bytes: int = 64 * 2**20
    """Maximum bytes of one message to it (wire/message_limits.py); a larger one ends its stream."""
    max_streams: int = 4096
    """Maximum streams at a time; more are refused. A cell has one per replica and ingress."""
    max_streams_per_connection: int = 64
    """Maximum streams of one connection. Our processes use one, plus a short one for a PoolStatus
    call."""
    handshake_timeout_ms: int = 10_000
    """Time limit for a connection to get as far as HTTP/2."""
    idle_timeout_ms: int = 60_000
    """Time limit for a connection without a stream."""
    register_timeout_s: float = REGISTER_TIMEOUT_S
    """Time limit for a replica's stream to register."""

    @property
    def options(self) -> tuple[tuple[str, int], ...]:
        return (
            ("grpc.so_reuseport", 0),  # no two coordinators share a port
            ("grpc.max_send_message_length", -1),
            ("grpc.max_receive_message_length", self.max_message_bytes),
            ("grpc.max_concurrent_streams", self.max_streams_per_connection),
            ("grpc.server_handshake_timeout_ms", self.handshake_timeout_ms),
            ("grpc.max_connection_idle_ms", self.idle_timeout_ms),
            *PROBE_OPTIONS,
            *PING_OPTIONS,
        )


class TokenCheck(grpc.aio.ServerInterceptor):
    """Rejects every call without the token, before any of its messages is read."""

    def __init__(self, token: str) -> None:
        self.num_refused = 0
        self._token = token.encode()
        self._refusal: _Handler = grpc.stream_stream_rpc_method_handler(self._refuse)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler | None:
        metadata = handler_call_details.invocation_metadata or ()
        given = dict(metadata).get(TOKEN_KEY, "")
        if hmac.compare_digest(_bytes(given), self._token):
            return await continuation(handler_call_details)
        return self._refusal

    async def _refuse(self, messages: object, context: _Context) -> None:
        """Reject a call. Only the first, second, fourth, eighth ... refusal is logged, so that
        callers cannot fill the log."""
        self.num_refused += 1
        if self.num_refused & (self.num_refused - 1) == 0:
            logger.warning(
                "refused %d calls without the token so far; the last is from %s",
                self.num_refused,
                context.peer(),
            )
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, "wrong token")


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode(errors="replace")


def process_settings() -> dict[str, str]:
    """Return environment variables for a coordinator's process. gRPC settings that are already in
    the environment take precedence. The allocator setting is for the hundreds of small objects of
    each lease."""
    grpc_settings = {name: os.environ.get(name, value) for name, value in _GRPC_SETTINGS.items()}
    return grpc_settings | STEADY_ALLOCATOR


async def start_server(
    driver: SchedulerDriver,
    host: str,
    *,
    tls: TlsFiles | None = None,
    limits: PortLimits | None = None,
) -> tuple[grpc.aio.Server, Endpoint]:
    """Serve CoordinatorService on a free port of `host`. Raises OSError for unreadable files."""
    limits = limits or PortLimits()
    token = secrets.token_hex(16)
    server = grpc.aio.server(
        interceptors=(TokenCheck(token),),
        options=limits.options,
        maximum_concurrent_rpcs=limits.max_streams,
    )
    servicer = CoordinatorServicer(driver, register_timeout_s=limits.register_timeout_s)
    pb_grpc.add_CoordinatorServiceServicer_to_server(servicer, server)
    address = f"{host}:0"
    if tls is None:
        port = server.add_insecure_port(address)
    else:
        port = server.add_secure_port(address, tls.server_credentials())
    await server.start()
    return server, Endpoint(address=f"{host}:{port}", token=token, tls=tls)
