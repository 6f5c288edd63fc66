"""Reads reasoning, content and tool calls from an answer's text as it grows.

Invariant: each character of an answer is part of a mark, of a call that was read, or of the
returned reasoning or content. Text that does not parse is content. White space around reasoning
and around calls is layout, and is left out. A line break joins two parts of the content or of the
reasoning.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from typing import Any

from deployments.text.answers.calls import ToolCall, read_calls
from deployments.text.answers.formats import CALLS_FIELD, AnswerFormat
from deployments.text.answers.marks import Kind, Mark, Marks, Region, marks_of
from deployments.text.answers.quotes import QuoteScan

_WINDOWS = (64, 1_024, 4_096)
"""Numbers of last IDs in which the beginning of the answer is looked for."""
_LOOKBEHIND = 64
"""Characters before a mark that its pattern may look at."""
_MAX_READ = 4_096
"""Characters that were read and are still kept."""
_MAX_READ_AGAIN = 16_384
"""Characters of broken calls that are read again in one answer. Longer calls are content."""


@dataclass(frozen=True, slots=True)
class AnswerDelta:
    """Parts of an answer that became certain."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()

    def __add__(self, other: AnswerDelta) -> AnswerDelta:
        return AnswerDelta(
            self.content + other.content,
            self.reasoning + other.reasoning,
            self.calls + other.calls,
        )


class Begun(Enum):
    """Part of an answer that its prompt has begun."""

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
        self.reader()

    @cached_property
    def has_reasoning(self) -> bool:
        """Whether an answer is read although its request has no tools."""
        fields = self.format.template(reads_calls=False)["fields"].values()
        return any("open" in field or "open_pattern" in field for field in fields)

    @cached_property
    def has_calls(self) -> bool:
        """Whether the format has tool calls."""
        return CALLS_FIELD in self.format.template(reads_calls=True)["fields"]

    def shown_tokens(self, special_tokens: Mapping[int, str]) -> frozenset[int]:
        """Return the special tokens, given with their texts by ID, that occur in marks."""
        fields = self.format.template(reads_calls=True)["fields"]
        patterns = json.dumps(fields, ensure_ascii=False).replace("\\", "")
        written = "\n".join([patterns, *self.format.written_marks])
        return frozenset(i for i, text in special_tokens.items() if text in written)

    def has_anchor(self, prompt_end: str) -> bool:
        """Whether an answer begins in the text."""
        return self._without_calls.has_anchor(prompt_end)

    @cached_property
    def _with_calls(self) -> Marks:
        return marks_of(self.format, reads_calls=True)

    @cached_property
    def _without_calls(self) -> Marks:
        return marks_of(self.format, reads_calls=False)

    def reader(
        self,
        prompt_end: str = "",
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        is_constrained: bool = False,
    ) -> AnswerReader:
        """Return a reader for one answer. Calls are read if there are `tools`.

        `prompt_end` is the prompt's text, at least from the last beginning of an answer on. A chat
        template may write the first marks of an answer itself. `is_constrained` says that a grammar
        constrains content. Then a mark within content, such as in a string of JSON, is text.
        """
        marks = self._with_calls if tools else self._without_calls
        calls = self.format.calls
        id_length = calls.call_id_length if calls else None
        return AnswerReader(marks, prompt_end, tools, id_length, is_constrained=is_constrained)


class _Text:
    """Text of one kind as it is shown, without the white space around regions."""

    def __init__(self) -> None:
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
        before = "\n" if self._is_trimmed and self._is_begun else self._space
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


@dataclass(slots=True)
class _OpenCall:
    """A call that is being read. Its places are in the reader's buffer."""

    start: int
    """Where its mark begins."""
    body: int
    captures: Mapping[str, str]
    strings: QuoteScan


