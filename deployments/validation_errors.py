"""Wording of what pydantic found, as readable lines."""

from __future__ import annotations

from pydantic import ValidationError
from pydantic_core import ErrorDetails

_BRANCHES = ("str", "int", "list[str]")


def describe_errors(error: ValidationError) -> str:
    """Every mistake as `field: what is wrong, got value`, values of secrets left out."""
    return "; ".join(map(describe, error.errors()))


def path_of(mistake: ErrorDetails) -> str:
    """Return the field's name with its path, without the branches of a union."""
    return ".".join(str(part) for part in mistake["loc"] if part not in _BRANCHES)


def describe(mistake: ErrorDetails) -> str:
    """One mistake: its field, what is wrong, and the value."""
    message = mistake["msg"].removeprefix("Value error, ")
    path = path_of(mistake)
    if not path:
        return message
    value = mistake["input"]
    is_shown = isinstance(value, str | int | float) and "api_key" not in path
    return f"{path}: {message}, got {value!r:.80}" if is_shown else f"{path}: {message}"
