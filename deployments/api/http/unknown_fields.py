"""Unknown names in a body, at every depth. Each gets a warning, or the request is refused."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from deployments.config.service import UnknownFieldsMode
from deployments.text.chat_messages import FIELDS as _MESSAGE_FIELDS
from deployments.text.structured_output import NAMES as _STRUCTURED_OUTPUT
from specdec_core.errors import InvalidRequestError

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


def unknown_names(fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paths of unknown names inside a request's fields, some of them repeatedly."""
    for field, value in fields.items():
        if field in _NAMES:
            yield from _unknown_in(value, field)


def _unknown_in(value: Any, where: str) -> Iterator[str]:
    for one in value if isinstance(value, list) else [value]:
        for name, inner in one.items() if isinstance(one, dict) else ():
            path = f"{where}.{name}"
            if name not in _NAMES[where]:
                yield path
            elif path in _NAMES:
                yield from _unknown_in(inner, path)


logger = logging.getLogger(__name__)

_MAX_REMEMBERED = 1000
"""Names for which the log has its warning already; further names are not logged."""
_MAX_WARNINGS = 16
"""Warnings in one response."""


class UnknownFields:
    """The mode of this process, and the names that it has logged."""

    def __init__(self, mode: UnknownFieldsMode = UnknownFieldsMode.WARN) -> None:
        self._refuses = mode is UnknownFieldsMode.REFUSE
        self._logged: set[str] = set()

    def warnings(self, names: Iterable[str]) -> list[str]:
        """Return the response's warnings, each once.

        Raises InvalidRequestError if this server refuses such names.
        """
        return list(map(self._warning, islice(dict.fromkeys(names), _MAX_WARNINGS)))

    def _warning(self, name: str) -> str:
        shown = name if len(name) <= 80 else f"{name[:80]}..."
        if self._refuses:
            raise InvalidRequestError(
                f"unknown field {shown}", param=shown, code="unknown_parameter"
            )
        if shown not in self._logged and len(self._logged) < _MAX_REMEMBERED:
            self._logged.add(shown)
            logger.warning("unknown field %r in a request; ignoring it", shown)
        return f"unknown field {shown} is ignored"