class AnswerReader:
    """Reads one answer. `add` its text piece by piece, then `flush`."""

    def __init__(
        self,
        marks: Marks,
        prompt_end: str = "",
        tools: Sequence[Mapping[str, Any]] = (),
        id_length: int | None = None,
        *,
        is_constrained: bool = False,
    ) -> None:
        begun = marks.after_anchor(prompt_end)
        self._marks = marks
        self._tools = tools
        self._id_length = id_length
        self._is_constrained = is_constrained
        self._region = marks.between
        self._call: _OpenCall | None = None
        """The call that is open if the region is a call's."""
        self._is_after_call = False
        """Whether the mark after a call may come now."""
        self._may_read_again = _MAX_READ_AGAIN
        self._buffer = ""
        self._offset = -len(begun)
        """Where the buffer begins in the answer, in characters. The prompt's text is before 0."""
        self._at = 0
        """Where the buffer is read on."""
        self._opened_at: int | None = None
        """Where the mark of the open region begins in the answer, in characters."""
        self._is_content_begun = False
        self._has_content = False
        """Whether the answer's content has text, apart from the prompt's."""
        self._texts = {Kind.CONTENT: _Text(), Kind.REASONING: _Text()}
        self._texts[Kind.REASONING].trim()
        self._reasoning_bounds: list[int] = []
        """Offsets where reasoning begins and ends, in alternation."""
        self.add(begun)
        self.begun = self._begun()
        self._reasoning_bounds = [0] if self.begun is Begun.REASONING else []

    @property
    def is_reasoning(self) -> bool:
        """Whether the text that was read ends within reasoning."""
        return self._region.kind is Kind.REASONING

    def _begun(self) -> Begun:
        if self._region.kind is Kind.REASONING:
            return Begun.REASONING
        return Begun.CONTENT if self._is_content_begun else Begun.NOTHING

    def num_reasoning_tokens(self, offsets: Sequence[int]) -> int:
        """Return how many of an answer's tokens are reasoning.

        `offsets`: where the text of each token begins in the answer, in characters, ascending.
        """
        indices = [bisect_left(offsets, bound) for bound in self._reasoning_bounds]
        if len(indices) % 2:
            indices.append(bisect_left(offsets, self._offset + self._at))
        return sum(indices[1::2]) - sum(indices[::2])

    def add(self, text: str) -> AnswerDelta:
        """Return what became certain with `text`."""
        self._buffer += text
        delta = self._read(at_end=False)
        self._forget()
        return delta

    def flush(self) -> AnswerDelta:
        """Return what is left at the answer's end."""
        is_between = self._region is self._marks.between
        if is_between and self._buffer.startswith(self._marks.special_openings, self._at):
            self._buffer = self._buffer[: self._at]  # a mark was cut
        delta = self._read(at_end=True)
        while self._call is not None:
            delta += self._end_call(None) + self._read(at_end=True)
        return delta + AnswerDelta(content=self._texts[Kind.CONTENT].flush())

    def _read(self, *, at_end: bool) -> AnswerDelta:
        delta = AnswerDelta()
        while not self._awaits_tail(at_end=at_end):
            openable = self._openable()
            mark, end = self._marks.next_mark(
                self._region, openable, self._buffer, self._at, at_end=at_end
            )
            if self._call is None:
                delta += self._delta_of(self._at, end)
            self._at = end
            if self._openable() != openable:
                continue  # the content before the mark changes which marks may come
            if mark is None:
                return delta
            self._at = mark.end
            if mark.opened is None:
                delta += self._closed(mark)
            else:
                self._open(mark, mark.opened)
        return delta

    def _openable(self) -> Sequence[Region]:
        """Return the regions whose marks may come next."""
        if self._region is not self._marks.between:
            return ()
        if not self._has_content:
            return self._marks.regions
        return () if self._is_constrained else self._marks.later_regions

    def _awaits_tail(self, *, at_end: bool) -> bool:
        """Skip the mark after a call. Return whether more text must show if it is there."""
        if not self._is_after_call:
            return False
        end = self._marks.end_of_tail(self._buffer, self._at)
        if end is None and not at_end:
            return True
        self._at = len(self._buffer) if end is None else end
        self._is_after_call = False
        return False

    def _delta_of(self, start: int, end: int) -> AnswerDelta:
        """Return text of the buffer, which is part of the open region. The prompt's is left out."""
        of_answer = self._buffer[max(start, -self._offset) : max(end, -self._offset)]
        if self._region.kind is Kind.CONTENT and self._buffer[start:end].strip():
            self._is_content_begun = True
            self._has_content |= bool(of_answer.strip())
        shown = self._texts[self._region.kind].add(of_answer)
        if self._region.kind is Kind.REASONING:
            return AnswerDelta(reasoning=shown)
        return AnswerDelta(content=shown)

    def _open(self, mark: Mark, region: Region) -> None:
        self._region = region
        self._opened_at = self._offset + mark.start
        if region.kind is Kind.CALL:
            self._call = _OpenCall(mark.start, mark.end, mark.captures, QuoteScan(region.quotes))
        else:
            self._trim(mark.end)

    def _closed(self, mark: Mark) -> AnswerDelta:
        call = self._call
        if call is None:
            return self._closed_text(mark)
        if not call.strings.is_inside(self._buffer, call.body, mark.start):
            return self._end_call(mark)
        self._at = max(mark.end, mark.start + 1)  # an empty mark would be found again
        return AnswerDelta()

    def _closed_text(self, mark: Mark) -> AnswerDelta:
        """Leave the open region. Without progress since its mark, a character is content."""
        is_between = self._region is self._marks.between
        if is_between:
            is_stuck = mark.start == mark.end
        else:
            is_stuck = self._offset + mark.end == self._opened_at
        if not (is_between and is_stuck):
            self._trim(mark.start)
        self._region = self._marks.between
        if not is_stuck:
            return AnswerDelta()
        self._at = mark.end + 1
        return self._delta_of(mark.end, self._at)

    def _trim(self, position: int) -> None:
        """Reasoning or marked content begins or ends at `position` in the buffer."""
        self._is_content_begun = True
        self._texts[self._region.kind].trim()
        self._texts[Kind.CONTENT].trim()
        if self._region.kind is Kind.REASONING:
            self._reasoning_bounds.append(self._offset + position)

    def _end_call(self, mark: Mark | None) -> AnswerDelta:
        """Read the open call, which ends at `mark` or with the answer."""
        call, region = self._call, self._region
        assert call is not None
        end = mark.start if mark else len(self._buffer)
        calls = None
        is_empty = mark is not None and mark.end == call.start
        if not is_empty and (mark is not None or region.closes_at_end):
            calls = read_calls(
                self._buffer[call.body : end],
                region.field,
                call.captures,
                self._tools,
                self._id_length,
            )
        self._region, self._call = self._marks.between, None
        if calls is None:
            return self._broken(call, mark)
        self._at = mark.end if mark else len(self._buffer)
        self._is_after_call = bool(self._marks.tail)
        self._texts[Kind.CONTENT].trim()
        return AnswerDelta(calls=calls)

    def _broken(self, call: _OpenCall, mark: Mark | None) -> AnswerDelta:
        """Return an unreadable call as content: its mark. What follows is read again."""
        end = mark.end if mark else len(self._buffer)
        if end - call.start > self._may_read_again:
            self._at = end
        else:
            self._may_read_again -= end - call.start
            self._at = max(call.body, min(call.start + 1, len(self._buffer)))
        return self._delta_of(call.start, self._at)

    def _forget(self) -> None:
        """Drop what was read. Marks may look back a little."""
        count = (self._call.start if self._call else self._at) - _LOOKBEHIND
        if count < _MAX_READ:
            return
        self._buffer = self._buffer[count:]
        self._offset += count
        self._at -= count
        if self._call is not None:
            self._call.start -= count
            self._call.body -= count


def prompt_end(
    answers: Answers, decode: Callable[[Sequence[int]], str], prompt_token_ids: Sequence[int]
) -> str:
    """Return the prompt's text, at least from where the answer begins, if that can be found."""
    text = ""
    for size in _WINDOWS:
        text = decode(prompt_token_ids[-size:])
        if size >= len(prompt_token_ids) or answers.has_anchor(text):
            break
    return text
