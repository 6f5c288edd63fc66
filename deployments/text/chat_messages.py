"""A conversation as a chat template takes it, or a clear refusal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from deployments.errors import WrongTypeError
from specdec_core.errors import InvalidRequestError

_MESSAGE_FIELDS = ("role", "content", "name", "tool_calls", "tool_call_id")
"""What a chat template is given of a message."""


def checked_messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A conversation whose contents are text. Raises for everything else."""
    if not messages:
        raise InvalidRequestError("messages is empty: at least 1 message is needed")
    return [_checked_message(place, message) for place, message in enumerate(messages)]


def _checked_message(place: int, message: Mapping[str, Any]) -> dict[str, Any]:
    role = message.get("role")
    if not isinstance(role, str):
        raise WrongTypeError(f"messages.{place}.role: must be a string")
    for name, value in message.items():
        if value and name not in _MESSAGE_FIELDS:
            raise InvalidRequestError(f"messages.{place}.{name} is not supported yet: leave it out")
    calls = _calls_of(place, message.get("tool_calls") or [])
    content = message.get("content")
    checked: dict[str, Any] = {
        "role": role,
        "content": "" if calls and content is None else _text_of(place, content),
    }
    if calls:
        checked["tool_calls"] = calls
    return checked | {n: message[n] for n in ("name", "tool_call_id") if message.get(n)}


def _calls_of(place: int, calls: Any) -> list[dict[str, Any]]:
    """Earlier calls as templates take them: their arguments as an object."""
    if not isinstance(calls, list):
        raise WrongTypeError(f"messages.{place}.tool_calls: must be a list")
    return [_checked_call(f"messages.{place}.tool_calls.{i}", call) for i, call in enumerate(calls)]


def _checked_call(where: str, call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise InvalidRequestError(f"{where}.function.name is needed")
    arguments = function.get("arguments") or "{}"
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError as error:
            raise InvalidRequestError(f"{where}.function.arguments is not JSON: {error}") from None
    return {**call, "function": {**function, "arguments": arguments}}


def _text_of(place: int, content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise WrongTypeError(f"messages.{place}.content: must be a string or a list of parts")
    parts = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text":
            raise InvalidRequestError(
                f"messages.{place}.content: only parts of type text are supported"
            )
        if not isinstance(part.get("text"), str):
            raise WrongTypeError(f"messages.{place}.content: text must be a string")
        parts.append(part["text"])
    return "".join(parts)
