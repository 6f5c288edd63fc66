"""The address of a coordinator's server, its token, and the connection to it."""

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
"""Groups, and messages that a slow ingress has not read, may exceed gRPC's default of 4 MiB.

message_limits.py bounds what a coordinator accepts.
"""
PROBE_OPTIONS = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
)
"""Options that detect a peer whose machine is gone, because such a machine closes nothing.

With these the kernel gives up a connection whose bytes were not acknowledged for 10 s
(TCP_USER_TIMEOUT). Without them it does so after a quarter of an hour. The pings themselves were
not seen to end anything with grpcio 1.85. A process that hangs is noticed by its heartbeats.
"""
PING_OPTIONS = (
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
    # Without this, a client without calls may ping once in two hours.
    ("grpc.keepalive_permit_without_calls", 1),
)
"""Options of a server that accepts keepalive pings, with and without calls. Most clients send one
in 10 s or more, some in 1 s. By default gRPC ends their connections with "too many pings"."""
TOKEN_KEY = "authorization"


class Address(Protocol):
    """The way to a coordinator as its clients use it, through gRPC or a simulated network."""

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]: ...

    def channel(self) -> AbstractAsyncContextManager[Any]:
        """Return the channel for a stub. Raises OSError if there is no way."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A coordinator's address and token.

    Only callers that may talk to the coordinator's actor learn the token, which is new in every
    life of the actor.
    """

    address: str
    token: str = field(repr=False)
    tls: TlsFiles | None = None
    """None: plain text."""

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return ((TOKEN_KEY, self.token),)

    def channel(self) -> grpc.aio.Channel:
        """Return a channel, which reads the TLS files again. Raises OSError if that fails."""
        options = (*MESSAGE_OPTIONS, *PROBE_OPTIONS)
        if self.tls is None:
            return grpc.aio.insecure_channel(self.address, options=options)
        named = ("grpc.ssl_target_name_override", self.tls.name)
        credentials = self.tls.channel_credentials()
        return grpc.aio.secure_channel(self.address, credentials, options=(*options, named))
