"""Marks of a format, compiled: texts that begin and end the regions of an answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from deployments.text.answers.formats import AnswerFormat

CALLS_FIELD = "tool_calls"
_REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")


class Kind(Enum):
    """What the text of a region is."""

    CONTENT = auto()
    REASONING = auto()
    CALL = auto()


@dataclass(frozen=True, slots=True)
class Pattern:
    """Pattern of a mark."""

    compiled: Any
    is_final: bool
    """More text never changes a whole match."""

    def may_change(self, found: Any, text: str) -> bool:
        """Return whether more text may change what was found."""
        if found.partial:
            return True
        is_empty = found.start() == found.end()
        return found.end() == len(text) and (is_empty or not self.is_final)


@dataclass(frozen=True, slots=True)
class Region:
    """A part of an answer between two marks."""

    kind: Kind
    opening: Pattern | None = None
    closing: Pattern | None = None
    """None: the region lasts to the answer's end."""
    is_json: bool = False
    string_marks: tuple[tuple[str, str], ...] = ()
    """Texts around strings of JSON, if they are not its quotes."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark that was found in a text."""

    start: int
    end: int
    opened: Region | None
    """The region that it opens; None if it closes the open one."""


@dataclass(frozen=True, slots=True)
class Marks:
    """All marks of a format."""

    regions: tuple[Region, ...]
    """Those with an opening mark."""
    between: Region
    """Text between the others. Its closing mark is left out of the answer."""
    call_template: Any
    """Response template of one region of calls, whose text ends with the region."""
    closes_calls_at_end: bool
    """A call may lack its closing mark at the answer's end."""
    _anchor: Any

    def after_anchor(self, prompt_end: str) -> str:
        """Return what the prompt has of the answer."""
        ends = [found.end() for found in self._anchor.finditer(prompt_end)]
        return prompt_end[ends[-1] :] if ends else ""

    def next_mark(
        self, region: Region, text: str, start: int, *, at_end: bool
    ) -> tuple[Mark | None, int]:
        """Return the next mark in `text`, and up to where the text before it is certain.

        A mark that more text may change waits, and nothing behind it is certain.
        """
        watched: list[tuple[Pattern, Region | None]] = []
        if region.closing is not None:
            watched.append((region.closing, None))
        if region is self.between:
            watched += [(one.opening, one) for one in self.regions if one.opening]
        best: Mark | None = None
        certain = len(text)
        for pattern, opened in watched:
            found = pattern.compiled.search(text, start, partial=not at_end)
            if found is None:
                continue
            if not at_end and pattern.may_change(found, text):
                certain = min(certain, found.start())
            elif best is None or (found.start(), -found.end()) < (best.start, -best.end):
                best = Mark(found.start(), found.end(), opened)
        if best is None or best.start >= certain:
            return None, certain
        return best, best.start


def marks_of(answer_format: AnswerFormat, *, reads_calls: bool) -> Marks:
    """Compile a format. Raises ValueError for a response template that is not valid."""
    from transformers.utils.chat_parsing.response_templates import load_response_template

    template = answer_format.template(reads_calls=reads_calls)
    loaded = load_response_template(template)
    regions = [_region(field) for field in loaded.fields.values()]
    between = next((one for one in regions if one.opening is None), Region(Kind.CONTENT))
    calls = template["fields"].get(CALLS_FIELD)
    one_call = None
    if calls is not None:
        unclosed = {name: value for name, value in calls.items() if not name.startswith("close")}
        one_call = load_response_template({**template, "fields": {CALLS_FIELD: unclosed}})
    return Marks(
        regions=tuple(one for one in regions if one.opening is not None),
        between=between,
        call_template=one_call,
        closes_calls_at_end=answer_format.own_template is not None,
        _anchor=loaded.start_anchor_re,
    )


def _region(field: Any) -> Region:
    kind = Kind.REASONING if field.name in _REASONING_FIELDS else Kind.CONTENT
    return Region(
        kind=Kind.CALL if field.name == CALLS_FIELD else kind,
        opening=_pattern(field.open_re, field.open_literals, field.open_literal_can_extend),
        closing=_pattern(field.close_re, field.close_literals, field.close_literal_can_extend),
        is_json=field.content == "json",
        string_marks=tuple(map(tuple, field.content_args.get("string_delims", ()))),
    )


def _pattern(compiled: Any, literals: Any, can_extend: bool) -> Pattern | None:
    if compiled is None:
        return None
    return Pattern(compiled, is_final=literals is not None and not can_extend)
