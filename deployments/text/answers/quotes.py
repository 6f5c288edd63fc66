"""Strings within a call: a closing mark in one of them does not end the call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_JSON_STRING = ('"', r'(?<!\\)(?:\\\\)*"')
_KIND = "quote_"
_VALUE = "(?P<value>.*?)"
"""Group of a pattern of arguments. A value begins before it and ends after it."""


@dataclass(frozen=True, slots=True)
class Quotes:
    """Compiled patterns of the texts around strings."""

    opening: Any
    """The group `quote_0` is the beginning of a string of the first kind, and so on."""
    closings: tuple[Any, ...]
    """The ends of these kinds."""


def quotes_of(content: str, args: Mapping[str, Any]) -> Quotes | None:
    """Return the quotes of a field's content, which `args` describe; None if it has none.

    Raises ValueError for a pattern that is not valid.
    """
    import regex

    pairs: list[tuple[str, str]] = []
    if content == "json":
        pairs = [(regex.escape(a), regex.escape(b)) for a, b in args.get("string_delims", ())]
        pairs.append(_JSON_STRING)
    elif content == "xml-inline":
        opening, _, closing = args["tag_pattern"].partition(_VALUE)
        pairs = [(opening, closing)] if closing else []
    try:
        regex.compile(args.get("tag_pattern", ""))
        openings = [f"(?P<{_KIND}{i}>{opening})" for i, (opening, _) in enumerate(pairs)]
        opening = regex.compile("|".join(openings), regex.DOTALL)
        closings = tuple(regex.compile(closing, regex.DOTALL) for _, closing in pairs)
    except regex.error as error:
        raise ValueError(f"tag_pattern: {error}") from None
    return Quotes(opening, closings) if pairs else None


class QuoteScan:
    """Follows the strings of one growing text. Each character is read once."""

    def __init__(self, quotes: Quotes | None) -> None:
        self._quotes = quotes
        self._at = 0
        self._closing: Any = None
        """Pattern of the open string's end."""

    def is_inside(self, text: str, start: int, end: int) -> bool:
        """Return whether `text[start:end]`, of which earlier calls saw a part, ends in a string."""
        if self._quotes is None:
            return False
        at = start + self._at
        while at < end:
            match = (self._closing or self._quotes.opening).search(text, at, end)
            at = match.end() if match else end
            if match and self._closing is None:
                at = max(at, match.start() + 1)  # an empty mark would be found again
                kind = int(match.lastgroup.removeprefix(_KIND))
                self._closing = self._quotes.closings[kind]
            elif match:
                self._closing = None
        self._at = at - start
        return self._closing is not None
