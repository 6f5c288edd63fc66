"""One tool call: from the text that a model wrote to a function's name and arguments."""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deployments.text.json_text import checked_json, read_json
from specdec_core.errors import InvalidRequestError

_ID_LETTERS = string.ascii_letters + string.digits


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One function that the model wants called."""

    name: str
    arguments: str
    """A JSON object."""
    call_id: str


def read_calls(
    text: str, template: Any, tools: Sequence[Mapping[str, Any]], id_length: int | None = None
) -> tuple[ToolCall, ...] | None:
    """Return the calls of one region, which is `text` without its closing mark; None if it cannot
    be read.

    `template` is a response template of calls that end with the text. The schemas of `tools` tell
    the types of arguments that are not JSON.
    """
    from transformers.utils.chat_parsing import parse_response

    try:
        found = parse_response(text, template, prefix="", tools=[dict(tool) for tool in tools]).get(
            "tool_calls"
        )
        calls = [one for entry in _listed(found) for one in _listed(entry)]
        read = tuple(_call(one, id_length) for one in calls)
    except (ValueError, KeyError, TypeError, RecursionError, InvalidRequestError):
        return None
    return read or None


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _call(read: Any, id_length: int | None) -> ToolCall:
    """Raises ValueError, TypeError or InvalidRequestError for what is no call."""
    function = read["function"]
    name, arguments = function["name"], function.get("arguments", {})
    if isinstance(arguments, str):
        arguments = read_json(arguments, "arguments")
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise ValueError(f"no function with arguments: {function}")
    checked_json([name, arguments], "arguments")
    written = json.dumps(arguments, ensure_ascii=False)
    return ToolCall(name, written, read.get("id") or _new_id(id_length))


def _new_id(length: int | None) -> str:
    if length is None:
        return f"call_{secrets.token_hex(12)}"
    return "".join(secrets.choice(_ID_LETTERS) for _ in range(length))
