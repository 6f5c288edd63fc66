"""Wording of what pydantic found, as one readable line."""

from __future__ import annotations

from pydantic import ValidationError


def describe_errors(error: ValidationError) -> str:
    """Every mistake as `field: what is wrong`, values of secrets left out."""
    return "; ".join(
        f"{'.'.join(map(str, item['loc']))}: {message}" if item["loc"] else message
        for item in error.errors()
        for message in [item["msg"].removeprefix("Value error, ")]
    )
