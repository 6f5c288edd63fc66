"""Limits for gRPC clients of Serve's proxies: bursts of calls, keepalive pings, unread answers.

By default gRPC cancels a call that the server did not accept within 30 s, and refuses calls when
1000 to 3000 wait. The client gets CANCELLED, which names no reason and no time for a retry.

By default gRPC also accepts one ping in five minutes while the server sends nothing, as to a stream
that waits in the queue. After the third ping too many it ends the connection with UNAVAILABLE.

gRPC waits forever with a message for which a client gives no room. Answers to pings prove nothing
about the client. So streams of clients that do not read are ended, as proxy/http_guard.py ends such
connections. Python can do no more to a server's call than send its status. A client that resumes
reading finds the status after what had been sent. Until then its connection keeps one message.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import grpc

from deployments.proxy.http_guard import EdgeLimits
from deployments.wire.endpoint import PING_OPTIONS
from deployments.wire.liveness import Watchdog

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


UNREAD_S = EdgeLimits().unread_s


async def write_all(responses: AsyncGenerator[Any], context: Any) -> None:
    """Write every response, unless one waits too long for its reader.

    An empty response is not written. An ingress sends it to pass on the trailers of an error
    (api/grpc/service.py).
    """
    watch = Watchdog(UNREAD_S)
    try:
        async for response in responses:
            if not response:
                continue
            watch.begin()
            await context.write(response)
            watch.pause()
    except asyncio.CancelledError:
        is_unread = watch.takes_back()
        if is_unread:
            context.set_code(grpc.StatusCode.DEADLINE_EXCEEDED)
            context.set_details(f"the client read nothing of this answer for {UNREAD_S:g} s")
        await _give_up(responses)
        if not is_unread:
            raise
    except Exception:  # gRPC's own, where a client leaves while a message waits for it
        await _give_up(responses)
        raise
    finally:
        watch.end()


async def _give_up(responses: AsyncGenerator[Any]) -> None:
    """Act as if the client had left while it waited, which is all that Serve reports to the
    ingress."""
    waiting = asyncio.ensure_future(_drop(responses))
    try:
        await asyncio.sleep(0)
    finally:  # gRPC may cancel its handler twice
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting


async def _drop(responses: AsyncGenerator[Any]) -> None:
    async for _ in responses:
        pass
