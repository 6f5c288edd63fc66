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

from deployments.errors import WrongTypeError
from deployments.text.json_text import checked_json, read_json_at, skip_space
from deployments.text.lark_source import lark_string
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
    """Read what is between the tags; None unless it is the JSON of a call."""
    try:
        said = _members(body)
    except InvalidRequestError:
        return None
    name, arguments = said.get("name", ""), said.get("arguments", "{}")
    if not name.startswith('"') or not arguments.startswith("{"):
        return None
    return ToolCall(json.loads(name), arguments)


def _members(body: str) -> dict[str, str]:
    """Return the texts of an object's values, as they are written. Raises InvalidRequestError."""
    whole, end = read_json_at(body, 0, "the call", keeps_numbers=True)
    if not isinstance(whole, dict) or skip_space(body, end) < len(body):
        return {}
    members = dict[str, str]()
    at = skip_space(body, body.index("{") + 1)
    while body[at] != "}":
        key, at = read_json_at(body, at, "a name")
        start = skip_space(body, skip_space(body, at) + 1)
        _, at = read_json_at(body, start, "a value", keeps_numbers=True)
        members[key] = body[start:at]
        at = skip_space(body, at)
        at = skip_space(body, at + 1) if body[at] == "," else at
    return members


def forced_call(tools: Sequence[Mapping[str, Any]], name: str | None) -> GrammarSpec:
    """Return a grammar of exactly one call: of the tool `name`, or of any.

    Each tool's parameters stay a schema of their own, in which its references hold. Raises
    InvalidRequestError.
    """
    functions = [tool["function"] for tool in tools if name in (None, tool["function"]["name"])]
    if not functions:
        raise InvalidRequestError(
            f"tool_choice: there is no tool {name!r:.80}", param="tool_choice"
        )
    calls = " | ".join(f"{_beginning(one)} %json {_parameters(one)}" for one in functions)
    opening, closing = lark_string(f"{OPENING}\n"), lark_string(f"}}\n{CLOSING}")
    return GrammarSpec(GrammarKind.LARK, f"start: {opening} ({calls}) {closing}", "tools")


def _beginning(function: Mapping[str, Any]) -> str:
    name = json.dumps(function["name"], ensure_ascii=False)
    return lark_string(f'{{"name": {name}, "arguments": ')


def _parameters(function: Mapping[str, Any]) -> str:
    """Return the JSON schema of a function's arguments; without parameters, that of `{}`."""
    parameters = function.get("parameters")
    if parameters is None:
        return json.dumps({"type": "object", "additionalProperties": False})
    return json.dumps({"type": "object"} | parameters)


def checked_tools(tools: Sequence[Any]) -> list[dict[str, Any]]:
    """Return OpenAI's list of functions, without null parameters. Raises InvalidRequestError."""
    return [_checked_tool(tool, f"tools.{place}") for place, tool in enumerate(tools)]


def _checked_tool(tool: Any, where: str) -> dict[str, Any]:
    function = tool.get("function") if isinstance(tool, dict) else None
    named = isinstance(function, dict) and isinstance(function.get("name"), str)
    if not isinstance(function, dict) or not named or tool.get("type") != "function":
        raise InvalidRequestError(f"{where}: only functions with a name are supported", param=where)
    field = f"{where}.function.parameters"
    if not isinstance(function.get("parameters"), dict | None):
        raise WrongTypeError(f"{field} must be a JSON schema", param=field)
    checked_json(tool, where)
    if function.get("parameters", {}) is None:
        function = {name: value for name, value in function.items() if name != "parameters"}
    return {**tool, "function": function}
