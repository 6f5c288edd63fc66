"""Middleware of Serve's HTTP proxies: answers for an ingress replica that cannot, and `/ready`.

Serve's proxy answers 500 or cuts the connection if a replica died. It answers 404 while it has just
been started and knows no replica yet. Clients get 503 with Retry-After, or an error event.

Serve drains a proxy when its node has lost its last replica, as in every redeploy. The proxy serves
for a while, then it is gone. The ingress that answers `/ready` through it is on another node. So
the proxy's own state counts too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.api.http.sse import END, server_sent
from deployments.error_status import error_body
from deployments.errors import PoolUnavailableError

DIED = (
    "the replica that ran this request has died, or a redeploy stopped waiting for it; "
    "send it again"
)
STARTING = "the server is starting; send the request again"
_RETRY_AFTER_S = b"1"
_SERVES_OWN = "/-/"
READY = "/ready"
_HEALTH = "/-/healthz"
"""Serve's own health: 503 while the proxy is drained, or knows no application yet."""
_DRAINED = JSONResponse({"status": "this node's proxy is drained"}, status_code=503)
STAYS_READY_S = 5.0
"""Seconds that a drained proxy stays ready, in which another node's ready proxy must be seen.

That proxy becomes ready when this one is drained. The time is shorter than
RAY_SERVE_PROXY_MIN_DRAINING_PERIOD_S, by what lists of endpoints take.
"""


class ProxyAnswers:
    """ASGI middleware around the proxy: completes what the application left incomplete, and tells
    that a drained proxy is not ready."""

    def __init__(self, app: ASGIApp, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._leaving = Leaving(clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"] == READY and await self._has_left(scope):
            await _DRAINED(scope, receive, send)
            return
        answer = _Answer(send, is_ours=not scope["path"].startswith(_SERVES_OWN))
        await self._app(scope, receive, answer.pass_on)
        if not answer.is_complete:
            await answer.complete()

    async def _has_left(self, scope: Scope) -> bool:
        """Ask Serve's own route for the proxy's health."""
        statuses: list[int] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        own = {**scope, "path": _HEALTH, "raw_path": _HEALTH.encode(), "query_string": b""}
        await self._app(own, receive, send)
        return self._leaving.has_left(is_healthy=statuses == [200])


@dataclass(eq=False, slots=True)
class _Answer:
    """One answer on its way to the client."""

    send: Send
    is_ours: bool
    """The path is not one of Serve's own."""
    has_begun: bool = False
    is_complete: bool = False
    is_event_stream: bool = False

    async def pass_on(self, message: Message) -> None:
        if self.is_complete:
            return
        if message["type"] == "http.response.start":
            kind = dict(message.get("headers") or ()).get(b"content-type", b"")
            # The service itself answers for every path, and in JSON.
            if self.is_ours and message["status"] == 404 and kind.startswith(b"text/plain"):
                await self._refuse(STARTING)
                return
            self.has_begun = True
            self.is_event_stream = kind.startswith(b"text/event-stream")
        elif message["type"] == "http.response.body":
            self.is_complete = not message.get("more_body", False)
        await self.send(message)

    async def complete(self) -> None:
        """End an incomplete answer. Another body that has begun is cut: nothing can be added."""
        if not self.has_begun:
            await self._refuse(DIED)
        elif self.is_event_stream:
            end = server_sent(error_body(PoolUnavailableError(DIED))) + END
            await self.send({"type": "http.response.body", "body": end.encode()})

    async def _refuse(self, message: str) -> None:
        self.is_complete = True
        body = json.dumps(error_body(PoolUnavailableError(message))).encode()
        headers = [(b"content-type", b"application/json"), (b"retry-after", _RETRY_AFTER_S)]
        headers.append((b"content-length", str(len(body)).encode()))
        await self.send({"type": "http.response.start", "status": 503, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})


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
