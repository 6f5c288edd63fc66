"""What a client reads where the application behind the proxy broke off."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from ray.serve._private.http_util import convert_object_to_asgi_messages
from starlette.types import Receive, Scope, Send

from deployments.proxy.http_middleware import ProxyAnswers

EVENTS = [(b"content-type", b"text/event-stream; charset=utf-8")]
JSON = [(b"content-type", b"application/json")]


def ask(*messages: dict[str, Any], path: str = "/v1/completions") -> httpx.Response:
    """The answer of an application that sends these messages and then ends."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for message in messages:
            await send(message)

    async def call() -> httpx.Response:
        transport = httpx.ASGITransport(ProxyAnswers(app))
        async with httpx.AsyncClient(transport=transport, base_url="http://proxy") as client:
            return await client.get(path)

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
    assert (error["code"], error["type"]) == ("service_unavailable", "service_unavailable_error")
    assert "send it again" in error["message"]


def test_a_stream_that_breaks_off_ends_with_an_error_event() -> None:
    answer = ask(start(EVENTS), body(b'data: {"a": 1}\n\n', more=True))
    first, error, done, rest = answer.text.split("\n\n")
    assert (first, done, rest) == ('data: {"a": 1}', "data: [DONE]", "")
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == "service_unavailable"


def test_what_is_complete_stays_as_it_is() -> None:
    whole = ask(start(EVENTS), body(b"data: 1\n\n", more=True), body(b"", more=False))
    assert whole.text == "data: 1\n\n"
    refused = ask(start(JSON, 429), body(b"{}", more=False))
    assert (refused.status_code, refused.text) == (429, "{}")


def routeless(path: str) -> list[dict[str, Any]]:
    """What Serve's proxy says before it knows of any application."""
    text = f"Path '{path}' not found. Ping http://.../-/routes for available routes."
    return list(convert_object_to_asgi_messages(text, status_code=404))


def test_a_proxy_that_knows_no_application_yet_is_503_not_404() -> None:
    answer = ask(*routeless("/v1/completions"))
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1
    assert "send the request again" in answer.json()["error"]["message"]


def test_our_own_404_and_serves_own_paths_stay() -> None:
    ours = ask(start(JSON, 404), body(b'{"error": 1}', more=False))
    assert (ours.status_code, ours.json()) == (404, {"error": 1})
    assert ask(*routeless("/-/healthz"), path="/-/healthz").status_code == 404


def test_of_another_body_that_breaks_off_nothing_is_made_whole() -> None:
    with pytest.raises(AssertionError):  # httpx's own: the response was not completed
        ask(start(JSON), body(b'{"a":', more=True))
