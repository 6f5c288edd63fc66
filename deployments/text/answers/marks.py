"""Marks of a format, compiled: texts that begin and end the regions of an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from deployments.text.answers.formats import CALLS_FIELD, OLDER_CALLS_FIELD, AnswerFormat
from deployments.text.answers.quotes import Quotes, quotes_of

_OR_END = r"|\Z"
_LONGEST = 128
"""Characters of the beginning of a mark that a match at the text's end may hide."""
REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")


class Kind(Enum):
    """Use of a region's text."""

    CONTENT = auto()
    REASONING = auto()
    CALL = auto()


@dataclass(frozen=True, slots=True)
class Pattern:
    """Pattern of a mark."""

    compiled: Any
    is_final: bool
    """More text never changes a whole match."""

    def may_change(self, match: Any, text: str) -> bool:
        """Return whether more text may change what was found."""
        if match.partial:
            return True
        is_empty = match.start() == match.end()
        return match.end() == len(text) and (is_empty or not self.is_final)

    def certain_before(self, match: Any, text: str, start: int) -> int:
        """Return up to where the text before a match that may change is certain.

        A search prefers a match to the beginning of another one before it.
        """
        if match.partial:
            return int(match.start())
        for at in range(max(start, match.start() - _LONGEST), match.start()):
            earlier = self.compiled.match(text, at, partial=True)
            if earlier is not None and earlier.partial:
                return at
        return int(match.start())


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """A part of an answer between two marks."""

    kind: Kind
    opening: Pattern | None = None
    closing: Pattern | None = None
    """None: the region lasts to the answer's end."""
    closes_at_end: bool = False
    """The answer's end closes it, too. Only calls need this."""
    quotes: Quotes | None = None
    """Quotes of a call. A closing mark between them is part of a string."""
    field: Any = None
    """The compiled field of the response template."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark that was found in a text."""

    start: int
    end: int
    opened: Region | None
    """The region that it opens; None if it closes the open one."""
    captures: Mapping[str, str] = field(default_factory=dict)
    """Texts that its pattern captured, by group."""


@dataclass(frozen=True, slots=True)
class Marks:
    """All marks of a format."""

    regions: tuple[Region, ...]
    """Regions with an opening mark."""
    later_regions: tuple[Region, ...]
    """Regions that may follow content."""
    between: Region
    """Text between the others. Its closing mark is left out of the answer."""
    tail: str
    """Mark that may follow a call."""
    special_openings: tuple[str, ...]
    """Beginnings of marks that are never text."""
    _anchor: Any

    def has_anchor(self, prompt_end: str) -> bool:
        """Whether an answer begins in the text."""
        return self._anchor.search(prompt_end) is not None

    def after_anchor(self, prompt_end: str) -> str:
        """Return what the prompt has of the answer."""
        ends = [match.end() for match in self._anchor.finditer(prompt_end)]
        return prompt_end[ends[-1] :] if ends else ""

    def end_of_tail(self, text: str, start: int) -> int | None:
        """Return where the mark after a call ends, `start` if none is there; None if unclear."""
        rest = text[start:].lstrip()
        if rest.startswith(self.tail):
            return len(text) - len(rest) + len(self.tail)
        return None if self.tail.startswith(rest) else start

    def next_mark(
        self,
        region: Region,
        openable: Sequence[Region],
        text: str,
        start: int,
        *,
        at_end: bool,
    ) -> tuple[Mark | None, int]:
        """Return the next mark in `text`, and up to where the text before it is certain.

        The mark closes `region` or opens one of `openable`. A mark that more text may change waits,
        and nothing after it is certain.
        """
        if start > len(text):
            return None, len(text)
        best: Mark | None = None
        certain = len(text) + at_end
        for pattern, opened in _watched(region, openable):
            match = pattern.compiled.search(text, start, partial=not at_end)
            if match is None:
                continue
            if not at_end and pattern.may_change(match, text):
                certain = min(certain, pattern.certain_before(match, text, start))
            elif best is None or (match.start(), -match.end()) < (best.start, -best.end):
                best = _mark(match, opened)
        if best is None or best.start >= certain:
            return None, min(certain, len(text))
        return best, best.start


def _watched(region: Region, openable: Sequence[Region]) -> list[tuple[Pattern, Region | None]]:
    """Return the patterns of marks in `region`, each with what it opens."""
    opened = [(one.opening, one) for one in openable if one.opening is not None]
    return [*opened, (region.closing, None)] if region.closing is not None else [*opened]


def _mark(match: Any, opened: Region | None) -> Mark:
    groups = match.groupdict() if opened is not None else {}
    captures = {name: value for name, value in groups.items() if value is not None}
    return Mark(match.start(), match.end(), opened, captures)


def marks_of(answer_format: AnswerFormat, *, reads_calls: bool) -> Marks:
    """Compile a format. Raises ValueError for a response template that is not valid."""
    from transformers.utils.chat_parsing.response_templates import load_response_template

    loaded = load_response_template(answer_format.template(reads_calls=reads_calls))
    is_own = answer_format.own_template is not None
    regions = [_region(one, is_own) for one in loaded.fields.values()]
    between = next((one for one in regions if one.opening is None), Region(Kind.CONTENT))
    marked = tuple(one for one in regions if one.opening is not None)
    reasoning = answer_format.reasoning
    is_first = reasoning is not None and not (reasoning.follows_content or is_own)
    first = reasoning.fields.keys() if reasoning is not None and is_first else ()
    return Marks(
        regions=marked,
        later_regions=tuple(one for one in marked if one.field.name not in first),
        between=between,
        tail=answer_format.calls.tail if answer_format.calls and not is_own else "",
        special_openings=reasoning.special_openings if reasoning and not is_own else (),
        _anchor=loaded.start_anchor_re,
    )


def _region(loaded: Any, is_own: bool) -> Region:
    kind = Kind.REASONING if loaded.name in REASONING_FIELDS else Kind.CONTENT
    is_call = loaded.name in (CALLS_FIELD, OLDER_CALLS_FIELD)
    closing, is_closed_by_end = loaded.close_re, is_own
    if loaded.close_literals is None and closing and closing.pattern.endswith(_OR_END):
        # A pattern that matches the end hides the beginning of a mark before it.
        closing, is_closed_by_end = _compiled(closing.pattern.removesuffix(_OR_END)), True
    return Region(
        kind=Kind.CALL if is_call else kind,
        opening=_pattern(loaded.open_re, loaded.open_literals, loaded.open_literal_can_extend),
        closing=_pattern(closing, loaded.close_literals, loaded.close_literal_can_extend),
        closes_at_end=is_closed_by_end or loaded.content == "json",  # whole JSON is a whole call
        quotes=quotes_of(loaded.content, loaded.content_args) if is_call else None,
        field=loaded,
    )


def _compiled(pattern: str) -> Any:
    import regex

    return regex.compile(pattern, regex.DOTALL)


def _pattern(compiled: Any, literals: Any, can_extend: bool) -> Pattern | None:
    if compiled is None:
        return None
    return Pattern(compiled, is_final=literals is not None and not can_extend)
