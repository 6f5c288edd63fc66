"""Numbers in JSON schemas, within what the grammar library computes exactly.

The library reads numbers as 64-bit floats, and multiples as 32-bit decimals.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from deployments.text.schema_path import Schema, SchemaPath

NUMBER_KEYWORDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
MAX_EXACT_INTEGER = 2**53
MAX_BOUND = 2**63 - 1024
"""The largest float below 2**63."""
_MAX_COUNT = 2**31 - 1
_MAX_MULTIPLE = 2**32 - 1
_MAX_DECIMALS = 9


def read_numbers(schema: Schema, path: SchemaPath) -> dict[str, Any]:
    """Return the keywords for numbers."""
    result: dict[str, Any] = {}
    for side in ("minimum", "maximum"):
        exclusive = f"exclusive{side.capitalize()}"
        bound = _lower_bound if side == "minimum" else _upper_bound
        is_old_style = isinstance(schema.get(exclusive), bool)
        if side in schema:
            name = exclusive if is_old_style and schema[exclusive] else side
            result[name] = bound(schema[side], path.at(side)) + 0  # not -0.0
        if exclusive in schema and not is_old_style:
            result[exclusive] = bound(schema[exclusive], path.at(exclusive)) + 0
    if "multipleOf" in schema:
        result["multipleOf"] = _multiple(schema["multipleOf"], path.at("multipleOf"))
    return result


def read_constant(value: int | float, path: SchemaPath) -> int | float:
    """Return a number of `enum` or `const`; an integral one as an integer."""
    if abs(value) > MAX_EXACT_INTEGER:
        raise path.unsupported(
            f"is {value!r:.40}, which cannot be enforced exactly: the limit is 2**53 = "
            f"{MAX_EXACT_INTEGER}. Use a string"
        )
    return int(value) if value == int(value) else value


def read_count(value: Any, path: SchemaPath, *, is_maximum: bool) -> int:
    """Return a length, or a number of items or properties."""
    number = _number(value, path)
    if number < 0 or number != int(number):
        raise path.wrong(f"must be an integer of at least 0, got {value!r:.40}")
    if number > _MAX_COUNT and not is_maximum:
        raise path.unsupported(f"is {value!r:.40}, the limit is {_MAX_COUNT}")
    return min(int(number), _MAX_COUNT)


def has_common_multiple(multiples: Iterable[float]) -> bool:
    """Whether the library can compute the least common multiple of these in 32 bits."""
    exact = [Decimal(repr(one)) for one in multiples]
    return math.prod(one.scaleb(_MAX_DECIMALS) for one in exact) <= _MAX_MULTIPLE or len(exact) < 2


def _lower_bound(value: Any, path: SchemaPath) -> int | float:
    return -_upper_bound(-_number(value, path), path)


def _upper_bound(value: Any, path: SchemaPath) -> int | float:
    """Return the largest number up to `value` that the library reads exactly."""
    number = _number(value, path)
    if number < -MAX_BOUND:
        raise path.unsupported(f"is out of range: the limit is {MAX_BOUND} on both sides")
    if number >= MAX_BOUND:
        return MAX_BOUND
    below = float(number)
    if below > number:
        below = math.nextafter(below, -math.inf)
    return int(below) if isinstance(number, int) else below


def _multiple(value: Any, path: SchemaPath) -> int | float:
    """Return a `multipleOf` that the library, which multiplies by 10, reads exactly."""
    number = _number(value, path)
    if number <= 0:
        raise path.wrong(f"must be above 0, got {value!r:.40}")
    digits, decimals = float(min(number, _MAX_MULTIPLE + 1)), 0
    while digits % 1 and decimals < _MAX_DECIMALS:
        digits, decimals = digits * 10, decimals + 1
    is_exact = Decimal(int(digits)).scaleb(-decimals) == Decimal(repr(number))
    if digits > _MAX_MULTIPLE or not is_exact:
        raise path.unsupported(f"is {value!r:.40}, which has too many digits")
    path.document.add_multiple(number, path)
    return number


def _number(value: Any, path: SchemaPath) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise path.wrong(f"must be a number, got {value!r:.40}")
    return value
