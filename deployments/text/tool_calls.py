"""Checks the tools of a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deployments.errors import WrongTypeError
from deployments.text.json_text import checked_json
from specdec_core.errors import InvalidRequestError


def checked_tools(tools: Sequence[Any]) -> list[dict[str, Any]]:
    """Return OpenAI's list of functions, without null parameters. Raises InvalidRequestError."""
    return [_checked_tool(tool, f"tools.{place}") for place, tool in enumerate(tools)]


def _checked_tool(tool: Any, where: str) -> dict[str, Any]:
    function = tool.get("function") if isinstance(tool, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    is_named = isinstance(name, str) and name != ""
    if not isinstance(function, dict) or not is_named or tool.get("type") != "function":
        raise InvalidRequestError(f"{where}: only functions with a name are supported", param=where)
    field = f"{where}.function.parameters"
    if not isinstance(function.get("parameters"), dict | None):
        raise WrongTypeError(f"{field} must be a JSON schema", param=field)
    checked_json(tool, where)
    if function.get("parameters", {}) is None:
        function = {name: value for name, value in function.items() if name != "parameters"}
    return {**tool, "function": function}
