"""Stream answers of any server with OpenAI's two completion routes.

This uses aiohttp because a load generator may share its machine with the measured server. A chunk
takes 52 us of CPU time with aiohttp and 155 us with httpx.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from deployments.api.http.sse import DONE, event_data
from deployments.cli.bench.speculation import SpecCounts, counts_of_answer
from deployments.cli.generate.prompt_text import Conversation
from deployments.extras import install_command
from deployments.ingress.auth import is_loopback
from specdec_core.errors import InvalidRequestError, SpecdecError

if TYPE_CHECKING:
    import aiohttp

_SETUP_TIMEOUT_S = 30.0
"""Timeout of the calls around a run: models, /metrics."""
_FAILED = ("error", "abort")
"""Finish reasons of failed answers."""
_MAX_LINE_BYTES = 2**20
"""A chunk with log-probabilities of many tokens is one line."""


class AnswerError(SpecdecError):
    """A failed request. The message gives the reason."""


class Usage(NamedTuple):
    """Token counts of the server."""

    num_input: int
    num_output: int


NO_TOKENS = Usage(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One request: messages for a chat, otherwise text or token IDs."""

    messages: Conversation | None = None
    text: str | None = None
    token_ids: tuple[int, ...] | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Other fields of the request's body, such as sampling parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One message of a streamed answer."""

    is_output: bool = True
    """False if the chunk has only totals."""
    weight: int = 0
    """Amount of output in the chunk: token IDs if present, otherwise characters. 0 if there is
    neither."""
    usage: Usage | None = None
    speculation: SpecCounts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpClient:
    """A connected server and the model to which requests go."""

    http: aiohttp.ClientSession
    root: str
    model: str
    extra_body: Mapping[str, Any]
    """Extra fields of every request. They override all other fields."""

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Send the request and yield its chunks. Closing the generator abandons the request.

        Raises AnswerError if the server refuses the request or ends the answer with an error.
        """
        path = "/v1/completions" if prompt.messages is None else "/v1/chat/completions"
        async with self.http.post(self.root + path, json=self.body(prompt)) as answer:
            if answer.status != 200:
                raise AnswerError(f"HTTP {answer.status}: {_reason(await answer.text())}")
            async for line in answer.content:
                data = event_data(line.decode())
                if data == DONE:
                    return
                if data is not None:
                    yield read_chunk(json.loads(data))

    def body(self, prompt: Prompt) -> dict[str, Any]:
        """Return the JSON of the request."""
        text = prompt.text if prompt.token_ids is None else list(prompt.token_ids)
        return {
            "model": self.model,
            **({"prompt": text} if prompt.messages is None else {"messages": prompt.messages}),
            "stream": True,
            "stream_options": {"include_usage": True},
            **prompt.fields,
            **self.extra_body,
        }

    async def metrics_page(self) -> str:
        """Return the server's /metrics. Empty if it has none."""
        import aiohttp

        try:
            async with self.http.get(self.root + "/metrics", timeout=_setup_timeout()) as answer:
                return await answer.text() if answer.status == 200 else ""
        except (aiohttp.ClientError, TimeoutError):
            return ""


@contextlib.asynccontextmanager
async def http_client(
    base_url: str,
    *,
    model: str | None = None,
    api_key: str | None = None,
    extra_body: Mapping[str, Any] | None = None,
) -> AsyncIterator[HttpClient]:
    """Connect. Without a model name, requests go to the server's first model.

    Raises InvalidRequestError without the HTTP library, SpecdecError if the server does not answer.
    """
    if find_spec("aiohttp") is None:
        raise InvalidRequestError(f"benchmarks over HTTP need aiohttp: {install_command('bench')}")
    import aiohttp

    root = base_url.rstrip("/").removesuffix("/v1")
    async with aiohttp.ClientSession(
        headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
        # The load limits the time and the number of requests.
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
        connector=aiohttp.TCPConnector(limit=0),
        # A proxy for the outside network does not reach this machine's ports.
        trust_env=not is_loopback(urlsplit(root).hostname or ""),
        read_bufsize=_MAX_LINE_BYTES,
    ) as http:
        name = model or await _first_model(http, root)
        yield HttpClient(http=http, root=root, model=name, extra_body=extra_body or {})


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
        raise SpecdecError(f"{root}/v1/models lists no model: set --model") from error


def _setup_timeout() -> aiohttp.ClientTimeout:
    import aiohttp

    return aiohttp.ClientTimeout(total=_SETUP_TIMEOUT_S)


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
