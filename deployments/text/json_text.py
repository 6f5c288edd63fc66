"""JSON from callers and from the model: read it, or refuse it with the reason."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

from specdec_core.errors import InvalidRequestError

MAX_JSON_DEPTH = 100
"""Maximum nesting of arrays and objects in JSON that a caller sends inside a field."""


def read_json(text: str, where: str) -> Any:
    """Return the value of the JSON text in the field `where`. Raises InvalidRequestError."""
    value, end = read_json_at(text, 0, where)
    if skip_space(text, end) < len(text):
        raise InvalidRequestError(
            f"{where} is not JSON: unexpected text after its end, at char {end}", param=where
        )
    return value


def read_json_at(
    text: str, start: int, where: str, *, keeps_numbers: bool = False
) -> tuple[Any, int]:
    """Return the value that begins at `start`, and where it ends. Raises InvalidRequestError.

    `keeps_numbers` leaves numbers as they are written, as strings, of any size.
    """
    decoder = _NUMBERS_AS_TEXT if keeps_numbers else _DECODER
    try:
        value, end = decoder.raw_decode(text, skip_space(text, start))
    except RecursionError:
        raise _too_deep(where) from None
    except ValueError as error:
        raise InvalidRequestError(f"{where} is not JSON: {error}", param=where) from None
    return checked_json(value, where), end


def skip_space(text: str, start: int) -> int:
    """Return where the next character is that is no JSON white space."""
    match = _SPACE.match(text, start)
    return match.end() if match else start


def checked_json(value: Any, where: str) -> Any:
    """Return `value` if it can be written as JSON again; `where` is the caller's field.

    Refuses deep nesting, numbers outside the range of a double, and half surrogate pairs.
    """
    level, depth = [value], 0
    while level:
        below: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                below += one.keys()
                below += one.values()
            elif isinstance(one, list):
                below += one
            elif isinstance(one, str):
                check_text(one, where)
            elif isinstance(one, float) and not math.isfinite(one):
                raise InvalidRequestError(
                    f"{where} has a number outside the range of a 64-bit float", param=where
                )
        depth += any(isinstance(one, dict | list) for one in level)
        if depth > MAX_JSON_DEPTH:
            raise _too_deep(where)
        level = below
    return value


def check_text(text: str, where: str) -> None:
    """Raise InvalidRequestError for half a surrogate pair, which no UTF-8 text can hold."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(text[error.start]):04x}"
        raise InvalidRequestError(
            f"{where} has {half}, half of a surrogate pair without the other half", param=where
        ) from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
_NUMBERS_AS_TEXT = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=str, parse_int=str)


def _too_deep(where: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{where} is nested too deeply: the limit is {MAX_JSON_DEPTH} levels of arrays and objects",
        param=where,
    )
