"""Reads reasoning, content and tool calls from an answer's text as it grows.

Invariant: each character of an answer is part of a mark, part of a call that was read, or part of
the reasoning or the content that is returned. Text that does not parse is content. White space
around reasoning and around calls is layout, and is left out.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from typing import Any

from deployments.text.answers.calls import ToolCall, read_calls
from deployments.text.answers.formats import AnswerFormat
from deployments.text.answers.marks import Kind, Mark, Marks, marks_of

_LOOKBEHIND = 64
"""Characters before a mark that its pattern may look at."""
_MAX_READ = 4_096
"""Characters that were read and are still kept."""


@dataclass(frozen=True, slots=True)
class Found:
    """Parts of an answer that became certain."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()

    def __add__(self, other: Found) -> Found:
        return Found(
            self.content + other.content,
            self.reasoning + other.reasoning,
            self.calls + other.calls,
        )


class Begun(Enum):
    """What a prompt has begun of an answer."""

    NOTHING = auto()
    REASONING = auto()
    CONTENT = auto()
    """The reasoning is over, or the content's mark is written."""


class Answers:
    """Reads the answers of one model."""

    def __init__(self, answer_format: AnswerFormat) -> None:
        self.format = answer_format

    def compile(self) -> None:
        """Compile the format, which imports transformers, before the first request."""
        self.reader(tools=[{}])
        if self.has_reasoning:
            self.reader()

    @property
    def has_reasoning(self) -> bool:
        """Whether an answer is read although its request has no tools."""
        fields = self.format.template(reads_calls=False)["fields"].values()
        return any("open" in field or "open_pattern" in field for field in fields)

    @cached_property
    def _with_calls(self) -> Marks:
        return marks_of(self.format, reads_calls=True)

    @cached_property
    def _without_calls(self) -> Marks:
        return marks_of(self.format, reads_calls=False)

    def reader(self, prompt_end: str = "", tools: Sequence[Mapping[str, Any]] = ()) -> AnswerReader:
        """Return a reader for one answer. Calls are read if there are `tools`.

        `prompt_end` is the prompt's text, at least from the last beginning of an answer on: a chat
        template may write the first marks of an answer itself.
        """
        marks = self._with_calls if tools else self._without_calls
        calls = self.format.calls
        return AnswerReader(marks, prompt_end, tools, calls.call_id_length if calls else None)


class _Text:
    """Text of one kind as it is shown, without the white space around regions."""

    def __init__(self, between: str = "") -> None:
        """`between` stands between the texts of two regions."""
        self._between = between
        self._is_begun = False
        self._is_trimmed = False
        self._space = ""

    def add(self, text: str) -> str:
        """Return what is certain: white space at the end waits."""
        if self._is_trimmed:
            text = text.lstrip()
        kept = text.rstrip()
        if not kept:
            self._space += text
            return ""
        before = self._between if self._is_trimmed and self._is_begun else self._space
        self._is_begun, self._is_trimmed = True, False
        self._space = text[len(kept) :]
        return before + kept

    def trim(self) -> None:
        """A region begins or ends here."""
        self._space, self._is_trimmed = "", True

    def flush(self) -> str:
        """Return the white space at the answer's end."""
        space, self._space = self._space, ""
        return space


