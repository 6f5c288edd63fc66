"""A load over HTTP: streams of OpenAI's two completion routes, from any server that has them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from deployments.access import is_loopback
from deployments.bench_client import SETUP_TIMEOUT_S, ServerTotals
from deployments.bench_prompts import Prompt
from deployments.bench_records import AnswerError, Chunk, Usage
from deployments.bench_speculation import counts_of_answer, counts_of_page
from deployments.stages.figures import stages_of_page
from specdec_core.errors import InvalidRequestError, SpecdecError

if TYPE_CHECKING:
    import httpx

_DATA = "data:"
_DONE = "[DONE]"
_FAILED = ("error", "abort")
"""Finish reasons of answers that came to nothing."""


def check_has_httpx() -> None:
    """Raises InvalidRequestError where the HTTP library is not installed."""
    if find_spec("httpx") is None:
        raise InvalidRequestError(
            "a load over HTTP needs httpx: pip install 'specdec-serve[bench]', or --backend grpc"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpClient:
    """A bench_client.Client over HTTP."""

    http: httpx.AsyncClient
    model: str
    is_chat: bool
    extra_body: Mapping[str, Any]
    """Wins over every other field."""

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        path = "/v1/chat/completions" if self.is_chat else "/v1/completions"
        async with self.http.stream("POST", path, json=self._body(prompt)) as answer:
            if answer.status_code != 200:
                await answer.aread()
                raise AnswerError(f"HTTP {answer.status_code}: {_reason(answer.text)}")
            async for line in answer.aiter_lines():
                if not line.startswith(_DATA):
                    continue
                data = line[len(_DATA) :].strip()
                if data == _DONE:
                    return
                yield read_chunk(json.loads(data))

    def _body(self, prompt: Prompt) -> dict[str, Any]:
        given = prompt.text if prompt.token_ids is None else list(prompt.token_ids)
        return {
            "model": self.model,
            **({"messages": prompt.messages} if self.is_chat else {"prompt": given}),
            "stream": True,
            "stream_options": {"include_usage": True},
            **prompt.sampling,
            **self.extra_body,
        }

    async def totals(self) -> ServerTotals:
        import httpx

        try:
            answer = await self.http.get("/metrics", timeout=SETUP_TIMEOUT_S)
        except httpx.HTTPError:
            return ServerTotals()
        if answer.status_code != 200:
            return ServerTotals()
        return ServerTotals(counts_of_page(answer.text), stages_of_page(answer.text))


@contextlib.asynccontextmanager
async def http_client(
    base_url: str,
    *,
    is_chat: bool,
    model: str | None,
    api_key: str | None,
    extra_body: Mapping[str, Any],
) -> AsyncIterator[HttpClient]:
    """Connect; without a name the server's first model is asked. Raises SpecdecError."""
    import httpx

    root = base_url.rstrip("/").removesuffix("/v1")
    async with httpx.AsyncClient(
        base_url=root,
        headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
        # How long a request may take is the load's matter, how many there are too.
        timeout=None,
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
        # A proxy for the outer world does not know this machine's ports.
        trust_env=not is_loopback(urlsplit(root).hostname or ""),
    ) as http:
        name = model or await _first_model(http, root)
        yield HttpClient(http=http, model=name, is_chat=is_chat, extra_body=extra_body)


async def _first_model(http: httpx.AsyncClient, root: str) -> str:
    import httpx

    try:
        answer = await http.get("/v1/models", timeout=SETUP_TIMEOUT_S)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        why = str(error) or type(error).__name__
        raise SpecdecError(f"{root} does not answer: {why}") from error
    if answer.status_code != 200:
        raise SpecdecError(f"{root}/v1/models: HTTP {answer.status_code}: {_reason(answer.text)}")
    try:
        return str(answer.json()["data"][0]["id"])
    except (ValueError, LookupError, TypeError) as error:
        raise SpecdecError(f"{root}/v1/models names no model: give --model") from error


def read_chunk(data: Mapping[str, Any]) -> Chunk:
    """Raises AnswerError for a chunk that ends the answer with an error."""
    if data.get("error"):
        raise AnswerError(_message(data["error"]))
    choices = data.get("choices") or ()
    if any(choice.get("finish_reason") in _FAILED for choice in choices):
        raise AnswerError("the server ended the answer early")
    usage = data.get("usage")
    speculation = (data.get("metrics") or {}).get("speculative_decoding")
    return Chunk(
        is_output=bool(choices),
        weight=sum(map(_weight, choices)),
        usage=Usage(usage["prompt_tokens"], usage["completion_tokens"]) if usage else None,
        speculation=counts_of_answer(speculation) if speculation else None,
    )


def _weight(choice: Mapping[str, Any]) -> int:
    """A chat's first chunk names only a role, and weighs nothing."""
    if choice.get("token_ids"):
        return len(choice["token_ids"])
    if "delta" not in choice:
        return len(choice.get("text") or "")
    delta = choice["delta"] or {}
    texts = (delta.get(name) or "" for name in ("content", "reasoning_content", "reasoning"))
    calls = delta.get("tool_calls") or ()
    return sum(map(len, texts)) + sum(len(json.dumps(call)) for call in calls)


def _reason(body: str) -> str:
    """What an error's body says, in OpenAI's shape or as it is."""
    try:
        return _message(json.loads(body)["error"])
    except (ValueError, LookupError, TypeError):
        return body.strip()[:200]


def _message(error: Any) -> str:
    return str(error.get("message", error) if isinstance(error, dict) else error)
