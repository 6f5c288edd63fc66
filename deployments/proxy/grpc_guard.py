"""Ends the gRPC streams of clients that do not read, as proxy/http_guard.py ends such connections.

Without this, gRPC waits forever with a message for which a client gives no room. Answers to pings
prove nothing about the client. Python can do no more to a server's call than send its status. A
client that resumes reading finds the status after what had been sent. Until then its connection
keeps one message.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import grpc

from deployments.proxy.http_guard import EdgeLimits
from deployments.wire.liveness import Watchdog

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
