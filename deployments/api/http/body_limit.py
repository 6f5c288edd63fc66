"""Refuses request bodies that are too large, before they are read whole, or come too slowly."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.api.http.errors import error_response
from deployments.errors import BodyTooLargeError, DeadlineError

BODY_TIMEOUT_S = 60.0
"""Maximum seconds until a body has come. Its request takes a slot of an ingress meanwhile."""


class BodyLimit:
    """ASGI middleware: 413 for a declared or an actual body of more than `max_bytes`, 408 for one
    that has not come within `timeout_s`."""

    def __init__(self, app: ASGIApp, max_bytes: int, timeout_s: float) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if _declared_length(scope) > self._max_bytes:
            await self._refuse(scope, receive, send)
            return
        num_bytes, deadline = 0, self._deadline()

        async def counted() -> Message:
            nonlocal num_bytes, deadline
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise DeadlineError(f"the body did not come within {self._timeout_s:g} s") from None
            if message["type"] == "http.disconnect" and deadline is not None:
                raise DeadlineError("the client left before its body was whole")
            num_bytes += len(message.get("body", b""))
            if num_bytes > self._max_bytes:
                raise BodyTooLargeError(self._message())
            if not message.get("more_body", False):
                deadline = None  # what comes now is the client's departure
            return message

        await self._app(scope, counted, send)

    def _deadline(self) -> float | None:
        return asyncio.get_running_loop().time() + self._timeout_s

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        await error_response(BodyTooLargeError(self._message()))(scope, receive, send)

    def _message(self) -> str:
        return f"the body has more than {self._max_bytes} bytes, the limit (max_body_bytes)"


def _declared_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0
