"""Values that an argument may have: texts, which a model writes without quotes, and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from deployments.text.lark_source import lark_string
from deployments.text.schema_numbers import NUMBER_KEYWORDS
from deployments.text.schema_path import Schema, SchemaPath
from deployments.text.schema_source import KEYWORDS, REFUSED, TYPES
from deployments.text.schema_strings import STRING_KEYWORDS, read_strings

_SPACE = r"[\p{White_Space}\x{1c}-\x{1f}]*"
_INTEGER = "-?(?:0|[1-9][0-9]*)"
_NUMBER = rf"{_INTEGER}(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_READ_AS: Mapping[str, str] = MappingProxyType(
    {
        "integer": rf"{_SPACE}{_NUMBER}{_SPACE}",
        "number": rf"{_SPACE}{_NUMBER}{_SPACE}",
        "boolean": f"{_SPACE}(?:[Tt]rue|[Ff]alse){_SPACE}",
        "null": f"{_SPACE}(?:null|None){_SPACE}",
        "object": rf"{_SPACE}\{{(?s:.*)",
        "array": rf"{_SPACE}\[(?s:.*)",
    }
)
"""Texts that may be read as a value of a type, if the argument may have it."""
_WRITTEN: Mapping[str, str] = MappingProxyType(
    {
        "integer": "-?(?:0|[1-9][0-9]{0,15})",
        "number": r"-?(?:0|[1-9][0-9]{0,15})(?:\.[0-9]{1,15})?",
        "boolean": "true|false",
        "null": "null",
    }
)
"""Texts of values without limits."""
_FORMATS: Mapping[str, str] = MappingProxyType(
    {
        "uuid": "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
        "ipv4": r"(?:(?:25[0-5]|(?:2[0-4]|1[0-9]|[1-9])?[0-9])\.){3}"
        "(?:25[0-5]|(?:2[0-4]|1[0-9]|[1-9])?[0-9])",
    }
)
"""Formats of strings that are enforced here, apart from those that become patterns."""


@dataclass(frozen=True, slots=True)
class Values:
    """Values of one argument."""

    texts: tuple[str, ...] = ()
    """Strings, as expressions of a terminal."""
    constants: tuple[Any, ...] = ()
    """Values that are no strings, of `enum` or `const`."""
    others: tuple[tuple[SchemaPath, Schema], ...] = ()
    """Schemas of values that are no strings."""

    def __add__(self, other: Values) -> Values:
        return Values(
            self.texts + other.texts,
            self.constants + other.constants,
            self.others + other.others,
        )


def values_of(schema: Any, path: SchemaPath) -> Values:
    """Return the values that fit a schema. Raises InvalidRequestError with a pointer."""
    return _values(schema, path, set())


def _values(schema: Any, path: SchemaPath, seen: set[str]) -> Values:
    """`seen` are references whose values are part of the same union already."""
    path.document.count(path)
    if schema is False:
        raise path.wrong("is false, which no value fits")
    if schema is True or KEYWORDS.isdisjoint(path.mapping(schema)):
        return Values(("ANY",))
    given = {name: one for name, one in schema.items() if name in KEYWORDS}
    for name in ("$ref", "anyOf", "oneOf", "allOf"):
        if name in given:
            return _combined(name, given, path, seen)
    if "enum" in given or "const" in given:
        return _listed(given, path)
    types = given.get("type")
    if isinstance(types, list):
        options = (_values(given | {"type": one}, path, seen) for one in types)
        return sum(options, Values())
    if types == "string":
        return Values((_string(given, path),))
    if types is None:
        raise path.unsupported("needs a type in the model's format of tool calls")
    if types not in TYPES:
        raise path.at("type").wrong(f"is {types!r:.40}: known are {', '.join(TYPES)}")
    return Values(others=((path, given),))


def _combined(keyword: str, schema: Schema, path: SchemaPath, seen: set[str]) -> Values:
    """Return the values of a reference or of a combination of schemas."""
    beside = schema.keys() - {keyword, "type"}
    if beside:
        raise path.at(sorted(beside)[0]).unsupported(
            f"is not supported beside {keyword} in the model's format of tool calls"
        )
    if keyword == "$ref":
        reference = path.at(keyword).text(schema[keyword])
        if reference in seen:
            return Values()
        seen.add(reference)
        target = path.document.resolved(schema, path.at(keyword))
        return _values(target, path.at(keyword), seen)
    given = path.at(keyword).items(schema[keyword])
    options = [_values(one, path.at(keyword, i), seen) for i, one in enumerate(given)]
    if keyword == "anyOf" or len(options) == 1:
        return sum(options, Values())
    if any(one.texts or one.constants for one in options):
        raise path.at(keyword).unsupported(
            "is not supported for strings in the model's format of tool calls: use anyOf"
        )
    return Values(others=((path, schema),))


def _listed(schema: Schema, path: SchemaPath) -> Values:
    beside = schema.keys() - {"enum", "const", "type"}
    if beside or {"enum", "const"} <= schema.keys():
        name = sorted(beside or {"const"})[0]
        raise path.at(name).unsupported(
            "is not supported beside enum or const in the model's format of tool calls"
        )
    values = [schema["const"]] if "const" in schema else path.at("enum").items(schema["enum"])
    if not values:
        raise path.at("enum").wrong("is empty")
    texts = tuple(lark_string(one) for one in values if isinstance(one, str))
    return Values(texts, tuple(one for one in values if not isinstance(one, str)))


def _string(schema: Schema, path: SchemaPath) -> str:
    """Return the expression of a string's texts."""
    for name in sorted(schema.keys() & REFUSED):
        raise path.at(name).unsupported()
    used = {name: one for name, one in schema.items() if name in STRING_KEYWORDS}
    rules = read_strings(used, path)
    parts = [one["pattern"][1:-1] for one in (rules, *rules.get("allOf", ())) if "pattern" in one]
    if "format" in rules:
        if rules["format"] not in _FORMATS:
            raise path.at("format").unsupported(
                f"is {rules['format']}, which is not supported in the model's format of tool "
                f"calls: leave it out. Supported are date, date-time, time, {', '.join(_FORMATS)}"
            )
        parts.append(_FORMATS[rules["format"]])
    low, high = rules.get("minLength", 0), rules.get("maxLength", "")
    if low or high != "":
        parts.append(f"(?s:.){{{low},{high}}}")
    return " & ".join(f"/(?:{part})/" for part in parts) or "ANY"


def unlike(texts: Iterable[str], types: Iterable[str]) -> str:
    """Return the expression of those strings that are not read as a value of another type."""
    refused = sorted({_READ_AS[name] for name in types if name != "string"})
    options = " | ".join(f"({one})" for one in texts)
    return " & ".join([f"({options})", *(f"~(/{one}/)" for one in refused)])


def scalar_texts(values: Values) -> list[str]:
    """Return the texts of all values that are neither strings, objects nor arrays.

    Raises InvalidRequestError for limits of numbers, which no expression can hold.
    """
    texts = [lark_string(json.dumps(one)) for one in values.constants]
    for path, schema in values.others:
        limits = sorted(schema.keys() & {*NUMBER_KEYWORDS, "oneOf", "allOf"})
        if limits:
            raise path.at(limits[0]).unsupported(
                "is not supported for an argument that may also be a string, in the model's "
                "format of tool calls: leave it out"
            )
        if schema["type"] in _WRITTEN:
            texts.append(f"/{_WRITTEN[schema['type']]}/")
    return texts
