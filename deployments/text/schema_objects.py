"""The keywords of JSON schemas for objects and arrays."""

from __future__ import annotations

from typing import Any

from deployments.text.schema_numbers import read_count
from deployments.text.schema_path import Schema, SchemaPath
from deployments.text.schema_strings import read_pattern

ARRAY_KEYWORDS = ("prefixItems", "items", "additionalItems", "minItems", "maxItems")
OBJECT_KEYWORDS = (
    "properties",
    "patternProperties",
    "additionalProperties",
    "propertyNames",
    "required",
    "minProperties",
    "maxProperties",
)
MAX_PATTERNS = 50
"""Maximum number of `patternProperties` of one object: the library compares each two."""
MAX_OPTIONAL = 50
"""Maximum number of optional properties that `minProperties` or `maxProperties` may count."""


def read_arrays(schema: Schema, path: SchemaPath) -> dict[str, Any]:
    """Return the keywords for arrays. A list of `items` is the older form of `prefixItems`."""
    result: dict[str, Any] = {}
    is_old_style = isinstance(schema.get("items"), list)
    prefix, rest = ("items", "additionalItems") if is_old_style else ("prefixItems", "items")
    if prefix in schema:
        items = path.at(prefix).items(schema[prefix])
        result["prefixItems"] = [path.at(prefix, i).read(one) for i, one in enumerate(items)]
    if rest in schema:
        result["items"] = path.at(rest).read(schema[rest])
    for name in ("minItems", "maxItems"):
        if name in schema:
            is_maximum = name == "maxItems"
            result[name] = read_count(schema[name], path.at(name), is_maximum=is_maximum)
    return result


def read_objects(schema: Schema, path: SchemaPath) -> dict[str, Any]:
    """Return the keywords for objects."""
    result: dict[str, Any] = {}
    if "properties" in schema:
        given = path.at("properties").mapping(schema["properties"])
        result["properties"] = {
            name: path.at("properties", name).read(one) for name, one in given.items()
        }
    if "patternProperties" in schema:
        result["patternProperties"] = _read_patterns(
            schema["patternProperties"], path.at("patternProperties")
        )
    if "additionalProperties" in schema:
        result["additionalProperties"] = path.at("additionalProperties").read(
            schema["additionalProperties"]
        )
    if "required" in schema:
        names = path.at("required").items(schema["required"])
        result["required"] = [path.at("required", i).text(one) for i, one in enumerate(names)]
    if "propertyNames" in schema:
        result |= _read_names(schema["propertyNames"], result, path.at("propertyNames"))
    return result | _read_counts(schema, result, path)


def _read_patterns(value: Any, path: SchemaPath) -> dict[str, Any]:
    given = path.mapping(value)
    if len(given) > MAX_PATTERNS:
        raise path.unsupported(f"has {len(given)} patterns, the limit is {MAX_PATTERNS}")
    result: dict[str, Any] = {}
    for source, schema in given.items():
        pattern = read_pattern(source, path.at(source), is_name=True)
        if pattern in result:
            raise path.at(source).unsupported("overlaps with another pattern")
        result[pattern] = path.at(source).read(schema)
    return result


def _read_names(value: Any, result: Schema, path: SchemaPath) -> dict[str, Any]:
    """Return the keywords that stand for `propertyNames`: names become properties or a pattern."""
    schema = path.document.resolved(value, path)
    read = path.read(schema)
    rules = {} if read is True else read
    is_plain = isinstance(rules, dict) and rules.pop("type", "string") == "string"
    if is_plain and not rules:
        return {}
    values = result.get("additionalProperties", True)
    if is_plain and not result.keys() & {"properties", "patternProperties"}:
        if rules.keys() == {"pattern"}:
            patterns = {rules["pattern"]: values}
            return {"patternProperties": patterns, "additionalProperties": False}
        if rules.keys() == {"enum"} and all(isinstance(name, str) for name in rules["enum"]):
            properties = dict.fromkeys(rules["enum"], values)
            return {"properties": properties, "additionalProperties": False}
    raise path.unsupported("is supported only as a pattern or an enum, without properties")


def _read_counts(schema: Schema, result: Schema, path: SchemaPath) -> dict[str, Any]:
    """Return `minProperties` and `maxProperties` unless the rest implies them.

    The library counts repeated names, and it counts optional properties in few cases only.
    """
    properties, required = result.get("properties", {}), set(result.get("required", ()))
    names = required | {name for name, one in properties.items() if one is not False}
    is_open = result.get("additionalProperties") is not False or result.get("patternProperties")
    counts: dict[str, int] = {}
    for name in ("minProperties", "maxProperties"):
        if name in schema:
            is_maximum = name == "maxProperties"
            counts[name] = read_count(schema[name], path.at(name), is_maximum=is_maximum)
    if counts.get("minProperties", 0) <= len(required):
        counts.pop("minProperties", None)
    if not is_open and counts.get("maxProperties", 0) >= len(names):
        counts.pop("maxProperties", None)
    num_free = {name: value - len(required) for name, value in counts.items()}
    if is_open and num_free.get("minProperties", 0) > 1:
        raise path.at("minProperties").unsupported(
            f"is supported up to 1 above the number of required properties, {len(required)}"
        )
    num_optional = len(names) - len(required)
    is_countable = not is_open and set(num_free.values()) <= {1} and num_optional <= MAX_OPTIONAL
    if counts and num_optional and not is_countable:
        raise path.at(*list(counts)[:1]).unsupported("is not supported beside optional properties")
    return counts
