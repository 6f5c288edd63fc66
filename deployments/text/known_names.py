"""Names that are known in the objects inside a request's fields, at every depth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from deployments.text.chat_messages import FIELDS as _MESSAGE_FIELDS
from deployments.text.structured_output import NAMES as _STRUCTURED_OUTPUT

_HINTS = ("cache_control", "provider_specific_fields", "extra_content")
"""Names that clients add for other services. They change no token."""
_NAMES: Mapping[str, tuple[str, ...]] = {
    **_STRUCTURED_OUTPUT,
    "messages": _MESSAGE_FIELDS,
    "messages.content": ("type", "text", "refusal", "id", "annotations", "logprobs", *_HINTS),
    "messages.tool_calls": ("id", "type", "function", "index", *_HINTS),
    "messages.tool_calls.function": ("name", "arguments", "parsed_arguments", *_HINTS),
    "tools": ("type", "function", *_HINTS),
    "tools.function": ("name", "description", "parameters", "strict", *_HINTS),
    "tool_choice": ("type", "function"),
    "tool_choice.function": ("name",),
}
"""Names by the path of their object. Entries of lists have the path of the list."""


def unknown_names(fields: Mapping[str, Any]) -> list[str]:
    """Return the paths of unknown names inside a request's fields, each path once."""
    return list(
        dict.fromkeys(
            path
            for field, value in fields.items()
            if field in _NAMES
            for path in _unknown_in(value, field)
        )
    )


def _unknown_in(value: Any, where: str) -> Iterator[str]:
    for one in value if isinstance(value, list) else [value]:
        for name, inner in one.items() if isinstance(one, dict) else ():
            path = f"{where}.{name}"
            if name not in _NAMES[where]:
                yield path
            elif path in _NAMES:
                yield from _unknown_in(inner, path)
