"""Parsers of flags. Each makes a value of a text, or raises ValueError that names the text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from deployments.config.flags import comma_names
from specdec_core.speculation.registry import drafting_methods

Value = TypeVar("Value")


def comma_list(parse: Callable[[str], Value]) -> Callable[[str], tuple[Value, ...]]:
    """Return a parser of at least one value, separated by commas, without repetitions."""

    def parsed(text: str) -> tuple[Value, ...]:
        parts = comma_names(text)
        if not parts:
            raise ValueError("at least one value is needed")
        return tuple(dict.fromkeys(map(parse, parts)))

    return parsed


def one_of(known: Iterable[str], kind: Callable[[str], Value]) -> Callable[[str], Value]:
    """Return a parser of the texts in `known`."""
    names = tuple(known)

    def parsed(text: str) -> Value:
        if text not in names:
            raise ValueError(f"{text!r} is not one of {', '.join(names)}")
        return kind(text)

    return parsed


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{text!r} is not a number of at least 1")
    return int(text)


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a number") from error


def methods(text: str) -> tuple[str, ...]:
    """Return methods of drafting, separated by commas."""
    return comma_list(one_of(drafting_methods(), str))(text)
