"""Wording of what pydantic found, as readable lines."""

from __future__ import annotations

from pydantic import ValidationError
from pydantic_core import ErrorDetails

_BRANCHES = ("str", "int", "list[str]")


def describe_errors(error: ValidationError) -> str:
    """Every mistake as `field: what is wrong, got value`, values of secrets left out."""
    return "; ".join(map(describe, error.errors()))


def describe(mistake: ErrorDetails) -> str:
    """One mistake; of the branches of a union only those that are fields are named."""
    message = mistake["msg"].removeprefix("Value error, ")
    path = ".".join(str(part) for part in mistake["loc"] if part not in _BRANCHES)
    if not path:
        return message
    value = mistake["input"]
    is_told = isinstance(value, str | int | float) and not path.startswith("api_key")
    return f"{path}: {message}, got {value!r:.80}" if is_told else f"{path}: {message}"
