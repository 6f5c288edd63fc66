"""Tool calls in the Hermes style, which Qwen's chat templates share: JSON between two tags.

The template shows the tools to the model; the model answers with
`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, among text or alone, as often as it
likes.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specdec_core.errors import InvalidRequestError
from specdec_core.grammar import GrammarKind, GrammarSpec

OPENING, CLOSING = "<tool_call>", "</tool_call>"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One function that the model wants called."""

    name: str
    arguments: str
    """JSON, as the model wrote it."""
    call_id: str = field(default_factory=lambda: f"call_{uuid.uuid4().hex[:24]}")


@dataclass(frozen=True, slots=True)
class Found:
    """What became certain of an answer's text."""

    content: str = ""
    calls: tuple[ToolCall, ...] = ()


class ToolCallParser:
    """Splits a growing text into content and whole calls; what may be the beginning of a tag waits.

    A call whose JSON is broken, or that never ends, is content: nothing that the model said is lost
    but white space around calls.
    """

    def __init__(self) -> None:
        self._held = ""
        self._is_behind_call = False

    def add(self, text: str) -> Found:
        self._held += text
        content, calls = "", list[ToolCall]()
        while True:
            if self._is_behind_call:
                self._held = self._held.lstrip()
            start = self._held.find(OPENING)
            certain = self._num_certain() if start < 0 else len(self._held[:start].rstrip())
            content += self._take(certain)
            end = self._held.find(CLOSING) if start >= 0 else -1
            if end < 0:
                return Found(content, tuple(calls))
            whole, self._held = self._held[: end + len(CLOSING)], self._held[end + len(CLOSING) :]
            call = _read(whole.lstrip()[len(OPENING) : -len(CLOSING)])
            self._is_behind_call = call is not None
            if call is None:
                content += whole
            else:
                calls.append(call)

    def flush(self) -> Found:
        """What is left at the end."""
        return Found(self._take(len(self._held)))

    def _take(self, count: int) -> str:
        taken, self._held = self._held[:count], self._held[count:]
        self._is_behind_call = self._is_behind_call and not taken
        return taken

    def _num_certain(self) -> int:
        """All but white space, and the beginning of a tag, at the end."""
        count = len(self._held)
        for length in range(min(len(OPENING) - 1, count), 0, -1):
            if self._held.endswith(OPENING[:length]):
                count -= length
                break
        return len(self._held[:count].rstrip())


def _read(body: str) -> ToolCall | None:
    try:
        said = json.loads(body)
    except ValueError:
        return None
    if not isinstance(said, dict) or not isinstance(said.get("name"), str):
        return None
    arguments = said.get("arguments", {})
    if not isinstance(arguments, dict):
        return None
    return ToolCall(said["name"], json.dumps(arguments, ensure_ascii=False))


def forced_call(tools: Sequence[Mapping[str, Any]], name: str | None) -> GrammarSpec:
    """A grammar of exactly one call: of the tool `name`, or of any. Raises InvalidRequestError."""
    functions = [tool["function"] for tool in tools if name in (None, tool["function"]["name"])]
    if not functions:
        raise InvalidRequestError(f"tool_choice: there is no tool {name!r:.80}")
    options = [
        {
            "type": "object",
            "properties": {
                "name": {"const": function["name"]},
                "arguments": function.get("parameters") or {"type": "object"},
            },
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for function in functions
    ]
    schema = json.dumps(options[0] if len(options) == 1 else {"anyOf": options})
    lark = f'start: "{OPENING}\\n" call "\\n{CLOSING}"\ncall: %json {schema}'
    return GrammarSpec(GrammarKind.LARK, lark)


def checked_tools(tools: Sequence[Any]) -> list[dict[str, Any]]:
    """OpenAI's list of functions. Raises InvalidRequestError."""
    for place, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, dict) else None
        named = isinstance(function, dict) and isinstance(function.get("name"), str)
        if not isinstance(function, dict) or not named or tool.get("type") != "function":
            raise InvalidRequestError(f"tools.{place}: only functions with a name are supported")
        if not isinstance(function.get("parameters", {}), dict):
            raise InvalidRequestError(f"tools.{place}.function.parameters must be a JSON schema")
    return list(tools)
