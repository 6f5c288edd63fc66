"""Limits of the gRPC servers of Serve's proxies: bursts of calls and keepalive pings.

By default gRPC cancels a call that the server did not accept within 30 s, and refuses calls when
1000 to 3000 wait. The client gets CANCELLED, which names no reason and no time for a retry.

By default gRPC also accepts one ping in five minutes while the server sends nothing, as to a stream
that waits in the queue. After the third ping too many it ends the connection with UNAVAILABLE.
"""

from __future__ import annotations

from deployments.wire.endpoint import PING_OPTIONS

_LONG_S = 3600
"""Longer than a client waits, in seconds. A client that gives up cancels its call."""
_MANY = 1_000_000
_ALIVE_MS = 60_000
"""Milliseconds of silence after which a peer is pinged. It has a third of them to answer."""

SERVER_OPTIONS = (
    ("grpc.server_max_unrequested_time_in_server", _LONG_S),
    ("grpc.server.max_pending_requests", _MANY),
    ("grpc.server.max_pending_requests_hard_limit", _MANY),
    ("grpc.keepalive_time_ms", _ALIVE_MS),
    ("grpc.keepalive_timeout_ms", _ALIVE_MS // 3),
    *PING_OPTIONS,
)


def make_grpc_patient() -> None:
    """Set the limits of the gRPC servers that Serve makes in this process from now on.

    Serve has no setting for these limits.
    """
    from ray.serve._private.constants import DEFAULT_GRPC_SERVER_OPTIONS

    known = {name for name, _ in DEFAULT_GRPC_SERVER_OPTIONS}
    DEFAULT_GRPC_SERVER_OPTIONS.extend(pair for pair in SERVER_OPTIONS if pair[0] not in known)
