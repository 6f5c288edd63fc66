"""A proxy that is drained serves for a while, and is not ready for most of it."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import Receive, Scope, Send

from deployments.proxy.http_middleware import STAYS_READY_S, ProxyAnswers


class Proxy:
    """Answers as Serve's does: its health by itself, all else as the ingress says."""

    health, ready = 200, 200

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = self.health if scope["path"] == "/-/healthz" else self.ready
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": scope["path"].encode()})


class Asked:
    """The proxy behind the middleware, at a time that the test sets."""

    def __init__(self) -> None:
        self.proxy, self.now = Proxy(), 100.0
        self._app = ProxyAnswers(self.proxy, lambda: self.now)

    def get(self, path: str) -> tuple[int, bytes]:
        messages: list[Any] = []

        async def receive() -> Any:
            raise AssertionError("nobody reads the body")

        async def send(message: Any) -> None:
            messages.append(message)

        scope = {"type": "http", "method": "GET", "path": path, "headers": []}
        asyncio.run(self._app(scope, receive, send))
        start, body = messages
        return start["status"], body["body"]


def test_a_proxy_that_stays_is_as_ready_as_its_ingress() -> None:
    asked = Asked()
    assert asked.get("/ready") == (200, b"/ready")
    asked.proxy.ready = 503
    assert asked.get("/ready") == (503, b"/ready")


def test_one_that_is_drained_is_not_ready_after_a_while_and_serves_all_the_same() -> None:
    asked = Asked()
    asked.proxy.health = 503
    assert asked.get("/ready")[0] == 200
    asked.now += STAYS_READY_S
    assert asked.get("/ready")[0] == 503
    assert asked.get("/v1/completions")[0] == 200


def test_one_that_stays_after_all_is_ready_at_once_and_has_its_while_again() -> None:
    asked = Asked()
    asked.proxy.health = 503
    asked.get("/ready")
    asked.now += STAYS_READY_S
    asked.proxy.health = 200
    assert asked.get("/ready")[0] == 200
    asked.proxy.health = 503
    assert asked.get("/ready")[0] == 200
