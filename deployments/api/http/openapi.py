"""Descriptions of the routes in /openapi.json, whose bodies are parsed by hand (schemas.py)."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
            "required": ["message", "type", "param", "code"],
        }
    },
    "required": ["error"],
}
_REFUSALS = {
    400: "A field, a type or a value that is not possible; the message names it and the limit.",
    401: "The API key is missing or wrong.",
    403: "A host name that a server for local callers does not accept.",
    404: "No such model.",
    408: "The request did not finish in time.",
    409: "The answer to resume was started by another model or with other numerics.",
    413: "The body is larger than the server accepts.",
    415: "A content type or an encoding that the server does not support.",
    429: "The queue is full, or the API key has reached its limit. Retry-After gives the time "
    "to wait.",
    500: "An internal error. The request may be sent again.",
    503: "The coordinator or the replicas are not available.",
}

Responses = dict[int | str, dict[str, Any]]

_OBJECT = {"application/json": {"schema": {"type": "object"}}}
STATUS: Responses = {
    200: {"description": "Ready.", "content": _OBJECT},
    503: {"description": "Not ready, and why.", "content": _OBJECT},
}


def refusals(*codes: int) -> Responses:
    """Descriptions of these statuses, in OpenAI's error shape."""
    content = {"application/json": {"schema": _ERROR}}
    return {code: {"description": _REFUSALS[code], "content": content} for code in codes}


def answers(*codes: int, streams: bool = False) -> Responses:
    """JSON, or server-sent events where the request asks for them; and these refusals."""
    content: dict[str, Any] = {"application/json": {"schema": {"type": "object"}}}
    if streams:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    return {200: {"description": "The answer.", "content": content}, **refusals(*codes)}


def body_of(kind: type[BaseModel]) -> dict[str, Any]:
    """Return the request body that `kind` takes, with its definitions inline."""
    schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
    definitions = schema.pop("$defs", {})
    return {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": _resolved(schema, definitions)}},
        }
    }


def path_parameter(name: str) -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1}
    return {"parameters": [{"name": name, "in": "path", "required": True, "schema": schema}]}


def _resolved(schema: Any, definitions: dict[str, Any]) -> Any:
    """Return `schema` with every reference replaced by what it names."""
    if isinstance(schema, list):
        return [_resolved(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    reference = schema.get("$ref")
    if reference is not None:
        return _resolved(definitions[reference.rpartition("/")[2]], definitions)
    return {name: _resolved(value, definitions) for name, value in schema.items()}
