"""Clients of a service: a load with the client of `specdec bench serve`, and single requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import httpx

from deployments.api.http.sse import DONE, event_data
from deployments.cli.bench.client import Prompt, http_client
from deployments.cli.bench.load import LoadRun, run_load


class StatusError(Exception):
    """The server refused a request."""

    def __init__(self, answer: httpx.Response) -> None:
        super().__init__(f"HTTP {answer.status_code}: {answer.text[:300]}")
        self.answer = answer


class CutOffError(Exception):
    """A stream ended without [DONE]."""


def connect(url: str) -> httpx.AsyncClient:
    """Return a client without limits of time and connections, and without a proxy."""
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(base_url=url, timeout=None, limits=limits, trust_env=False)


async def whole(http: httpx.AsyncClient, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON of an answer. Raises StatusError, or httpx.HTTPError without an answer."""
    answer = await http.post(path, json=body)
    if answer.status_code != 200:
        raise StatusError(answer)
    found: dict[str, Any] = answer.json()
    return found


async def events(
    http: httpx.AsyncClient, path: str, body: Mapping[str, Any]
) -> AsyncIterator[dict[str, Any]]:
    """Yield the JSON of each event of a streamed answer. Raises as `whole`, and CutOffError."""
    async with http.stream("POST", path, json=body) as answer:
        if answer.status_code != 200:
            await answer.aread()
            raise StatusError(answer)
        async for line in answer.aiter_lines():
            data = event_data(line)
            if data == DONE:
                return
            if data is not None:
                yield json.loads(data)
    raise CutOffError("the stream ended without [DONE]")


def ask_all(
    url: str, prompts: Sequence[Prompt], max_concurrency: int, timeout_s: float, **server: Any
) -> LoadRun:
    """Send every prompt as soon as there is room for it. `server` goes to `http_client`."""

    async def run() -> LoadRun:
        async with http_client(url, **server) as client:
            return await run_load(
                client, prompts, max_concurrency=max_concurrency, timeout_s=timeout_s
            )

    return asyncio.run(run())
