"""Where a coordinator's server is, the token that opens it, and how one connects to it."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import grpc

from deployments.wire.tls_files import TlsFiles

MESSAGE_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
)
"""Groups and what a slow ingress has yet to read may exceed gRPC's default of 4 MiB. What a
coordinator takes in is bounded (message_limits.py)."""
PROBE_OPTIONS = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
)
"""A peer whose machine is gone closes nothing. With these the kernel gives up a connection whose
bytes were not acknowledged for 10 s (TCP_USER_TIMEOUT), instead of after a quarter of an hour. The
pings themselves were not seen to end anything with grpcio 1.85: a process that hangs is noticed by
its heartbeats."""
PING_OPTIONS = (
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
    # Without this, a client without calls may ping once in two hours.
    ("grpc.keepalive_permit_without_calls", 1),
)
"""Options of a server that accepts keepalive pings, with and without calls. Most clients send one
in 10 s or more, some in 1 s. By default gRPC ends their connections with "too many pings"."""
TOKEN_KEY = "authorization"


class Address(Protocol):
    """The way to a coordinator, as its clients take it: gRPC, or a simulated network."""

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]: ...

    def channel(self) -> AbstractAsyncContextManager[Any]:
        """What a stub is made of. Raises OSError where there is no way."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Only who may talk to the coordinator's actor learns its token, a new one in every life."""

    address: str
    token: str = field(repr=False)
    tls: TlsFiles | None = None
    """None: plain text."""

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return ((TOKEN_KEY, self.token),)

    def channel(self) -> grpc.aio.Channel:
        """A new one reads the TLS files again. Raises OSError where that fails."""
        options = (*MESSAGE_OPTIONS, *PROBE_OPTIONS)
        if self.tls is None:
            return grpc.aio.insecure_channel(self.address, options=options)
        named = ("grpc.ssl_target_name_override", self.tls.name)
        credentials = self.tls.channel_credentials()
        return grpc.aio.secure_channel(self.address, credentials, options=(*options, named))
