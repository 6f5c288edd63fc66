"""Regular expressions in Python's notation, rewritten for the grammar library.

Python's own parser reads the expression, so that each construct either means what it means in
`re.fullmatch` or is refused by its name. Classes keep to what Python and ECMAScript agree on.
`\\d`, `\\w` and `\\s` are ASCII. Their negations exclude each digit, letter or space of Unicode.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

from specdec_core.errors import InvalidRequestError

warnings.filterwarnings("ignore", "Possible (nested set|set [a-z]+)", FutureWarning)
"""Python's parser warns of notations that it may read otherwise one day."""

MAX_REGEX_DEPTH = 100
"""Maximum nesting of groups."""

_ANYTHING = "(?s:.*)"
_REFUSED = {
    ops.ASSERT: "a lookahead or lookbehind, (?=...) or (?<=...),",
    ops.ASSERT_NOT: "a negative lookahead or lookbehind, (?!...) or (?<!...),",
    ops.FAILURE: "a negative lookahead, (?!),",
    ops.GROUPREF: r"a backreference, such as \1 or (?P=name),",
    ops.GROUPREF_EXISTS: "a conditional group, (?(1)...),",
    ops.ATOMIC_GROUP: "an atomic group, (?>...),",
    ops.POSSESSIVE_REPEAT: "a possessive quantifier, such as *+,",
}
_STARTS = (ops.AT_BEGINNING, ops.AT_BEGINNING_STRING)
_ENDS = (ops.AT_END, ops.AT_END_STRING)
_CATEGORIES = {
    ops.CATEGORY_DIGIT: ("0-9", r"\p{Nd}"),
    ops.CATEGORY_NOT_DIGIT: (r"[^\p{Nd}]", "[^0-9]"),
    ops.CATEGORY_WORD: ("0-9A-Za-z_", r"\p{L}\p{N}\p{M}\p{Pc}\x{200c}\x{200d}"),
    ops.CATEGORY_NOT_WORD: (r"[^\p{L}\p{N}\p{M}\p{Pc}\x{200c}\x{200d}]", "[^0-9A-Za-z_]"),
    ops.CATEGORY_SPACE: (r"\x{9}-\x{d}\x{20}", r"\p{White_Space}\x{1c}-\x{1f}\x{feff}"),
    ops.CATEGORY_NOT_SPACE: (
        r"[^\p{White_Space}\x{1c}-\x{1f}\x{feff}]",
        r"[^\x{9}-\x{d}\x{20}]",
    ),
}
"""Each class as a part of a set, and as a part of a negated set, which must exclude more."""
_OPPOSITES = (
    {ops.CATEGORY_DIGIT, ops.CATEGORY_NOT_DIGIT},
    {ops.CATEGORY_WORD, ops.CATEGORY_NOT_WORD},
    {ops.CATEGORY_SPACE, ops.CATEGORY_NOT_SPACE},
)
_OTHER_CASES = r"\x{130}\x{131}\x{17f}\x{212a}"
"""Characters outside ASCII that Python takes for another case of i, k or s."""


def full_match(source: str) -> str:
    """Return the expression for texts that `re.fullmatch` accepts. Raises InvalidRequestError."""
    return _rewritten(source, dot=r"[^\n]", edge="")


def search_match(source: str) -> str:
    """Return the expression for texts in which `re.search`, and ECMAScript, find a match."""
    dot = r"[^\n\r\x{2028}\x{2029}]"
    return f"^(?:{_rewritten(source, dot=dot, edge=_ANYTHING)})$"


def _rewritten(source: str, *, dot: str, edge: str) -> str:
    try:
        parsed = _parser.parse(source)
        return _Writer(dot).sequence(parsed, parsed.state.flags, edge, edge, 0)
    except re.error as error:
        raise InvalidRequestError(f"the regex {source!r:.80} cannot be read: {error}") from None
    except RecursionError:
        raise _too_deep() from None


