"""Checks the tools of a request, and asks for a call in the Hermes style."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from deployments.errors import WrongTypeError
from deployments.text.json_text import checked_json
from deployments.text.lark_source import lark_string
from specdec_core.errors import InvalidRequestError
from specdec_core.grammar import GrammarKind, GrammarSpec

OPENING, CLOSING = "<tool_call>", "</tool_call>"


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
