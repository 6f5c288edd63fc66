"""Load any server over HTTP with streams of OpenAI's two completion routes.

This uses aiohttp because a load generator may share its machine with the measured server. A chunk
takes 52 us of CPU time with aiohttp and 155 us with httpx.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from deployments.api.http.sse import DONE, event_data
from deployments.cli.bench.client import SETUP_TIMEOUT_S, ServerTotals
from deployments.cli.bench.prompts import Prompt
from deployments.cli.bench.records import AnswerError, Chunk, Usage
from deployments.cli.bench.speculation import counts_of_answer, counts_of_page
from deployments.cli.bench.stage_figures import stages_of_page
from deployments.extras import install_command
from deployments.ingress.auth import is_loopback
from specdec_core.errors import InvalidRequestError, SpecdecError

if TYPE_CHECKING:
    import aiohttp

_FAILED = ("error", "abort")
"""Finish reasons of failed answers."""
_LONGEST_LINE = 2**20
"""Maximum bytes of a line. A chunk with log-probabilities of many tokens is one line."""


def check_has_aiohttp() -> None:
    """Raises InvalidRequestError if the HTTP library is not installed."""
    if find_spec("aiohttp") is None:
        raise InvalidRequestError(
            f"a load over HTTP needs aiohttp: {install_command('bench')}, or --backend grpc"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpClient:
    """A `Client` over HTTP."""

    http: aiohttp.ClientSession
    root: str
    model: str
    is_chat: bool
    extra_body: Mapping[str, Any]
    """Extra fields of every request. They override all other fields."""

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        path = "/v1/chat/completions" if self.is_chat else "/v1/completions"
        async with self.http.post(self.root + path, json=self._body(prompt)) as answer:
            if answer.status != 200:
                raise AnswerError(f"HTTP {answer.status}: {_reason(await answer.text())}")
            async for line in answer.content:
                data = event_data(line.decode())
                if data == DONE:
                    return
                if data is not None:
                    yield read_chunk(json.loads(data))

    def _body(self, prompt: Prompt) -> dict[str, Any]:
        given = prompt.text if prompt.token_ids is None else list(prompt.token_ids)
        return {
            "model": self.model,
            **({"messages": prompt.messages} if self.is_chat else {"prompt": given}),
            "stream": True,
            "stream_options": {"include_usage": True},
            **prompt.sampling,
            **({} if prompt.cache_salt is None else {"cache_salt": prompt.cache_salt}),
            **self.extra_body,
        }

    async def totals(self) -> ServerTotals:
        import aiohttp

        try:
            async with self.http.get(self.root + "/metrics", timeout=_setup_timeout()) as answer:
                page = await answer.text()
        except (aiohttp.ClientError, TimeoutError):
            return ServerTotals()
        if answer.status != 200:
            return ServerTotals()
        return ServerTotals(counts_of_page(page), stages_of_page(page))


@contextlib.asynccontextmanager
async def http_client(
    base_url: str,
    *,
    is_chat: bool,
    model: str | None,
    api_key: str | None,
    extra_body: Mapping[str, Any],
) -> AsyncIterator[HttpClient]:
    """Connect. Without a model name, requests go to the server's first model. Raises
    SpecdecError."""
    import aiohttp

    root = base_url.rstrip("/").removesuffix("/v1")
    async with aiohttp.ClientSession(
        headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
        # The load limits the time and the number of requests.
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
        connector=aiohttp.TCPConnector(limit=0),
        # A proxy for the outside network does not reach this machine's ports.
        trust_env=not is_loopback(urlsplit(root).hostname or ""),
        read_bufsize=_LONGEST_LINE,
    ) as http:
        name = model or await _first_model(http, root)
        yield HttpClient(http=http, root=root, model=name, is_chat=is_chat, extra_body=extra_body)


async def _first_model(http: aiohttp.ClientSession, root: str) -> str:
    import aiohttp

    try:
        async with http.get(root + "/v1/models", timeout=_setup_timeout()) as answer:
            text = await answer.text()
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        why = str(error) or type(error).__name__
        raise SpecdecError(f"{root} does not answer: {why}") from error
    if answer.status != 200:
        raise SpecdecError(f"{root}/v1/models: HTTP {answer.status}: {_reason(text)}")
    try:
        return str(json.loads(text)["data"][0]["id"])
    except (ValueError, LookupError, TypeError) as error:
        raise SpecdecError(f"{root}/v1/models names no model: give --model") from error


def _setup_timeout() -> aiohttp.ClientTimeout:
    import aiohttp

    return aiohttp.ClientTimeout(total=SETUP_TIMEOUT_S)


def read_chunk(data: Mapping[str, Any]) -> Chunk:
    """Convert a chunk's JSON. Raises AnswerError if the chunk ends the answer with an error."""
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
    """Return the chunk's weight. The first chunk of a chat names only a role and has weight 0."""
    if choice.get("token_ids"):
        return len(choice["token_ids"])
    if "delta" not in choice:
        return len(choice.get("text") or "")
    delta = choice["delta"] or {}
    texts = (delta.get(name) or "" for name in ("content", "reasoning_content", "reasoning"))
    calls = delta.get("tool_calls") or ()
    return sum(map(len, texts)) + sum(len(json.dumps(call)) for call in calls)


def _reason(body: str) -> str:
    """Return the message of an error's body, in OpenAI's shape, or else the body itself."""
    try:
        return _message(json.loads(body)["error"])
    except (ValueError, LookupError, TypeError):
        return body.strip()[:200]


def _message(error: Any) -> str:
    return str(error.get("message", error) if isinstance(error, dict) else error)
