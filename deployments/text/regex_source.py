"""Regular expressions in Python's notation, rewritten for the grammar library.

Python's own parser reads the expression, so that each construct either means what it means in
`re.fullmatch` or is refused by its name. Classes keep to what Python and ECMAScript agree on.
`\\d`, `\\w` and `\\s` are ASCII. Their negations exclude each digit, letter or space of Unicode.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

from specdec_core.errors import InvalidRequestError

warnings.filterwarnings("ignore", "Possible (nested set|set [a-z]+)", FutureWarning)
"""Python's parser warns of notations that it may read otherwise one day."""

MAX_REGEX_CHARS = 20_000
"""Maximum length of an expression, and of all patterns of a JSON schema.

Reading takes Python's time, in which no other thread of the process runs.
"""
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
_WORD, _SPACE = r"\p{L}\p{N}_", r"\p{White_Space}\x{1c}-\x{1f}"
"""Letters and spaces of Python, and those that newer versions of Unicode add."""
_WIDE_WORD, _WIDE_SPACE = rf"{_WORD}\p{{M}}\p{{Pc}}\x{{200c}}\x{{200d}}", rf"{_SPACE}\x{{feff}}"


def _classes(
    digit: str, word: str, space: str, wide_digit: str, wide_word: str, wide_space: str
) -> dict[Any, tuple[str, str]]:
    """Each class as a part of a set, and as a part of a negated set."""
    return {
        ops.CATEGORY_DIGIT: (digit, wide_digit),
        ops.CATEGORY_WORD: (word, wide_word),
        ops.CATEGORY_SPACE: (space, wide_space),
        ops.CATEGORY_NOT_DIGIT: (f"[^{wide_digit}]", f"[^{digit}]"),
        ops.CATEGORY_NOT_WORD: (f"[^{wide_word}]", f"[^{word}]"),
        ops.CATEGORY_NOT_SPACE: (f"[^{wide_space}]", f"[^{space}]"),
    }


@cache
def _pythons() -> dict[Any, tuple[str, str]]:
    """Exactly Python's classes. Its version of Unicode may be older than the library's."""
    named = (
        _members(str.isdecimal),
        _members(lambda char: char.isalnum() or char == "_"),
        _members(str.isspace),
    )
    return _classes(*named, *named)


def _members(contains: Callable[[str], bool]) -> str:
    """Return the characters of a class as a part of a set."""
    codes = enumerate(code for code in range(sys.maxunicode + 1) if contains(chr(code)))
    runs = [list(run) for _, run in groupby(codes, key=lambda pair: pair[1] - pair[0])]
    return "".join(rf"\x{{{run[0][1]:x}}}-\x{{{run[-1][1]:x}}}" for run in runs)


_ASCII = _classes("0-9", "0-9A-Za-z_", r"\x{9}-\x{d}\x{20}", r"\p{Nd}", _WIDE_WORD, _WIDE_SPACE)
_OPPOSITES = (
    {ops.CATEGORY_DIGIT, ops.CATEGORY_NOT_DIGIT},
    {ops.CATEGORY_WORD, ops.CATEGORY_NOT_WORD},
    {ops.CATEGORY_SPACE, ops.CATEGORY_NOT_SPACE},
)
_OTHER_CASES = r"\x{130}\x{131}\x{17f}\x{212a}"
"""Characters outside ASCII that Python takes for another case of i, k or s."""


@dataclass(frozen=True, slots=True)
class _Dialect:
    """Notation for what depends on the use of an expression."""

    edge: str = ""
    """Expression for what may come before and after a match."""
    dot: str = r"[^\n]"
    line_end: str = ""
    """Expression for what may follow the anchor $."""
    classes: Callable[[], Mapping[Any, tuple[str, str]]] = lambda: _ASCII
    knows_case: bool = True


_FULL = _Dialect()
_SEARCH = _Dialect(edge=_ANYTHING, dot=r"[^\n\r\x{2028}\x{2029}]")
_EXACT = _Dialect(edge=_ANYTHING, line_end=r"\n?", classes=_pythons, knows_case=False)


def full_match(source: str) -> str:
    """Return the expression for texts that `re.fullmatch` accepts. Raises InvalidRequestError."""
    return _rewritten(source, _FULL)


