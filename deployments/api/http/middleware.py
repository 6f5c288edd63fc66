"""ASGI middleware of the HTTP API: HEAD, the log of requests, and what is refused unread.

A browser lets a page send any server a request with a content type that forms have. A page whose
host name leads to 127.0.0.1 can read the answers of a server there (DNS rebinding). A body that is
too large is refused before it is read whole. One that comes too slowly is refused as well.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import dataclass

from fastapi.responses import JSONResponse
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.api.http.errors import error_response
from deployments.config.web import ANY
from deployments.errors import BodyTooLargeError, DeadlineError, MediaTypeError
from deployments.ingress.auth import Access
from deployments.ingress.request_log import recorded
from specdec_core.errors import InvalidRequestError

BODY_TIMEOUT_S = 60.0
"""Maximum seconds until a body has come. Its request takes a slot of an ingress meanwhile."""
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
"""zlib finds out which of the two it is."""
_CODINGS = ("gzip", "x-gzip", "deflate")
_ASKED_FIRST = ("application/json", "application/octet-stream")
"""Content types that a browser asks the server about before it sends them; so are those that end
with `+json`."""


class RequestGuard:
    """ASGI middleware that refuses requests of unknown pages, and bodies that cost too much.

    A host name that a loopback server does not answer is 403. A content type that any page may send
    is 415, unless the page is the server's own or of one of `origins`. A body of more than
    `max_bytes`, as declared, as sent or as unpacked, is 413. One that has not come within
    `timeout_s` is 408. gzip and deflate are unpacked, and other codings are 415.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        origins: Collection[str],
        max_bytes: int,
        timeout_s: float,
    ) -> None:
        self._app = app
        self._access = access
        self._origins = frozenset(origins)
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            for host in headers.getlist("host"):
                self._access.check_host(host)
            if scope["method"] == "POST" and "origin" in headers:
                self._check_page(headers["origin"], headers)
            length = headers.get("content-length", "")
            if length.isdecimal() and int(length) > self._max_bytes:
                raise _too_large(self._max_bytes)
        except Exception as error:
            await error_response(error)(scope, receive, send)
            return
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        receive = _Body(receive, self._max_bytes, self._timeout_s, deadline).receive
        app = self._unpacking(headers) if "content-encoding" in headers else self._app
        await app(scope, receive, send)

    def _unpacking(self, headers: Headers) -> ASGIApp:
        """Return the app for a body of this coding. An unknown coding is refused."""
        coding = ", ".join(headers.getlist("content-encoding")).strip().lower()
        if coding in ("", "identity"):
            return self._app
        if coding not in _CODINGS:
            return _unknown_coding(coding)

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            unpacked = _Unpacked(receive, coding, self._max_bytes)
            await self._app(scope, unpacked.receive, send)

        return app

    def _check_page(self, origin: str, headers: Headers) -> None:
        """Programs send no origin, so curl's own content type passes."""
        is_same = origin.partition("://")[2] == headers.get("host", "")
        if is_same or origin in self._origins or ANY in self._origins:
            return
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in _ASKED_FIRST and not kind.endswith("+json"):
            raise MediaTypeError(
                f"Content-Type {kind[:80]!r} is not accepted from a page of "
                f"{origin[:200]!r}: send application/json, and add the origin to "
                "cors_origins (--cors-origins)"
            )


def _too_large(max_bytes: int) -> BodyTooLargeError:
    return BodyTooLargeError(
        f"the body has more than {max_bytes} bytes, the limit (max_body_bytes)"
    )


def _unknown_coding(coding: str) -> JSONResponse:
    refusal = error_response(
        MediaTypeError(
            f"Content-Encoding {coding[:80]!r} is not supported: send gzip, deflate or none"
        )
    )
    refusal.headers["Accept-Encoding"] = "gzip, deflate"
    return refusal


@dataclass(eq=False, slots=True)
class _Body:
    """A body as it comes from the client."""

    source: Receive
    max_bytes: int
    timeout_s: float
    deadline: float | None
    """Time of the event loop until which the body must have come. None: it has."""
    num_bytes: int = 0

    async def receive(self) -> Message:
        """Return the next part. Raises BodyTooLargeError and DeadlineError."""
        try:
            async with asyncio.timeout_at(self.deadline):
                message = await self.source()
        except TimeoutError:
            raise DeadlineError(f"the body did not arrive within {self.timeout_s:g} s") from None
        if message["type"] == "http.disconnect" and self.deadline is not None:
            raise DeadlineError("the client disconnected before it had sent the whole body")
        self.num_bytes += len(message.get("body", b""))
        if self.num_bytes > self.max_bytes:
            raise _too_large(self.max_bytes)
        if not message.get("more_body", False):
            self.deadline = None  # what comes now is the client's departure
        return message


class _Unpacked:
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
                f"the decompressed body has more than {self._max_bytes} bytes, the limit "
                "(max_body_bytes)"
            )
        if self._reader.unused_data:
            raise self._wrong("it has data after its end")
        return body

    def _wrong(self, reason: str) -> InvalidRequestError:
        return InvalidRequestError(f"the body is not valid {self._coding}: {reason}")


class HeadAsGet:
    """ASGI middleware: every path that answers GET answers HEAD."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "HEAD":
            scope, send = {**scope, "method": "GET"}, _without_body(send)
        await self._app(scope, receive, send)


def _without_body(send: Send) -> Send:
    async def pass_on(message: Message) -> None:
        is_body = message["type"] == "http.response.body"
        await send({**message, "body": b""} if is_body else message)

    return pass_on


class RequestLines:
    """ASGI middleware: a line for every POST to one of `paths`, when its answer has left."""

    def __init__(self, app: ASGIApp, paths: Collection[str]) -> None:
        self._app = app
        self._paths = frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        is_recorded = is_post and scope["path"] in self._paths
        with recorded("http", scope["path"]) if is_recorded else nullcontext():
            await self._app(scope, receive, send)
