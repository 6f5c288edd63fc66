"""Request bodies that were compressed by their sender."""

from __future__ import annotations

import zlib

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.api.http.errors import error_response
from deployments.errors import BodyTooLargeError, MediaTypeError
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
