"""Protection from web pages that the server does not know.

A browser lets a page send any server a request with a content type that forms have. A page whose
host name leads to 127.0.0.1 can read the answers of a server there (DNS rebinding).
"""

from __future__ import annotations

from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from deployments.api.http.errors import error_response
from deployments.config.web import ANY
from deployments.errors import MediaTypeError
from deployments.ingress.auth import Access

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
