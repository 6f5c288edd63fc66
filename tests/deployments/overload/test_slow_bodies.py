"""A body that does not come holds its place at an ingress for a while, not for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from deployments.api.http.routes import build_http_app
from deployments.config.service import SpecMetrics
from deployments.ingress.auth import Access
from deployments.ingress.generation import GenerationService
from specdec_core.config import SpeculationConfig
from tests.deployments.http_server import TEXT, completion, server
from tests.deployments.ingress.test_pool_client import SchedulerClient, unreachable

WAIT_S = 0.1


async def answer_to(body_parts: list[dict[str, Any]], path: str) -> list[Any]:
    """What is sent for a request whose body ends in silence."""
    pool = SchedulerClient(unreachable)
    service = GenerationService(TEXT, pool, model_name="fake", speculation=SpeculationConfig())
    app = build_http_app(
        service,
        Access({}, "127.0.0.1"),
        max_body_bytes=10_000,
        metrics=SpecMetrics.NONE,
        body_timeout_s=WAIT_S,
    )
    sent: list[Any] = []
    parts = iter(body_parts)

    async def receive() -> Any:
        for part in parts:
            return part
        return await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"content-length", b"50")],
        "http_version": "1.1",
        "scheme": "http",
        "client": ("127.0.0.1", 4000),
        "server": ("127.0.0.1", 8000),
    }
    await app(scope, receive, send)
    return sent


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/tokenize"])
@pytest.mark.parametrize("beginning", [b"", b'{"prompt": '], ids=["nothing", "half"])
async def test_a_body_that_does_not_end_is_given_up(path: str, beginning: bytes) -> None:
    first = {"type": "http.request", "body": beginning, "more_body": True}
    start, body = await answer_to([first], path)
    assert start["status"] == 408
    assert b"the body did not arrive within 0.1 s" in body["body"]


async def test_a_client_that_leaves_within_its_body_is_no_error_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = {"type": "http.request", "body": b"{", "more_body": True}
    await answer_to([first, {"type": "http.disconnect"}], "/v1/completions")
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_an_answer_may_take_longer_than_its_body() -> None:
    async with server(body_timeout_s=0.001) as (client, _):
        body = completion(max_tokens=200, stream=True)
        answer = await client.post("/v1/completions", json=body)
        assert answer.text.endswith("data: [DONE]\n\n")
