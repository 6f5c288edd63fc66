"""One tool call: from the text that a model wrote to a function's name and arguments."""

from __future__ import annotations

import json
import re
import secrets
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deployments.text.answers.argument_types import argument_json
from deployments.text.answers.written_json import check_object, plain_json, with_text_at
from deployments.text.json_text import check_text
from specdec_core.errors import InvalidRequestError

_DIALECT = ("string_delims", "unquoted_keys")
"""Arguments of a field whose JSON is written in a dialect."""
_ID_LETTERS = string.ascii_letters + string.digits


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One function that the model wants called."""

    name: str
    arguments: str
    """A JSON object, as the model wrote it if it wrote JSON."""
    call_id: str


def read_calls(
    body: str,
    field: Any,
    captures: Mapping[str, str],
    tools: Sequence[Mapping[str, Any]],
    id_length: int | None = None,
) -> tuple[ToolCall, ...] | None:
    """Return the calls of one region; None if it cannot be read.

    `body` is the region's text without its marks. `field` is the compiled field of the response
    template. `captures` are the groups of its opening mark. The schemas of `tools` give the types
    of arguments that are not JSON.
    """
    from transformers.utils.chat_parsing.content_parsers import process_field

    try:
        body, field = _in_plain_json(body, field)
        value = process_field(_with_plain_arguments(body, field), field, dict(captures))
        entries = [one for entry in _listed(value) for one in _listed(entry)]
        calls = [_call({**captures, **entry}, tools, id_length) for entry in entries]
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
        InvalidRequestError,
    ):
        return None
    return tuple(calls) or None


def _in_plain_json(body: str, field: Any) -> tuple[str, Any]:
    """Return the body without its dialect of JSON, and the field for that.

    The library would also change text within strings that looks like a name without quotes.
    """
    args = field.content_args
    if field.content != "json" or not any(args.get(name) for name in _DIALECT):
        return body, field
    others = {name: one for name, one in args.items() if name not in _DIALECT}
    return plain_json(body, args), replace(field, content_args=others)


def _with_plain_arguments(body: str, field: Any) -> str:
    """Return the body with arguments of JSON as texts. Raises ValueError for a broken body."""
    args = field.content_args
    if field.content == "xml-inline":
        _check_only_arguments(body, args["tag_pattern"])
    if field.content != "json":
        return body
    path = _path_of_arguments(field.transform)
    return body if path is None else with_text_at(body, path)


def _check_only_arguments(body: str, pattern: str) -> None:
    """Raise ValueError if other text than white space is between arguments."""
    import regex

    argument = regex.compile(rf"\s*(?:{pattern})", regex.DOTALL)
    at = 0
    while (match := argument.match(body, at)) and match.end() > at:
        at = match.end()
    if body[at:].strip():
        raise ValueError(f"no arguments: {body:.80}")


def _path_of_arguments(transform: Any) -> tuple[str, ...] | None:
    """Return the names that lead from a call's JSON to its arguments; None if that is unknown."""
    if transform is None:
        return ("arguments",)
    function = transform.get("function") if isinstance(transform, dict) else None
    is_whole = isinstance(function, str)
    template = function if is_whole else (function or {}).get("arguments")
    match = re.fullmatch(r"\{([\w.]+)\}", template) if isinstance(template, str) else None
    if match is None:
        return None
    steps = match[1].split(".")
    names = steps[1:] if steps[0] == "content" else steps
    return (*names, "arguments") if is_whole else tuple(names)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _call(
    read: Mapping[str, Any], tools: Sequence[Mapping[str, Any]], id_length: int | None
) -> ToolCall:
    """Raises ValueError, TypeError or InvalidRequestError for what is no call."""
    function = read.get("function", read)
    name, arguments = function["name"], function.get("arguments", "{}")
    is_named = isinstance(name, str) and name != ""
    if not is_named or not isinstance(arguments, str | dict) or "parameters" in function:
        raise ValueError(f"no function with arguments: {function}")
    check_text(name, "name")
    if isinstance(arguments, dict):
        arguments = _typed(arguments, _parameters(name, tools))
    call_id = read.get("id")
    return ToolCall(
        name,
        check_object(arguments),
        call_id if isinstance(call_id, str) and call_id else _new_id(id_length),
    )


def _parameters(name: str, tools: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the schema of a tool's arguments, empty if there is none."""
    functions = [tool.get("function") or {} for tool in tools]
    return next((one.get("parameters") or {} for one in functions if one.get("name") == name), {})


def _typed(arguments: Mapping[str, Any], parameters: Mapping[str, Any]) -> str:
    """Return the JSON of arguments that a model wrote as texts."""
    given = parameters.get("properties")
    properties = given if isinstance(given, Mapping) else {}
    written = [
        f"{json.dumps(key, ensure_ascii=False)}: {_value(value, properties.get(key), parameters)}"
        for key, value in arguments.items()
    ]
    return f"{{{', '.join(written)}}}"


def _value(value: Any, schema: Any, root: Mapping[str, Any]) -> str:
    if isinstance(value, str):
        return argument_json(value, schema, root)
    return json.dumps(value, ensure_ascii=False)


def _new_id(length: int | None) -> str:
    if length is None:
        return f"call_{secrets.token_hex(12)}"
    return "".join(secrets.choice(_ID_LETTERS) for _ in range(length))
