"""ASGI middleware of the HTTP API: HEAD, the log of requests, spans, pages, limits of bodies.

A browser lets a page send any server a request with a content type that forms have. A page whose
host name leads to 127.0.0.1 can read the answers of a server there (DNS rebinding). A body that is
too large is refused before it is read whole. One that comes too slowly is refused as well.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Collection, Coroutine
from typing import Any, TypeAlias

from fastapi import Request
from fastapi.responses import Response
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.api.http.errors import error_response
from deployments.api.http.responses import Shape
from deployments.config.web import ANY
from deployments.errors import BodyTooLargeError, DeadlineError, MediaTypeError
from deployments.ingress.auth import Access
from deployments.ingress.generation import GenerationService
from deployments.ingress.request_log import recorded
from deployments.observability.tracing import names
from deployments.observability.tracing.requests import Operation
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
        is_http = scope["type"] == "http"
        codings = Headers(scope=scope).getlist("content-encoding") if is_http else ()
        coding = ", ".join(codings).strip().lower()
        if coding in ("", "identity"):
            await self._app(scope, receive, send)
        elif coding in _CODINGS:
            await self._app(scope, _Plain(receive, coding, self._max_bytes).receive, send)
        else:
            refusal = error_response(
                MediaTypeError(
                    f"Content-Encoding {coding[:80]!r} is not supported: send gzip, deflate or none"
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
                f"the decompressed body has more than {self._max_bytes} bytes, the limit "
                "(max_body_bytes)"
            )
        if self._reader.unused_data:
            raise self._wrong("it has data after its end")
        return body

    def _wrong(self, reason: str) -> InvalidRequestError:
        return InvalidRequestError(f"the body is not valid {self._coding}: {reason}")


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
        num_bytes = 0
        deadline: float | None = asyncio.get_running_loop().time() + self._timeout_s

        async def counted() -> Message:
            nonlocal num_bytes, deadline
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise DeadlineError(
                    f"the body did not arrive within {self._timeout_s:g} s"
                ) from None
            if message["type"] == "http.disconnect" and deadline is not None:
                raise DeadlineError("the client disconnected before it had sent the whole body")
            num_bytes += len(message.get("body", b""))
            if num_bytes > self._max_bytes:
                raise BodyTooLargeError(self._message())
            if not message.get("more_body", False):
                deadline = None  # what comes now is the client's departure
            return message

        await self._app(scope, counted, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        await error_response(BodyTooLargeError(self._message()))(scope, receive, send)

    def _message(self) -> str:
        return f"the body has more than {self._max_bytes} bytes, the limit (max_body_bytes)"


def _declared_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0


_ASKED_FIRST = ("application/json", "application/octet-stream")
"""Content types that a browser asks the server about before it sends them; so are those that end
with `+json`."""


class WebGuard:
    """ASGI middleware that refuses requests of unknown pages.

    A host name that a loopback server does not answer is 403. A content type that any page may send
    is 415, unless the page is the server's own or of one of `origins`.
    """

    def __init__(self, app: ASGIApp, access: Access, origins: Collection[str]) -> None:
        self._app = app
        self._access = access
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            try:
                for host in headers.getlist("host"):
                    self._access.check_host(host)
                if scope["method"] == "POST":
                    self._check_page(headers)
            except Exception as error:
                await error_response(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check_page(self, headers: Headers) -> None:
        """Programs send no `Origin`, so curl's own content type passes."""
        origin = headers.get("origin")
        if origin is None or self._is_known(origin, headers.get("host", "")):
            return
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in _ASKED_FIRST and not kind.endswith("+json"):
            raise MediaTypeError(
                f"Content-Type {kind[:80]!r} is not accepted from a page of "
                f"{origin[:200]!r}: send application/json, and add the origin to "
                "cors_origins (--cors-origins)"
            )

    def _is_known(self, origin: str, host: str) -> bool:
        is_same = origin.partition("://")[2] == host
        return is_same or origin in self._origins or ANY in self._origins


Route: TypeAlias = Callable[[Request], Coroutine[Any, Any, Response]]


def traced(service: GenerationService, shape: Shape, call: Route) -> Route:
    """Return `call` within the span of its request to `service`."""
    operation = Operation.CHAT if shape.is_chat else Operation.TEXT

    async def route(request: Request) -> Response:
        attributes = {names.HTTP_METHOD: request.method, names.HTTP_ROUTE: request.url.path}
        with service.spans.of(
            operation, request.headers, attributes, id_prefix=f"{shape.id_prefix}-"
        ):
            return await call(request)

    return route


class HeadAsGet:
    """ASGI middleware: every path that answers GET answers HEAD."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def without_body(message: Message) -> None:
            is_body = message["type"] == "http.response.body"
            await send({**message, "body": b""} if is_body else message)

        await self._app({**scope, "method": "GET"}, receive, without_body)


class RequestLines:
    """ASGI middleware: a line for every POST to one of `paths`, when its answer has left."""

    def __init__(self, app: ASGIApp, paths: Collection[str]) -> None:
        self._app = app
        self._paths = frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_recorded = scope["type"] == "http" and scope["method"] == "POST"
        if not (is_recorded and scope["path"] in self._paths):
            await self._app(scope, receive, send)
            return
        with recorded("http", scope["path"]):
            await self._app(scope, receive, send)