class AnswerReader:
    """Reads one answer. `add` its text piece by piece, then `flush`."""

    def __init__(
        self,
        marks: Marks,
        prompt_end: str = "",
        tools: Sequence[Mapping[str, Any]] = (),
        id_length: int | None = None,
    ) -> None:
        self._marks = marks
        self._tools = tools
        self._id_length = id_length
        self._region = marks.between
        self._buffer = ""
        self._offset = 0
        """Where the buffer begins in the answer, in characters."""
        self._start = 0
        """Where the mark of the open call begins in the buffer."""
        self._body = 0
        """Where the text of the open call begins in the buffer."""
        self._at = 0
        """Where the buffer is read on."""
        self._texts = {Kind.CONTENT: _Text(), Kind.REASONING: _Text(between="\n")}
        self._texts[Kind.REASONING].trim()
        self._turns: list[int] = []
        """Where reasoning begins and ends in the answer, in turns."""
        begun = marks.after_anchor(prompt_end)
        self.add(begun)
        self._offset -= len(begun)
        self.begun = self._begun()
        self._turns = [0] if self.begun is Begun.REASONING else []

    def _begun(self) -> Begun:
        if self._region.kind is Kind.REASONING:
            return Begun.REASONING
        is_outside = self._region is self._marks.between and not self._turns
        return Begun.NOTHING if is_outside else Begun.CONTENT

    def num_reasoning_tokens(self, offsets: Sequence[int]) -> int:
        """Return how many of an answer's tokens are reasoning.

        `offsets`: where the text of each token begins in the answer, in characters, ascending.
        """
        places = [bisect_left(offsets, turn) for turn in self._turns]
        if len(places) % 2:
            places.append(len(offsets))
        return sum(places[1::2]) - sum(places[::2])

    def add(self, text: str) -> Found:
        """Return what became certain with `text`."""
        self._buffer += text
        found = self._read(at_end=False)
        self._forget()
        return found

    def flush(self) -> Found:
        """Return what is left at the answer's end."""
        found = self._read(at_end=True)
        while self._region.kind is Kind.CALL:
            found += self._end_call() + self._read(at_end=True)
        return found + Found(content=self._texts[Kind.CONTENT].flush())

    def _read(self, *, at_end: bool) -> Found:
        found = Found()
        while True:
            mark, end = self._marks.next_mark(self._region, self._buffer, self._at, at_end=at_end)
            if self._region.kind is not Kind.CALL:
                found += self._told(self._buffer[self._at : end])
            self._at = end
            if mark is None:
                return found
            self._at = mark.end
            found += self._closed(mark) if mark.opened is None else self._opened(mark)

    def _told(self, text: str) -> Found:
        """Return text of the open region."""
        shown = self._texts[self._region.kind].add(text)
        if self._region.kind is Kind.REASONING:
            return Found(reasoning=shown)
        return Found(content=shown)

    def _opened(self, mark: Mark) -> Found:
        assert mark.opened is not None
        self._region = mark.opened
        self._start, self._body = mark.start, mark.end
        if self._region.kind is not Kind.CALL:
            self._trim(mark.end)
        return Found()

    def _closed(self, mark: Mark) -> Found:
        region = self._region
        if region.kind is not Kind.CALL:
            self._trim(mark.start)
        elif region.is_json and _ends_in_string(
            self._buffer[self._body : mark.start], region.string_marks
        ):
            return Found()  # the string contains what looks like the mark
        else:
            return self._end_call(mark)
        self._region = self._marks.between
        return Found()

    def _trim(self, place: int) -> None:
        """Reasoning or marked content begins or ends at `place` in the buffer."""
        self._texts[self._region.kind].trim()
        self._texts[Kind.CONTENT].trim()
        if self._region.kind is Kind.REASONING:
            self._turns.append(self._offset + place)

    def _end_call(self, mark: Mark | None = None) -> Found:
        """Read the open call, which ends at `mark` or with the answer.

        If it cannot be read, its mark is content, and what follows is read anew.
        """
        calls = None
        if mark is not None or self._marks.closes_calls_at_end:
            text = self._buffer[self._start : mark.start if mark else None]
            calls = read_calls(text, self._marks.call_template, self._tools, self._id_length)
        self._region = self._marks.between
        if calls is None:
            self._at = self._body
            return self._told(self._buffer[self._start : self._body])
        self._at = mark.end if mark else len(self._buffer)
        self._texts[Kind.CONTENT].trim()
        return Found(calls=calls)

    def _forget(self) -> None:
        """Drop what was read; marks may look behind them a little."""
        count = (self._start if self._region.kind is Kind.CALL else self._at) - _LOOKBEHIND
        if count < _MAX_READ:
            return
        self._buffer = self._buffer[count:]
        self._offset += count
        self._at -= count
        self._start -= count
        self._body -= count


def _ends_in_string(text: str, marks: Sequence[tuple[str, str]]) -> bool:
    """Return whether a text of JSON ends within a string."""
    for opening, closing in marks or [('"', '"')]:
        inside = r"(?:\\.|[^\\])*?" if closing == '"' else ".*?"
        whole = f"{re.escape(opening)}{inside}{re.escape(closing)}"
        text = re.sub(whole, "", text, flags=re.DOTALL)
        if opening in text:
            return True
    return False
