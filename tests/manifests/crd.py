"""Checks an object against a CRD as an API server would, and refuses unknown keys besides."""

from __future__ import annotations

import copy
from typing import Any

Schema = dict[str, Any]


def strict_schema(schema: Schema) -> Schema:
    """The CRD's OpenAPI schema as a JSON schema in which unknown keys are errors."""
    strict = {key: value for key, value in schema.items() if not key.startswith("x-kubernetes")}
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    if "properties" in schema:
        strict["properties"] = {k: strict_schema(v) for k, v in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            strict["additionalProperties"] = False
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            strict[key] = strict_schema(schema[key])
    if schema.get("nullable"):
        strict["type"] = [schema["type"], "null"]
    return strict


def with_defaults(value: Any, schema: Schema) -> Any:
    """The object as the API server stores it: defaults filled in, nulls dropped."""
    if isinstance(value, list):
        return [with_defaults(item, schema.get("items", {})) for item in value]
    if not isinstance(value, dict):
        return value
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties")
    filled = {
        key: with_defaults(item, properties.get(key, others if isinstance(others, dict) else {}))
        for key, item in value.items()
        if item is not None
    }
    for key, property_schema in properties.items():
        if key not in filled and "default" in property_schema:
            filled[key] = copy.deepcopy(property_schema["default"])
    return filled
