"""Types of arguments that a model writes as plain text: the tool's schema decides."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from deployments.text.json_text import check_text, read_json_at, skip_space
from specdec_core.errors import InvalidRequestError

_PYTHON = {"True": "true", "False": "false", "None": "null"}
"""Constants that chat templates print in Python's way."""
_TYPES: Mapping[type, frozenset[str]] = {
    str: frozenset({"string"}),
    bool: frozenset({"boolean"}),
    int: frozenset({"integer", "number"}),
    dict: frozenset({"object"}),
    list: frozenset({"array"}),
    type(None): frozenset({"null"}),
}
"""Names of the types of values, apart from fractions."""


def argument_json(text: str, schema: Any, root: Any) -> str:
    """Return the JSON of an argument that a model wrote as `text`.

    `schema` describes the argument, and `root` holds what it refers to. Text that fits none of the
    schema's types is a string. Without types, only objects and lists are no strings.
    """
    types = types_of(schema, root)
    written = _PYTHON.get(text.strip(), text.strip())
    is_string = "string" in types and text in _values(schema)
    if not is_string and _json_type(written) & (types or {"object", "array"}):
        return written
    check_text(text, "arguments")
    return json.dumps(text, ensure_ascii=False)


def _json_type(text: str) -> frozenset[str]:
    """Return the names of the types of a JSON text; none if it is no JSON or a string."""
    try:
        value, end = read_json_at(text, 0, "arguments")
    except InvalidRequestError:
        return frozenset()
    is_other = isinstance(value, str) or skip_space(text, end) < len(text)
    return frozenset() if is_other else _names(value)


def _names(value: Any) -> frozenset[str]:
    """Return the names of the types of a value."""
    if isinstance(value, float):
        return frozenset({"number", "integer"} if value.is_integer() else {"number"})
    return _TYPES[type(value)]


def types_of(schema: Any, root: Any) -> set[str]:
    """Return the names of the types that an argument may have; none if its schema names none."""
    types: set[str] = set()
    waiting, followed = [schema], set[str]()
    while waiting:
        one = waiting.pop()
        if not isinstance(one, Mapping):
            continue
        declared = one.get("type")
        types |= {name for name in (*_listed(declared), declared) if isinstance(name, str)}
        if one.get("nullable"):
            types.add("null")
        for value in _values(one):
            types |= _names(value)
        reference = one.get("$ref")
        if isinstance(reference, str) and reference not in followed:
            followed.add(reference)
            waiting.append(_target(reference, root))
        for name in ("anyOf", "oneOf", "allOf"):
            waiting += _listed(one.get(name))
    return types


def _values(schema: Any) -> list[Any]:
    """Return the values that a schema lists."""
    if not isinstance(schema, Mapping):
        return []
    return [*_listed(schema.get("enum")), *([schema["const"]] if "const" in schema else ())]


def _listed(given: Any) -> Sequence[Any]:
    """Return the items of a list. A schema may have something else in its place."""
    return given if isinstance(given, list) else ()


def _target(reference: str, root: Any) -> Any:
    """Return what a reference such as `#/$defs/Node` leads to; None if it leads to nothing."""
    path, target = reference.removeprefix("#"), root
    for step in path.split("/")[1:]:
        if not isinstance(target, Mapping):
            return None
        target = target.get(step.replace("~1", "/").replace("~0", "~"))
    return target
