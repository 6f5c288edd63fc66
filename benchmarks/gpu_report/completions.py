"""Completions of prompts that travel as token IDs, over a server's OpenAI-compatible HTTP. Answers
are counted by the server."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_TIMEOUT_S = 50.0


def model_of(url: str) -> str:
    """The first that the server names."""
    name: str = _asked(f"{url}/v1/models")["data"][0]["id"]
    return name


def complete(url: str, bodies: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """All at once."""
    with ThreadPoolExecutor(len(bodies)) as threads:
        return list(threads.map(lambda body: _asked(f"{url}/v1/completions", body), bodies))


def pace(url: str, bodies: Sequence[dict[str, Any]]) -> float:
    """Tokens per second of all at once, prefill included."""
    started = time.perf_counter()
    answers = complete(url, bodies)
    seconds = time.perf_counter() - started
    num_tokens: int = sum(answer["usage"]["completion_tokens"] for answer in answers)
    return num_tokens / seconds


def _asked(url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
        found: dict[str, Any] = json.load(response)
    return found
