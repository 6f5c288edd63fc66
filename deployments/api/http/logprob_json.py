"""Log-probabilities as JSON: OpenAI's two shapes, and that of `specdec generate`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from deployments.ingress.output import OutputChunk
from specdec_core.logprobs import TokenLogprobs

TokenBytes = Callable[[int], bytes]

_LEAST = -9999.0
"""OpenAI's number for minus infinity, which JSON does not have."""


class Prompt(NamedTuple):
    """A prompt whose tokens were scored."""

    token_ids: Sequence[int]
    logprobs: Sequence[TokenLogprobs]
    """Log-probabilities of every token but the first."""


@dataclass(frozen=True, slots=True)
class Echo:
    """A prompt that its choice's text follows."""

    text: str = ""
    offsets: tuple[int, ...] = ()
    """Characters before each of the prompt's tokens, if their log-probabilities are returned as
    well."""

    @property
    def has_logprobs(self) -> bool:
        return bool(self.offsets)


def completion_logprobs(
    chunk: OutputChunk, token_bytes: TokenBytes, start: int = 0
) -> dict[str, Any]:
    """Return four lists with one entry per token of the chunk. The output's text begins at `start`.

    As the API says, an entry of `top_logprobs` may have one more than was asked for. This is the
    token itself, if it is not among the most probable.
    """
    pairs = list(zip(chunk.token_ids, chunk.logprobs, strict=True))
    return {
        "text_offset": [start + offset for offset in chunk.text_offsets],
        "token_logprobs": [_number(entry.logprob) for entry in chunk.logprobs],
        "tokens": [_shown(token_bytes(token_id)) for token_id in chunk.token_ids],
        "top_logprobs": [_by_text(token_id, entry, token_bytes) for token_id, entry in pairs],
    }


def with_echo(
    prompt: Prompt, echo: Echo, count: int, answer: dict[str, Any], token_bytes: TokenBytes
) -> dict[str, Any]:
    """Return the four lists with the prompt's tokens in front. The first token has no
    predecessors."""
    pairs = list(zip(prompt.token_ids[1:], prompt.logprobs, strict=True))
    tops = [TokenLogprobs(entry.logprob, entry.top[:count]) for _, entry in pairs]
    scored = zip(prompt.token_ids[1:], tops, strict=True)
    return {
        "text_offset": [*echo.offsets, *answer["text_offset"]],
        "token_logprobs": [
            None,
            *(_number(entry.logprob) for _, entry in pairs),
            *answer["token_logprobs"],
        ],
        "tokens": [*(_shown(token_bytes(i)) for i in prompt.token_ids), *answer["tokens"]],
        "top_logprobs": [
            None,
            *(_by_text(token_id, entry, token_bytes) for token_id, entry in scored),
            *answer["top_logprobs"],
        ],
    }


def prompt_logprobs(
    prompt: Prompt, count: int, token_bytes: TokenBytes
) -> list[dict[str, Any] | None]:
    """Return vLLM's shape: by ID, the token itself and the `count` most probable.

    The first token has null.
    """
    return [
        None,
        *(
            _by_id(token_id, entry, count, token_bytes)
            for token_id, entry in zip(prompt.token_ids[1:], prompt.logprobs, strict=True)
        ),
    ]


def _by_id(
    token_id: int, entry: TokenLogprobs, count: int, token_bytes: TokenBytes
) -> dict[str, Any]:
    """Return the entries by ID. A rank is known only among the most probable tokens."""
    ranks = {other_id: rank for rank, (other_id, _) in enumerate(entry.top, start=1)}
    values = {token_id: entry.logprob} | dict(entry.top[:count])
    return {
        str(i): {
            "logprob": _number(logprob),
            "rank": ranks.get(i),
            "decoded_token": _shown(token_bytes(i)),
        }
        for i, logprob in values.items()
    }


def chat_logprobs(chunk: OutputChunk, token_bytes: TokenBytes) -> dict[str, Any]:
    """One object per token of the chunk."""
    content = [
        _chat_entry(token_id, entry.logprob, token_bytes)
        | {"top_logprobs": [_chat_entry(i, logprob, token_bytes) for i, logprob in entry.top]}
        for token_id, entry in zip(chunk.token_ids, chunk.logprobs, strict=True)
    ]
    return {"content": content, "refusal": None}


def logprob_records(
    token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs]
) -> list[dict[str, Any]]:
    """One object per token, by ids."""
    return [
        {
            "token_id": token_id,
            "logprob": _number(entry.logprob),
            "top_logprobs": [{"token_id": i, "logprob": _number(lp)} for i, lp in entry.top],
        }
        for token_id, entry in zip(token_ids, logprobs, strict=True)
    ]


def _by_text(token_id: int, entry: TokenLogprobs, token_bytes: TokenBytes) -> dict[str, float]:
    """Return log-probabilities by text, the most probable first.

    Of tokens that read alike, the most probable is named.
    """
    by_text: dict[str, float] = {}
    for other_id, logprob in (*entry.top, (token_id, entry.logprob)):
        by_text.setdefault(_shown(token_bytes(other_id)), _number(logprob))
    return by_text


def _chat_entry(token_id: int, logprob: float, token_bytes: TokenBytes) -> dict[str, Any]:
    content = token_bytes(token_id)
    return {"token": _shown(content), "logprob": _number(logprob), "bytes": list(content)}


def _shown(content: bytes) -> str:
    """Return text. What is no whole character is spelled byte by byte, as OpenAI does."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in content)


def _number(logprob: float) -> float:
    return max(logprob, _LEAST)
