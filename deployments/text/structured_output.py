"""What a caller asks of structured output, as the grammar that replicas compile."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from specdec_core.errors import InvalidRequestError
from specdec_core.grammar import GrammarKind, GrammarSpec

ANY_OBJECT = GrammarSpec(GrammarKind.JSON_SCHEMA, '{"type": "object"}')
MAX_GRAMMAR_CHARS = 200_000

_KINDS = ("json", "regex", "choice", "grammar", "json_object")


def from_response_format(response_format: Mapping[str, Any]) -> GrammarSpec | None:
    """OpenAI's `response_format`; None for plain text. Raises InvalidRequestError."""
    kind = response_format.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return ANY_OBJECT
    if kind == "json_schema":
        wrapper = response_format.get("json_schema")
        if not isinstance(wrapper, dict) or not isinstance(wrapper.get("schema"), dict | bool):
            raise InvalidRequestError("response_format.json_schema.schema must be a JSON schema")
        return json_schema(wrapper["schema"])
    raise InvalidRequestError(
        f"response_format.type must be text, json_object or json_schema, got {kind!r:.40}"
    )


def from_structured_outputs(fields: Mapping[str, Any]) -> GrammarSpec:
    """vLLM's `structured_outputs`: exactly one kind. Raises InvalidRequestError."""
    unknown = sorted(fields.keys() - set(_KINDS))
    if unknown:
        raise InvalidRequestError(f"unknown field structured_outputs.{unknown[0]}")
    given = {name: value for name, value in fields.items() if value not in (None, False)}
    if len(given) != 1:
        raise InvalidRequestError(
            f"structured_outputs needs exactly one of {', '.join(_KINDS)}, got {sorted(given)}"
        )
    ((name, value),) = given.items()
    if name == "json_object":
        return ANY_OBJECT
    if name == "json":
        return json_schema(value)
    if name == "choice":
        return choice(value)
    if not isinstance(value, str):
        raise InvalidRequestError(f"structured_outputs.{name} must be a string")
    return GrammarSpec(GrammarKind.REGEX if name == "regex" else GrammarKind.LARK, value)


def json_schema(schema: Any) -> GrammarSpec:
    """A schema as an object, or as JSON text."""
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except ValueError as error:
            raise InvalidRequestError(f"the JSON schema is not JSON: {error}") from None
    if not isinstance(schema, dict | bool):
        raise InvalidRequestError(f"a JSON schema is an object, got {type(schema).__name__}")
    return GrammarSpec(GrammarKind.JSON_SCHEMA, json.dumps(schema))


def choice(texts: Sequence[Any]) -> GrammarSpec:
    """One of the texts, in Lark's notation, whose strings are JSON's."""
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise InvalidRequestError("choice must be a list of texts that are not empty")
    if not texts:
        raise InvalidRequestError("choice is empty: at least 1 text is needed")
    options = " | ".join(json.dumps(text, ensure_ascii=False) for text in texts)
    return GrammarSpec(GrammarKind.LARK, f"start: {options}")
