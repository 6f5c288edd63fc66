"""Stream an answer that survives broken connections: python examples/resuming_client.py [url ...].

The client keeps the token IDs and the seed that it has received. When the stream breaks, it sends
them to the next address, which continues behind them.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError


def chunks(url: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One connection's chunks. Raises OSError or HTTPException if it breaks before its end."""
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=60) as lines:
        for line in lines:
            kind, _, data = line.decode().strip().partition(": ")
            if data == "[DONE]":
                return
            if kind == "data" and line.endswith(b"\n"):  # other lines are comments
                chunk = json.loads(data)
                if "error" in chunk:
                    raise failure(chunk["error"])
                yield chunk
    raise ConnectionError("the stream broke")


def failure(error: dict[str, Any]) -> Exception:
    """The error of a stream: another address would refuse a wrong request as well."""
    is_ours = error["type"] == "invalid_request_error"
    return (ValueError if is_ours else ConnectionError)(error["message"])


def answer(urls: list[str], body: dict[str, Any]) -> Iterator[str]:
    """The text of an answer, whichever addresses it takes; gives up after 20 connections."""
    resume: dict[str, Any] = {"token_ids": []}
    asked = body | {"stream": True, "return_token_ids": True, "resume": resume}
    for url in itertools.islice(itertools.cycle(urls), 20):
        try:
            for chunk in chunks(url, asked):
                resume["seed"] = chunk["seed"]
                for choice in chunk["choices"]:
                    resume["token_ids"] += choice.get("token_ids", [])
                    yield choice["delta"].get("content", "")
            return
        except (OSError, HTTPException) as error:
            if isinstance(error, HTTPError) and error.code in (400, 401, 404, 409):
                raise  # no other address would take it
            time.sleep(0.5)
    raise ConnectionError("no address has answered to the end")


urls = sys.argv[1:] or ["http://127.0.0.1:8000"]
question = {"role": "user", "content": "What is the capital of France?"}
for text in answer(urls, {"messages": [question], "max_tokens": 32, "temperature": 0}):
    print(text, end="", flush=True)
print()