class _Writer:
    """Writes parsed expressions.

    `left` and `right` are what comes before and after an item that may stand at an edge of the
    whole text. They are None for an item in the middle, which no anchor can match.
    """

    def __init__(self, dot: str) -> None:
        self._dot = dot

    def sequence(
        self, items: Any, flags: int, left: str | None, right: str | None, depth: int
    ) -> str:
        rest = list(items)
        while rest and left is not None and _is_anchor(rest[0], _STARTS, flags):
            rest, left = rest[1:], ""
        while rest and right is not None and _is_anchor(rest[-1], _ENDS, flags):
            rest, right = rest[:-1], ""
        if not rest:
            return (left or "") + (right or "")
        last = len(rest) - 1
        return "".join(
            self._item(
                op, value, flags, left if i == 0 else None, right if i == last else None, depth
            )
            for i, (op, value) in enumerate(rest)
        )

    def _item(
        self, op: Any, value: Any, flags: int, left: str | None, right: str | None, depth: int
    ) -> str:
        if depth > MAX_REGEX_DEPTH:
            raise _too_deep()
        if op is ops.SUBPATTERN:
            _, added, removed, inner = value
            within = (flags | added) & ~removed
            return f"(?:{self.sequence(inner, within, left, right, depth + 1)})"
        if op is ops.BRANCH:
            options = [self.sequence(one, flags, left, right, depth + 1) for one in value[1]]
            return f"(?:{'|'.join(options)})"
        return (left or "") + self._inner(op, value, flags, depth) + (right or "")

    def _inner(self, op: Any, value: Any, flags: int, depth: int) -> str:
        ignores_case = bool(flags & ops.SRE_FLAG_IGNORECASE)
        if op is ops.LITERAL:
            return _set([(op, value)], ignores_case) if ignores_case else _char(value)
        if op is ops.NOT_LITERAL:
            return _set([(ops.NEGATE, None), (ops.LITERAL, value)], ignores_case)
        if op is ops.IN:
            return _set(value, ignores_case)
        if op is ops.ANY:
            return "(?s:.)" if flags & ops.SRE_FLAG_DOTALL else self._dot
        if op in (ops.MAX_REPEAT, ops.MIN_REPEAT):
            low, high, inner = value
            upper = "" if high is ops.MAXREPEAT else high
            return f"(?:{self.sequence(inner, flags, None, None, depth + 1)}){{{low},{upper}}}"
        raise _unsupported(_REFUSED[op] if op in _REFUSED else _name_of_anchor(value, flags))


def _is_anchor(item: tuple[Any, Any], anchors: Sequence[Any], flags: int) -> bool:
    op, value = item
    if op is not ops.AT or value not in anchors:
        return False
    return not flags & ops.SRE_FLAG_MULTILINE or value not in (ops.AT_BEGINNING, ops.AT_END)


def _name_of_anchor(value: Any, flags: int) -> str:
    if value not in (*_STARTS, *_ENDS):
        return r"a word boundary, \b or \B,"
    if flags & ops.SRE_FLAG_MULTILINE:
        return "an anchor, ^ or $, with the flag m"
    return "an anchor, ^ or $, in the middle or in a repeated group"


def _set(items: Sequence[tuple[Any, Any]], ignores_case: bool) -> str:
    """Write a character set, such as [a-z]."""
    negated = items[0][0] is ops.NEGATE
    categories = {value for op, value in items if op is ops.CATEGORY}
    if not negated and any(pair <= categories for pair in _OPPOSITES):
        return "(?s:.)"
    parts = [_CATEGORIES[category][negated] for category in sorted(categories, key=str)]
    for op, value in items:
        if op in (ops.LITERAL, ops.RANGE):
            low, high = (value, value) if op is ops.LITERAL else value
            parts += _ranges(low, high, ignores_case)
    if not parts:
        raise _unsupported("half of a surrogate pair")
    if negated and ignores_case:
        parts.append(_OTHER_CASES)
    return f"[{'^' if negated else ''}{''.join(parts)}]"


def _ranges(low: int, high: int, ignores_case: bool) -> list[str]:
    """Write the characters from `low` to `high` without surrogates, which no text has."""
    pieces = [(low, min(high, 0xD7FF)), (max(low, 0xE000), high)]
    if ignores_case:
        if high > 0x7F:
            raise _unsupported("the flag i with characters outside ASCII")
        pieces += [(max(low, 0x41) + 32, min(high, 0x5A) + 32)]
        pieces += [(max(low, 0x61) - 32, min(high, 0x7A) - 32)]
    return [_char(a) if a == b else f"{_char(a)}-{_char(b)}" for a, b in pieces if a <= b]


def _char(code: int) -> str:
    if 0xD800 <= code <= 0xDFFF:
        raise _unsupported("half of a surrogate pair")
    char = chr(code)
    return char if char.isascii() and char.isalnum() else f"\\x{{{code:x}}}"


def _unsupported(construct: str) -> InvalidRequestError:
    return InvalidRequestError(f"{construct} is not supported in a regex", code="unsupported_value")


def _too_deep() -> InvalidRequestError:
    return InvalidRequestError(
        f"the groups of the regex are nested too deeply: the limit is {MAX_REGEX_DEPTH}"
    )
