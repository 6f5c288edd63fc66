"""Events of a stream, and what ends one too early."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from benchmarks.harness.client import CutOffError, StatusError, events, whole

BODY = {"prompt": "a"}


def answering(status: int, text: str) -> httpx.AsyncClient:
    transport = httpx.MockTransport(lambda request: httpx.Response(status, text=text))
    return httpx.AsyncClient(transport=transport, base_url="http://server")


def streamed(status: int, text: str) -> list[dict[str, Any]]:
    async def read() -> list[dict[str, Any]]:
        async with answering(status, text) as http:
            return [event async for event in events(http, "/v1/completions", BODY)]

    return asyncio.run(read())


def test_a_stream_is_the_json_of_its_events() -> None:
    text = ': still here\n\ndata: {"a": 1}\n\ndata: {"a": 2}\n\ndata: [DONE]\n\n'
    assert streamed(200, text) == [{"a": 1}, {"a": 2}]


def test_a_stream_without_its_end_is_cut_off() -> None:
    with pytest.raises(CutOffError, match="without"):
        streamed(200, 'data: {"a": 1}\n\n')


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_refusal_tells_status_and_reason(is_stream: bool) -> None:
    async def ask() -> dict[str, Any]:
        async with answering(429, "full") as http:
            return await whole(http, "/v1/completions", BODY)

    with pytest.raises(StatusError, match="HTTP 429: full") as refused:
        streamed(429, "full") if is_stream else asyncio.run(ask())
    assert refused.value.answer.status_code == 429
