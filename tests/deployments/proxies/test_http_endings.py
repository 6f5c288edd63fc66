"""What a client reads where the application behind the proxy broke off."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from deployments.proxies.http_endings import Endings, middlewares

EVENTS = [(b"content-type", b"text/event-stream; charset=utf-8")]
JSON = [(b"content-type", b"application/json")]


def ask(*messages: dict[str, Any]) -> httpx.Response:
    """The answer of an application that sends these messages and then ends."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for message in messages:
            await send(message)

    async def call() -> httpx.Response:
        transport = httpx.ASGITransport(Endings(app))
        async with httpx.AsyncClient(transport=transport, base_url="http://proxy") as client:
            return await client.get("/v1/completions")

    return asyncio.run(call())


def start(headers: list[tuple[bytes, bytes]], status: int = 200) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": headers}


def body(text: bytes, *, more: bool) -> dict[str, Any]:
    return {"type": "http.response.body", "body": text, "more_body": more}


def test_an_answer_that_never_began_is_503_with_a_time_to_come_back() -> None:
    answer = ask()
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1
    error = answer.json()["error"]
    assert (error["code"], error["type"]) == (503, "service_unavailable_error")
    assert "send it again" in error["message"]


def test_a_stream_that_breaks_off_ends_with_an_error_event() -> None:
    answer = ask(start(EVENTS), body(b'data: {"a": 1}\n\n', more=True))
    first, error, done, rest = answer.text.split("\n\n")
    assert (first, done, rest) == ('data: {"a": 1}', "data: [DONE]", "")
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == 503


def test_what_is_complete_stays_as_it_is() -> None:
    whole = ask(start(EVENTS), body(b"data: 1\n\n", more=True), body(b"", more=False))
    assert whole.text == "data: 1\n\n"
    refused = ask(start(JSON, 429), body(b"{}", more=False))
    assert (refused.status_code, refused.text) == (429, "{}")


def test_of_another_body_that_breaks_off_nothing_is_made_whole() -> None:
    with pytest.raises(AssertionError):  # httpx's own: the response was not completed
        ask(start(JSON), body(b'{"a":', more=True))


def test_serve_finds_the_middleware() -> None:
    from ray.serve._private.http_util import validate_http_proxy_callback_return

    (one,) = validate_http_proxy_callback_return(middlewares())
    assert one.cls is Endings
