"""Options of `oneOf` that a property tells apart, such as pydantic's discriminated unions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deployments.text.schema_path import SchemaPath


def are_disjoint(options: Sequence[Any], path: SchemaPath) -> bool:
    """Return whether a required property has other strings in each option.

    Then no value fits two options, and `anyOf` says the same. The library does not follow
    references to find that out.
    """
    tags = [_tags(option, path) for option in options]
    return any(_are_distinct([of_one.get(name) for of_one in tags]) for name in tags[0])


def _tags(option: Any, path: SchemaPath) -> dict[str, set[str]]:
    """Return the strings that each required property of an object may have."""
    schema = path.document.resolved(option, path)
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return {}
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict) or not isinstance(required, list):
        return {}
    values = {
        name: _strings(properties[name], path)
        for name in required
        if isinstance(name, str) and name in properties
    }
    return {name: strings for name, strings in values.items() if strings}


def _strings(schema: Any, path: SchemaPath) -> set[str]:
    """Return the only strings that fit; none if other values do."""
    schema = path.document.resolved(schema, path)
    if not isinstance(schema, dict):
        return set()
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        return set()
    return set(values)


def _are_distinct(strings: Sequence[set[str] | None]) -> bool:
    """Return whether each option has strings, and no two options share one."""
    given = [of_one for of_one in strings if of_one]
    is_complete = len(given) == len(strings)
    return is_complete and len(set().union(*given)) == sum(map(len, given))
