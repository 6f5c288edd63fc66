"""ASGI middleware of request bodies: limits of size and time, and compressed bodies.

A body that is too large is refused before it is read whole. One that comes too slowly is refused as
well.
"""

from __future__ import annotations

import asyncio
import zlib

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.api.http.errors import error_response
from deployments.errors import BodyTooLargeError, DeadlineError, MediaTypeError
from specdec_core.errors import InvalidRequestError

_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
"""zlib finds out which of the two it is."""
_CODINGS = ("gzip", "x-gzip", "deflate")


class BodyCoding:
    """ASGI middleware that unpacks gzip and deflate, up to `max_bytes`. Other codings are 415."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        coding = _coding_of(scope)
        if coding in ("", "identity"):
            await self._app(scope, receive, send)
        elif coding in _CODINGS:
            await self._app(scope, _Plain(receive, coding, self._max_bytes).receive, send)
        else:
            refusal = error_response(
                MediaTypeError(
                    f"Content-Encoding {coding[:80]!r} is not read: send gzip, deflate or none"
                )
            )
            refusal.headers["Accept-Encoding"] = "gzip, deflate"
            await refusal(scope, receive, send)


class _Plain:
    """A body as it was before it was compressed."""

    def __init__(self, receive: Receive, coding: str, max_bytes: int) -> None:
        self._receive = receive
        self._coding = coding
        self._max_bytes = max_bytes
        self._left = max_bytes
        self._reader = zlib.decompressobj(_GZIP_OR_ZLIB)

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] != "http.request":
            return message
        body = self._read(message.get("body", b""))
        if not message.get("more_body", False) and not self._reader.eof:
            raise self._wrong("it ends too early")
        return {**message, "body": body}

    def _read(self, data: bytes) -> bytes:
        try:
            body = self._reader.decompress(data, self._left + 1)
        except zlib.error as error:
            raise self._wrong(str(error)) from None
        self._left -= len(body)
        if self._left < 0:
            raise BodyTooLargeError(
                f"the body has more than {self._max_bytes} bytes when it is unpacked, "
                "the limit (max_body_bytes)"
            )
        if self._reader.unused_data:
            raise self._wrong("something follows its end")
        return body

    def _wrong(self, reason: str) -> InvalidRequestError:
        return InvalidRequestError(f"the body is not valid {self._coding}: {reason}")


def _coding_of(scope: Scope) -> str:
    if scope["type"] != "http":
        return ""
    return ", ".join(Headers(scope=scope).getlist("content-encoding")).strip().lower()


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
