"""Strings within a call: a closing mark in one of them does not end the call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_JSON_STRING = ('"', r'(?<!\\)(?:\\\\)*"')
_VALUE = "(?P<value>.*?)"
"""Group of a pattern of arguments. A value begins before it and ends after it."""


@dataclass(frozen=True, slots=True)
class Quote:
    """Compiled patterns of the texts around a string."""

    opening: Any
    closing: Any


def quotes_of(content: str, args: Mapping[str, Any]) -> tuple[Quote, ...]:
    """Return the quotes of a field's content, which `args` describe."""
    import regex

    pairs: list[tuple[str, str]] = []
    if content == "json":
        pairs = [(regex.escape(a), regex.escape(b)) for a, b in args.get("string_delims", ())]
        pairs.append(_JSON_STRING)
    elif content == "xml-inline":
        opening, _, closing = args.get("tag_pattern", "").partition(_VALUE)
        pairs = [(opening, closing)] if closing else []
    return tuple(
        Quote(regex.compile(opening, regex.DOTALL), regex.compile(closing, regex.DOTALL))
        for opening, closing in pairs
    )


class QuoteScan:
    """Follows the strings of one growing text. Each character is read once."""

    def __init__(self, quotes: Sequence[Quote]) -> None:
        self._quotes = quotes
        self._at = 0
        self._open: Quote | None = None

    def is_inside(self, text: str, start: int, end: int) -> bool:
        """Return whether `text[start:end]`, of which earlier calls saw a part, ends in a string."""
        at = start + self._at
        while at < end:
            if self._open is None:
                at = self._opened(text, at, end)
                continue
            found = self._open.closing.search(text, at, end)
            at = found.end() if found else end
            self._open = None if found else self._open
        self._at = at - start
        return self._open is not None

    def _opened(self, text: str, at: int, end: int) -> int:
        """Find the next string; return where its content begins."""
        found = [(quote.opening.search(text, at, end), quote) for quote in self._quotes]
        opened = [(match.start(), match.end(), quote) for match, quote in found if match]
        if not opened:
            return end
        _, at, self._open = min(opened, key=lambda one: one[0])
        return at
