"""Structured output as callers ask for it, and the grammar that replicas compile."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from deployments.errors import WrongTypeError
from deployments.text.json_text import check_text, checked_json, read_json
from deployments.text.lark_source import lark_string
from specdec_core.errors import InvalidRequestError
from specdec_core.grammar import GrammarKind, GrammarSpec

ANY_OBJECT = GrammarSpec(GrammarKind.JSON_SCHEMA, '{"type": "object"}')

_KINDS = ("json", "regex", "choice", "grammar", "json_object")
_OPTIONS = ("disable_any_whitespace", "disable_fallback")
"""Names of vLLM that change nothing: JSON has single spaces only, and there is one library."""
_UNSUPPORTED = ("structural_tag", "whitespace_pattern", "disable_additional_properties")
"""Names of vLLM that would change the answer."""
NAMES: Mapping[str, tuple[str, ...]] = {
    "response_format": ("type", "schema", "json_schema"),
    "response_format.json_schema": ("name", "description", "schema", "strict"),
    "structured_outputs": (*_KINDS, *_OPTIONS, *_UNSUPPORTED),
}
"""Names that are known in each object."""


def from_response_format(
    response_format: Mapping[str, Any], where: str = "response_format"
) -> GrammarSpec | None:
    """Read OpenAI's `response_format`; None for plain text. Raises InvalidRequestError."""
    kind = response_format.get("type")
    if kind == "text":
        _check_names(response_format, ("type",), where)
        return None
    if kind == "json_object":
        _check_names(response_format, ("type", "schema"), where)
        schema = response_format.get("schema")
        if schema is None:
            return replace(ANY_OBJECT, param=where)
        return json_schema(schema, f"{where}.schema")
    if kind == "json_schema":
        _check_names(response_format, ("type", "json_schema"), where)
        return _named_schema(response_format.get("json_schema"), f"{where}.json_schema")
    raise InvalidRequestError(
        f"{where}.type must be text, json_object or json_schema, got {kind!r:.40}",
        param=f"{where}.type",
    )


def _named_schema(wrapper: Any, where: str) -> GrammarSpec:
    if not isinstance(wrapper, dict) or not isinstance(wrapper.get("schema"), dict | bool):
        raise InvalidRequestError(f"{where}.schema must be a JSON schema", param=f"{where}.schema")
    for name, kind in (("name", str), ("description", str), ("strict", bool)):
        if not isinstance(wrapper.get(name), kind | None):
            raise _wrong_type(f"{where}.{name}", kind.__name__, wrapper[name])
    return json_schema(wrapper["schema"], f"{where}.schema")


def from_structured_outputs(
    fields: Mapping[str, Any], where: str = "structured_outputs"
) -> GrammarSpec:
    """Read vLLM's `structured_outputs`: exactly one kind. Raises InvalidRequestError."""
    given = {n: value for n, value in fields.items() if value is not None and value is not False}
    for name in _UNSUPPORTED:
        if name in given:
            raise InvalidRequestError(
                f"{where}.{name} is not supported: leave it out",
                param=f"{where}.{name}",
                code="unsupported_parameter",
            )
    kinds = [name for name in given if name in _KINDS]
    if len(kinds) != 1:
        raise InvalidRequestError(
            f"{where} needs exactly one of {', '.join(_KINDS)}, got {sorted(kinds)}", param=where
        )
    name = kinds[0]
    value, field = given[name], f"{where}.{name}"
    match name:
        case "json_object":
            return replace(ANY_OBJECT, param=field)
        case "json":
            return json_schema(value, field)
        case "choice":
            return choice(value, field)
        case "regex":
            return regex(value, field)
    return lark(value, field)


def json_schema(schema: Any, field: str = "json_schema") -> GrammarSpec:
    """Return the grammar of a schema, given as an object or as JSON text in the field `field`."""
    if isinstance(schema, str):
        schema = read_json(schema, field)
    if not isinstance(schema, dict | bool):
        raise _wrong_type(field, "JSON schema", schema)
    return GrammarSpec(GrammarKind.JSON_SCHEMA, json.dumps(checked_json(schema, field)), field)


def regex(source: Any, field: str = "regex") -> GrammarSpec:
    """Return the grammar of the texts that a regex, in Python's notation, matches as a whole."""
    return GrammarSpec(GrammarKind.REGEX, _text(source, field), field)


def lark(source: Any, field: str = "grammar") -> GrammarSpec:
    """Return a grammar in the notation of Lark."""
    return GrammarSpec(GrammarKind.LARK, _text(source, field), field)


def choice(texts: Sequence[Any], field: str = "choice") -> GrammarSpec:
    """Return the grammar of one of the texts, as one terminal of Lark."""
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise InvalidRequestError(f"{field} must be a list of non-empty strings", param=field)
    if not texts:
        raise InvalidRequestError(f"{field} is empty: at least 1 text is needed", param=field)
    for index, text in enumerate(texts):
        check_text(text, f"{field}.{index}")
    options = " | ".join(lark_string(text) for text in texts)
    return GrammarSpec(GrammarKind.LARK, f"start: CHOICE\nCHOICE: {options}", field)


def _text(source: Any, field: str) -> str:
    if not isinstance(source, str):
        raise _wrong_type(field, "string", source)
    check_text(source, field)
    return source


def _check_names(given: Mapping[str, Any], used: Collection[str], where: str) -> None:
    """Refuse known names that have no meaning next to the others."""
    for name in NAMES[where]:
        if name not in used and given.get(name) is not None:
            raise InvalidRequestError(
                f"{where}.{name} does not apply here: leave it out, because only "
                f"{', '.join(used)} apply",
                param=f"{where}.{name}",
                code="unsupported_parameter",
            )


def _wrong_type(field: str, expected: str, value: Any) -> WrongTypeError:
    return WrongTypeError(f"{field} must be a {expected}, got {type(value).__name__}", param=field)
