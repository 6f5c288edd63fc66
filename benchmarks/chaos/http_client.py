"""Asks over HTTP, and words what may go wrong there."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx

from benchmarks.chaos.answers import Attempt, AttemptError, Failure
from benchmarks.harness.client import CutOffError, StatusError, connect, events, whole

_RETRYABLE = (429, 503)
_RETRYABLE_CODES = ("rate_limit_exceeded", "service_unavailable")


class HttpClient:
    """OpenAI's two routes."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def ask(self, attempt: Attempt) -> None:
        """Fill `attempt`. Raises AttemptError."""
        path, body = attempt.asked.path, attempt.asked.body()
        try:
            if attempt.asked.way.is_streamed:
                async for event in events(self._http, path, body):
                    _take(attempt, event)
            else:
                _take(attempt, await whole(self._http, path, body))
        except StatusError as error:
            raise AttemptError(_refused(error.answer)) from error
        except CutOffError as error:
            failure = Failure(kind="cut", message=str(error), says_retry=False)
            raise AttemptError(failure) from error
        except httpx.ConnectError as error:
            raise AttemptError(_broken("refused", error)) from error
        except httpx.HTTPError as error:
            raise AttemptError(_broken("lost", error)) from error


@contextlib.asynccontextmanager
async def http_client(port: int) -> AsyncIterator[HttpClient]:
    async with connect(f"http://127.0.0.1:{port}") as http:
        yield HttpClient(http)


def _refused(answer: httpx.Response) -> Failure:
    status = answer.status_code
    return Failure(
        kind=f"HTTP {status}",
        message=answer.text[:300],
        says_retry=status in _RETRYABLE and "retry-after" in answer.headers,
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
