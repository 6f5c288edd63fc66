"""`/ready` of a proxy that Serve drains, for which the proxy's own state counts too.

Serve drains a proxy when its node has lost its last replica, as in every redeploy. The proxy serves
for a while, then it is gone. The ingress that answers `/ready` through it is on another node.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

READY = "/ready"
_HEALTH = "/-/healthz"
"""Serve's own health: 503 while the proxy is drained, or knows no application yet."""
STAYS_READY_S = 5.0
"""Seconds that a drained proxy stays ready, in which another node's ready proxy must be seen.

That proxy becomes ready when this one is drained. The time is shorter than
RAY_SERVE_PROXY_MIN_DRAINING_PERIOD_S, by what lists of endpoints take.
"""


class Leaving:
    """Decides whether a drained proxy has been ready for long enough."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._leaves_at: float | None = None
        """Time from which the proxy counts as not ready. None: the proxy stays."""

    def has_left(self, *, is_healthy: bool) -> bool:
        """Return whether the proxy counts as not ready. `is_healthy`: its own health now."""
        if is_healthy:
            self._leaves_at = None
            return False
        if self._leaves_at is None:
            self._leaves_at = self._clock() + STAYS_READY_S
        return self._clock() >= self._leaves_at


class Readiness:
    """ASGI middleware around the proxy."""

    def __init__(self, app: ASGIApp, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._leaving = Leaving(clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == READY and await self._is_leaving(scope):
            answer = JSONResponse({"status": "this node's proxy is drained"}, status_code=503)
            await answer(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _is_leaving(self, scope: Scope) -> bool:
        return self._leaving.has_left(is_healthy=await self._health(scope) == 200)

    async def _health(self, scope: Scope) -> int:
        """Return the status of Serve's own route."""
        statuses: list[int] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        own = {**scope, "path": _HEALTH, "raw_path": _HEALTH.encode(), "query_string": b""}
        await self._app(own, receive, send)
        return statuses[0]
