"""HTTP requests in the log of requests."""

from __future__ import annotations

from collections.abc import Collection

from starlette.types import ASGIApp, Receive, Scope, Send

from deployments.ingress.request_log import recorded


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
