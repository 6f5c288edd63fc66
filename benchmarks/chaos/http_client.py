"""Asks over HTTP, and words what may go wrong there."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx

from benchmarks.chaos.answers import Attempt, AttemptError, Failure
from deployments.api.http.sse import DONE, event_data

_RETRYABLE = (429, 503)
_RETRYABLE_CODES = ("rate_limit_exceeded", "service_unavailable")


class HttpClient:
    """OpenAI's two routes."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def ask(self, attempt: Attempt) -> None:
        """Fill `attempt`. Raises AttemptError."""
        try:
            if attempt.asked.way.is_streamed:
                await self._stream(attempt)
            else:
                await self._whole(attempt)
        except httpx.ConnectError as error:
            raise AttemptError(_broken("refused", error)) from error
        except httpx.HTTPError as error:
            raise AttemptError(_broken("lost", error)) from error

    async def _whole(self, attempt: Attempt) -> None:
        answer = await self._http.post(attempt.asked.path, json=attempt.asked.body())
        _check(answer)
        _take(attempt, answer.json())

    async def _stream(self, attempt: Attempt) -> None:
        asked = attempt.asked
        async with self._http.stream("POST", asked.path, json=asked.body()) as answer:
            if answer.status_code != 200:
                await answer.aread()
            _check(answer)
            async for line in answer.aiter_lines():
                data = event_data(line)
                if data == DONE:
                    return
                if data is not None:
                    _take(attempt, json.loads(data))
        message = "the stream ended without [DONE]"
        raise AttemptError(Failure(kind="cut", message=message, says_retry=False))


@contextlib.asynccontextmanager
async def http_client(port: int) -> AsyncIterator[HttpClient]:
    limits = httpx.Limits(max_connections=None)
    url = f"http://127.0.0.1:{port}"
    async with httpx.AsyncClient(
        base_url=url, timeout=None, limits=limits, trust_env=False
    ) as http:
        yield HttpClient(http)


def _check(answer: httpx.Response) -> None:
    if answer.status_code == 200:
        return
    status = answer.status_code
    raise AttemptError(
        Failure(
            kind=f"HTTP {status}",
            message=answer.text[:300],
            says_retry=status in _RETRYABLE and "retry-after" in answer.headers,
        )
    )


def _take(attempt: Attempt, data: Mapping[str, Any]) -> None:
    if data.get("error"):
        error = data["error"]
        raise AttemptError(
            Failure(
                kind="error event",
                message=str(error.get("message"))[:300],
                says_retry=error.get("code") in _RETRYABLE_CODES,
            )
        )
    for choice in data["choices"]:
        message = choice.get("delta") or choice.get("message") or {}
        text = choice.get("text") or message.get("content") or ""
        attempt.take(choice.get("token_ids") or (), text, choice.get("finish_reason"))


def _broken(kind: str, error: Exception) -> Failure:
    return Failure(kind=kind, message=f"{type(error).__name__}: {error}", says_retry=False)
