"""Messages and tools of a conversation: from what clients send to what a chat template gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from deployments.errors import WrongTypeError
from deployments.text.json_text import checked_json, read_json
from specdec_core.errors import InvalidRequestError


def checked_tools(tools: Sequence[Any]) -> list[dict[str, Any]]:
    """Return OpenAI's list of functions, without null parameters. Raises InvalidRequestError."""
    return [_checked_tool(tool, f"tools.{index}") for index, tool in enumerate(tools)]


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


Message = Mapping[str, Any]
MAX_TEMPLATE_SECONDS = 2.0
"""Default CPU time for rendering a request's own template, in seconds."""


class SpecialTokensInText(StrEnum):
    """Treatment of control tokens in the texts of a conversation."""

    ALLOW = "allow"
    """They are control tokens, as in vLLM and transformers."""
    PLAIN = "plain"
    """They are ordinary text."""
    REFUSE = "refuse"
    """The request is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateInput:
    """Everything that a chat template gets."""

    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] = ()
    variables: Mapping[str, Any] = field(default_factory=dict)
    add_generation_prompt: bool = True
    continues_final_message: bool = False


REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")
"""Names of an answer's reasoning, in the order in which transformers looks for it."""
_REFUSED_FIELDS = {
    "audio": "send text",
    "function_call": "use tool_calls",
    "prefix": "use continue_final_message",
    "partial": "use continue_final_message",
}
"""Fields that would change the answer and are not supported, with what to do instead."""
FIELDS = (
    *REASONING_FIELDS,
    *_REFUSED_FIELDS,
    "annotations",
    "cache_control",
    "content",
    "id",
    "index",
    "metadata",
    "name",
    "parsed",
    "provider_specific_fields",
    "reasoning_details",
    "refusal",
    "role",
    "status",
    "tool_call_id",
    "tool_calls",
    "type",
)
"""Fields of messages that are used, refused, or known to change nothing."""
_OPTIONAL_TEXT_ROLES = ("assistant", "tool", "function")
"""Roles whose messages may come without content."""
_TEXT_PARTS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
}
"""Types of content parts that are text, and the field that holds it."""


def checked_messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages as chat templates expect them, with text as contents and objects as
    arguments of calls, without fields that are null or unknown. Raises InvalidRequestError."""
    if not messages:
        raise InvalidRequestError(
            "messages is empty: at least 1 message is needed", param="messages"
        )
    return [_checked_message(f"messages.{i}", message) for i, message in enumerate(messages)]


def _checked_message(where: str, message: Mapping[str, Any]) -> dict[str, Any]:
    if any(map(message.get, _REFUSED_FIELDS)):
        raise _refusal_of_field(where, message)
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise _wrong_type(f"{where}.role", "a string that is not empty")
    content = message.get("content")
    if not isinstance(content, str) or message.get("refusal"):
        content = _content(where, role, message)
    checked = {"role": role, "content": content}
    if message.keys() != {"role", "content"}:
        checked |= _optional_fields(where, message)
    return checked


def _refusal_of_field(where: str, message: Mapping[str, Any]) -> InvalidRequestError:
    name = next(filter(message.get, _REFUSED_FIELDS))
    return InvalidRequestError(
        f"{where}.{name} is not supported: {_REFUSED_FIELDS[name]}",
        param=f"{where}.{name}",
        code="unsupported_parameter",
    )


def _optional_fields(where: str, message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a message may have besides its role and content."""
    checked: dict[str, Any] = {}
    if message.get("tool_calls"):
        checked["tool_calls"] = _checked_calls(f"{where}.tool_calls", message["tool_calls"])
    for name in ("name", "tool_call_id"):
        if message.get(name):
            checked[name] = _text(f"{where}.{name}", message[name])
    reasoning: dict[str, str] = {}
    for name in REASONING_FIELDS:
        if isinstance(message.get(name), str) and message[name]:
            reasoning[name] = message[name]
    if reasoning:  # under the names that transformers gives it for templates
        first = next(iter(reasoning.values()))
        checked |= {"thinking": first, **reasoning, "reasoning_content": first}
    return checked


def _content(where: str, role: str, message: Mapping[str, Any]) -> str:
    """Return the text of a message. A refusal of the model is text as well."""
    content = message.get("content")
    if content is None and role not in _OPTIONAL_TEXT_ROLES:
        raise InvalidRequestError(
            f"{where}.content is needed in a message of role {role!r:.40}",
            param=f"{where}.content",
            code="missing_required_parameter",
        )
    texts = []
    for part in content if isinstance(content, list) else [content]:
        if part is not None:
            is_text = isinstance(part, str)
            texts.append(part if is_text else _part_text(f"{where}.content", part))
    if message.get("refusal"):
        texts.append(_text(f"{where}.refusal", message["refusal"]))
    return "\n".join(filter(None, texts))


def _part_text(where: str, part: Any) -> str:
    if not isinstance(part, dict):
        raise _wrong_type(where, "a string or a list of parts")
    kind = part.get("type")
    if kind not in _TEXT_PARTS:
        raise InvalidRequestError(
            f"{where}: only parts of type text are supported, got {kind!r:.40}",
            param=where,
            code="unsupported_value",
        )
    return _text(f"{where}.{_TEXT_PARTS[kind]}", part.get(_TEXT_PARTS[kind]))


def _checked_calls(where: str, calls: Any) -> list[dict[str, Any]]:
    if not isinstance(calls, list):
        raise _wrong_type(where, "a list")
    return [_checked_call(f"{where}.{i}", call) for i, call in enumerate(calls)]


def _checked_call(where: str, call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise InvalidRequestError(
            f"{where}.function.name is needed",
            param=f"{where}.function.name",
            code="missing_required_parameter",
        )
    arguments = _arguments(f"{where}.function.arguments", function.get("arguments"))
    filled = {name: value for name, value in call.items() if value is not None}
    return {**filled, "function": {**function, "arguments": arguments}}


def _arguments(where: str, arguments: Any) -> dict[str, Any]:
    """Return a call's arguments as an object. Clients replay a call without any as "" or null."""
    if isinstance(arguments, str):
        arguments = read_json(arguments, where) if arguments.strip() else None
    if arguments is None:
        return {}
    if not isinstance(arguments, dict):
        raise _wrong_type(where, "a JSON object")
    return arguments


def _text(where: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong_type(where, "a string")
    return value


def _wrong_type(where: str, expected: str) -> WrongTypeError:
    return WrongTypeError(f"{where}: must be {expected}", param=where)
