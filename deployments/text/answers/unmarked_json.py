"""JSON schemas of values without a mark: JSON within a call, before its closing mark.

The reader takes the first closing mark for the argument's end, so no string within JSON may contain
it. A pattern cannot exclude a whole mark, so it excludes the first two characters.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

from deployments.text.schema_numbers import MAX_BOUND
from deployments.text.schema_path import Schema, SchemaPath
from deployments.text.schema_source import KEYWORDS

DEFINITIONS = ("$defs", "definitions")
_KINDS = ("$ref", "enum", "const", "anyOf", "oneOf", "allOf")
"""Keywords that say what a value is without a `type`."""
_ONE = ("items", "additionalItems", "additionalProperties")
_LISTS = ("items", "prefixItems", "anyOf", "oneOf", "allOf")
_MAPPINGS = ("properties", "patternProperties")
_LIMITS = (
    ("minimum", "exclusiveMinimum", -MAX_BOUND),
    ("maximum", "exclusiveMaximum", MAX_BOUND),
)
"""Limits of numbers that have none: the reader takes a number that no double holds for text."""
_ANY = "any value without a mark"
"""Name of the definition of such values."""


class UnmarkedJson:
    """Rewrites schemas of one document, whose top is at the path `top`."""

    def __init__(self, root: Schema, mark: str, top: SchemaPath) -> None:
        self._mark = mark[:2]
        first, second = (re.escape(char) for char in self._mark)
        self._pattern = f"^(?:[^{first}]|{first}+[^{first}{second}])*{first}*$"
        self._names = {re.escape(self._mark): False}
        self.definitions: dict[str, Any] = {
            name: {
                key: self._read(one, top.at(name, key))
                for key, one in top.at(name).mapping(root.get(name, {})).items()
            }
            for name in DEFINITIONS
        }
        self.definitions["$defs"][_ANY] = self._any()

    def whole(self, schema: Any, path: SchemaPath) -> Any:
        """Return a schema with its definitions. Raises InvalidRequestError."""
        read = self._read(schema, path)
        return read if read is False else self.with_definitions(read)

    def with_definitions(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return a schema with the definitions that it needs."""
        needed: dict[str, dict[str, Any]] = {name: {} for name in DEFINITIONS}
        waiting: list[Any] = [schema]
        while waiting:
            part = waiting.pop()
            if isinstance(part, dict):
                waiting += part.values()
            elif isinstance(part, list):
                waiting += part
            elif isinstance(part, str) and part.startswith("#/"):
                _, group, name, *_ = (*part.split("/"), "")
                name = unquote(name).replace("~1", "/").replace("~0", "~")
                if name in self.definitions.get(group, ()) and name not in needed[group]:
                    needed[group][name] = self.definitions[group][name]
                    waiting.append(needed[group][name])
        return schema | needed

    def _any(self) -> dict[str, Any]:
        again = {"$ref": f"#/$defs/{_ANY}"}
        return {
            "anyOf": [
                {"type": ["null", "boolean"]},
                {"type": "number", **{name: limit for name, _, limit in _LIMITS}},
                {"type": "string", "pattern": self._pattern},
                {"type": "array", "items": again},
                {"type": "object", "patternProperties": self._names, "additionalProperties": again},
            ]
        }

    def _read(self, schema: Any, path: SchemaPath) -> Any:
        if schema is True or (isinstance(schema, dict) and schema.keys().isdisjoint(KEYWORDS)):
            return {"$ref": f"#/$defs/{_ANY}"}
        if schema is False:
            return False
        read = self._with_parts(path.mapping(schema), path)
        types = read.get("type", ())
        types = (types,) if isinstance(types, str) else types
        is_listed = not read.keys().isdisjoint(("enum", "const"))
        if not types and read.keys().isdisjoint(_KINDS):
            raise path.unsupported("needs a type in the model's format of tool calls")
        if "string" in types and not is_listed:
            extra: dict[str, Any] = {"pattern": self._pattern}
            if read.keys() & {"pattern", "format"}:
                extra = {"allOf": [*read.get("allOf", ()), extra]}
            read |= extra
        if "number" in types and not is_listed:
            for name, exclusive, limit in _LIMITS:
                if read.keys().isdisjoint((name, exclusive)):
                    read[name] = limit
        if "object" in types and not is_listed:
            self._limit_names(read, path)
        if "array" in types and not is_listed:
            read.setdefault("items", {"$ref": f"#/$defs/{_ANY}"})
        return read

    def _with_parts(self, schema: Schema, path: SchemaPath) -> dict[str, Any]:
        read = {name: one for name, one in schema.items() if name in KEYWORDS}
        for name, given in read.items():
            if name == "$ref":
                self._check_reference(given, path.at(name))
            elif name in ("enum", "const"):
                self._check_constant(given, path.at(name))
            elif name in _MAPPINGS:
                read[name] = {
                    key: self._read(one, path.at(name, key))
                    for key, one in path.at(name).mapping(given).items()
                }
            elif name in _LISTS and isinstance(given, list):
                read[name] = [self._read(one, path.at(name, i)) for i, one in enumerate(given)]
            elif name in _ONE:
                read[name] = self._read(given, path.at(name))
        return read

    def _limit_names(self, read: dict[str, Any], path: SchemaPath) -> None:
        """Keep the mark out of the names of an object's properties."""
        self._check_constant(list(read.get("properties", ())), path.at("properties"))
        if read.get("additionalProperties") is False and "patternProperties" not in read:
            return
        if "propertyNames" in read:
            raise path.at("propertyNames").unsupported(
                "is not supported in the model's format of tool calls"
            )
        read.setdefault("additionalProperties", {"$ref": f"#/$defs/{_ANY}"})
        read["patternProperties"] = read.get("patternProperties", {}) | self._names

    def _check_reference(self, reference: Any, path: SchemaPath) -> None:
        if not path.text(reference).startswith(tuple(f"#/{name}/" for name in DEFINITIONS)):
            raise path.unsupported(
                f"is {reference!r:.60}: the model's format of tool calls needs #/$defs/..."
            )

    def _check_constant(self, value: Any, path: SchemaPath) -> None:
        """Raise InvalidRequestError if a value contains the mark."""
        if isinstance(value, dict):
            value = [*value, *value.values()]
        if isinstance(value, list):
            for one in value:
                self._check_constant(one, path)
        elif isinstance(value, str) and self._mark in value:
            raise path.unsupported(
                f"contains {self._mark!r}, which begins a mark of the model's format of tool calls"
            )
