"""Hostile requests that run next to the neighbour, and harmless ones of as many tokens.

Prompts are token IDs of equal number. The hostile prompts and messages are longer than the model's
context, so the server refuses them and the target computes none of their tokens.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_PROMPT = list(range(5, 13))
_MAX_TOKENS = 8
_CROWD_TOKENS = 24
CROWD = 32
"""Requests that share one schema."""
BODY_BYTES = 4 * 2**20 - 1_000
"""Just under the default of max_body_bytes."""


@dataclass(frozen=True, slots=True)
class Input:
    """The body of one request."""

    path: str
    body: Mapping[str, Any]


def harmless() -> Input:
    return _completion()


def _completion(**fields: Any) -> Input:
    body = {"prompt": _PROMPT, "max_tokens": _MAX_TOKENS, "temperature": 0}
    return Input("/v1/completions", body | fields)


def _structured(**outputs: Any) -> Input:
    return _completion(structured_outputs=outputs)


def _regex() -> Input:
    return _structured(regex="(a{999}){1000}")


def _wide_schema() -> Input:
    properties = {f"property_{number}": {"type": "string"} for number in range(4_000)}
    return _structured(json={"type": "object", "properties": properties})


def _deep_schema() -> Input:
    schema: dict[str, Any] = {"type": "integer"}
    for number in range(60):
        schema = {
            "type": "object",
            "properties": {f"a{number}": schema, f"b{number}": {"type": "string"}},
            "required": [f"a{number}"],
        }
    return _structured(json=schema)


def _choice() -> Input:
    return _structured(choice=[f"label number {number}" for number in range(2_000)])


def _prompts() -> Input:
    """About 9,000 tokens each: more than the demo's context, but not by their length alone."""
    return _completion(prompt=[_numbers(18_000)] * 60)


def _long_message() -> Input:
    return _chat([{"role": "user", "content": _numbers(1_000_000)}])


def _many_messages() -> Input:
    message = {"role": "user", "content": "a"}
    return _chat([message] * (BODY_BYTES // len(json.dumps(message) + ", ")))


def _chat(messages: list[dict[str, str]]) -> Input:
    return Input("/v1/chat/completions", {"messages": messages, "max_tokens": _MAX_TOKENS})


def _bad_words() -> Input:
    return _completion(bad_words=[f"word{number:05}" for number in range(1_024)])


def _huge_bad_words() -> Input:
    return _completion(bad_words=["word"] * (BODY_BYTES // len('"word", ')))


def _numbers(num_chars: int) -> str:
    return "1 " * (num_chars // 2)


HOSTILE: dict[str, Callable[[], Input]] = {
    "regex": _regex,
    "wide schema": _wide_schema,
    "deep schema": _deep_schema,
    "choice": _choice,
    "prompts": _prompts,
    "long message": _long_message,
    "many messages": _many_messages,
    "bad words": _bad_words,
    "huge bad words": _huge_bad_words,
}


def crowd(turn: int, *, has_schema: bool) -> list[Input]:
    """Requests that all run to their last token, with a schema that is new to the server."""
    fields: dict[str, Any] = {"max_tokens": _CROWD_TOKENS}
    if has_schema:
        items = {"type": "integer", "minimum": -turn}
        schema = {"type": "array", "items": items, "minItems": _CROWD_TOKENS}
        fields["structured_outputs"] = {"json": schema}
    else:
        fields["ignore_eos"] = True
    return [_completion(**fields, seed=number) for number in range(CROWD)]
