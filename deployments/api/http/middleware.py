"""ASGI middleware of the HTTP API: HEAD, the log of requests, spans, protection from web pages.

A browser lets a page send any server a request with a content type that forms have. A page whose
host name leads to 127.0.0.1 can read the answers of a server there (DNS rebinding).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from typing import Any, TypeAlias

from fastapi import Request
from fastapi.responses import Response
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.api.http.errors import error_response
from deployments.api.http.responses import Shape
from deployments.config.web import ANY
from deployments.errors import MediaTypeError
from deployments.ingress.auth import Access
from deployments.ingress.generation import GenerationService
from deployments.ingress.request_log import recorded
from deployments.observability.tracing import names
from deployments.observability.tracing.requests import Operation

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
                f"Content-Type {kind[:80]!r} from a page of {origin[:200]!r} is not read: send "
                "application/json, and name the origin in cors_origins (--cors-origins)"
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
        is_told = scope["type"] == "http" and scope["method"] == "POST"
        if not (is_told and scope["path"] in self._paths):
            await self._app(scope, receive, send)
            return
        with recorded("http", scope["path"]):
            await self._app(scope, receive, send)
