"""Ends an HTTP answer that no ingress replica can end: 503 with Retry-After, or an error event.

Without this, Serve's proxy answers 500 or cuts the connection if a replica died. It answers 404
while it has just been started and knows no replica yet.
"""

from __future__ import annotations

import json

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


class ProxyErrors:
    """ASGI middleware around the proxy: completes what the application left incomplete."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send, is_ours=not scope["path"].startswith(_SERVES_OWN))
        await self._app(scope, receive, answer.pass_on)
        await answer.complete()


class _Answer:
    """One answer on its way to the client."""

    def __init__(self, send: Send, *, is_ours: bool) -> None:
        self._send = send
        self._is_ours = is_ours
        self._has_begun = False
        self._is_complete = False
        self._is_event_stream = False

    async def pass_on(self, message: Message) -> None:
        if self._is_complete:
            return
        if message["type"] == "http.response.start":
            kind = dict(message.get("headers") or ()).get(b"content-type", b"")
            # The service itself answers for every path, and in JSON.
            if self._is_ours and message["status"] == 404 and kind.startswith(b"text/plain"):
                await self._refuse(STARTING)
                return
            self._has_begun = True
            self._is_event_stream = kind.startswith(b"text/event-stream")
        elif message["type"] == "http.response.body":
            self._is_complete = not message.get("more_body", False)
        await self._send(message)

    async def complete(self) -> None:
        """End an incomplete answer. Nothing can be added to another body that has begun, so it is
        cut."""
        if self._is_complete:
            return
        if not self._has_begun:
            await self._refuse(DIED)
        elif self._is_event_stream:
            end = server_sent(error_body(PoolUnavailableError(DIED))) + END
            await self._send({"type": "http.response.body", "body": end.encode()})

    async def _refuse(self, message: str) -> None:
        self._is_complete = True
        body = json.dumps(error_body(PoolUnavailableError(message))).encode()
        headers = [(b"content-type", b"application/json"), (b"retry-after", _RETRY_AFTER_S)]
        headers.append((b"content-length", str(len(body)).encode()))
        await self._send({"type": "http.response.start", "status": 503, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})