def search_match(source: str) -> str:
    """Return the expression for texts in which `re.search`, and ECMAScript, find a match."""
    return f"^(?:{_rewritten(source, _SEARCH)})$"


def exact_match(source: str) -> str:
    """Return the expression for exactly the texts in which `re.search` finds a match."""
    return f"^(?:{_rewritten(source, _EXACT)})$"


def _rewritten(source: str, dialect: _Dialect) -> str:
    if len(source) > MAX_REGEX_CHARS:
        raise InvalidRequestError(
            f"the regex has {len(source)} characters, the limit is {MAX_REGEX_CHARS}. "
            "Use choice for a list of texts"
        )
    try:
        parsed = _parser.parse(source)
        flags = parsed.state.flags
        return _Writer(dialect).sequence(parsed, flags, dialect.edge, dialect.edge, 0)
    except re.error as error:
        raise InvalidRequestError(f"the regex {source!r:.80} cannot be read: {error}") from None
    except RecursionError:
        raise _too_deep() from None


class _Writer:
    """Writes parsed expressions.

    `left` and `right` are what comes before and after an item that may stand at an edge of the
    whole text. They are None for an item in the middle, which no anchor can match.
    """

    def __init__(self, dialect: _Dialect) -> None:
        self._dialect = dialect

    def sequence(
        self, items: Any, flags: int, left: str | None, right: str | None, depth: int
    ) -> str:
        rest = list(items)
        while rest and left is not None and _is_anchor(rest[0], _STARTS, flags):
            rest, left = rest[1:], ""
        while rest and right is not None and _is_anchor(rest[-1], _ENDS, flags):
            right = self._dialect.line_end if rest[-1][1] is ops.AT_END else ""
            rest = rest[:-1]
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
        if ignores_case and not self._dialect.knows_case:
            raise _unsupported("the flag i for the names of properties")
        if op is ops.LITERAL:
            return self._set([(op, value)], ignores_case) if ignores_case else _char(value)
        if op is ops.NOT_LITERAL:
            return self._set([(ops.NEGATE, None), (ops.LITERAL, value)], ignores_case)
        if op is ops.IN:
            return self._set(value, ignores_case)
        if op is ops.ANY:
            return "(?s:.)" if flags & ops.SRE_FLAG_DOTALL else self._dialect.dot
        if op in (ops.MAX_REPEAT, ops.MIN_REPEAT):
            low, high, inner = value
            upper = "" if high is ops.MAXREPEAT else high
            return f"(?:{self.sequence(inner, flags, None, None, depth + 1)}){{{low},{upper}}}"
        raise _unsupported(_REFUSED[op] if op in _REFUSED else _name_of_anchor(value, flags))

    def _set(self, items: Sequence[tuple[Any, Any]], ignores_case: bool) -> str:
        """Write a character set, such as [a-z]."""
        negated = items[0][0] is ops.NEGATE
        categories = {value for op, value in items if op is ops.CATEGORY}
        if not negated and any(pair <= categories for pair in _OPPOSITES):
            return "(?s:.)"
        parts = [
            self._dialect.classes()[category][negated] for category in sorted(categories, key=str)
        ]
        for op, value in items:
            if op in (ops.LITERAL, ops.RANGE):
                low, high = (value, value) if op is ops.LITERAL else value
                parts += _ranges(low, high, ignores_case)
        if not parts:
            raise _unsupported("half of a surrogate pair")
        if negated and ignores_case:
            parts.append(_OTHER_CASES)
        return f"[{'^' if negated else ''}{''.join(parts)}]"


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


def _ranges(low: int, high: int, ignores_case: bool) -> list[str]:
    """Write the characters from `low` to `high` without surrogates, which no text has."""
    parts = [(low, min(high, 0xD7FF)), (max(low, 0xE000), high)]
    if ignores_case:
        if high > 0x7F:
            raise _unsupported("the flag i with characters outside ASCII")
        parts += [(max(low, 0x41) + 32, min(high, 0x5A) + 32)]
        parts += [(max(low, 0x61) - 32, min(high, 0x7A) - 32)]
    return [_char(a) if a == b else f"{_char(a)}-{_char(b)}" for a, b in parts if a <= b]


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
