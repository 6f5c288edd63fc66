"""One answer to a chat as it is read: content, reasoning and calls, in either protocol."""

from __future__ import annotations

from dataclasses import dataclass, replace

from deployments.ingress.output import OutputChunk
from deployments.text.answers.asking import CallsAsked
from deployments.text.answers.reading import AnswerDelta, AnswerReader, Answers
from specdec_core.request import FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOptions:
    """Options of a chat for its answers."""

    calls: CallsAsked | None = None
    """None: the request has no tools, or declines them."""
    includes_reasoning: bool = True
    begins_in_prompt: bool = True
    """The prompt ends with the beginning of the answer."""

    @property
    def needs_call(self) -> bool:
        """Whether the answer must be a call."""
        return self.calls is not None and self.calls.is_required


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How the answers to one chat are read."""

    answers: Answers
    prompt_end: str
    options: AnswerOptions
    is_constrained: bool = False
    """The request has a grammar for the content."""

    def reader(self) -> AnswerReader:
        """Return a reader for one of the answers."""
        calls = self.options.calls
        return self.answers.reader(
            self.prompt_end,
            () if calls is None else calls.tools,
            is_constrained=self.is_constrained,
        )


_PLAIN = AnswerOptions()


class ReadAnswer:
    """Everything read of one answer. Call `read` with its chunks in order, once for each."""

    def __init__(self, reading: Reading | None) -> None:
        """Without `reading` the text is the content."""
        self._reader = None if reading is None else reading.reader()
        self._options = _PLAIN if reading is None else reading.options
        self._offsets: list[int] = []
        """Where the text of each token begins."""
        self.counts_reasoning = reading is not None and reading.answers.has_reasoning
        self.num_calls = 0
        self.has_reasoned = False
        """The answer has reasoning, which may be left out."""

    @property
    def is_plain(self) -> bool:
        """Whether the text is the content."""
        return self._reader is None

    @property
    def hides_tokens(self) -> bool:
        """Whether IDs and log-probabilities are left out, as they would show the reasoning."""
        return not self._options.includes_reasoning

    @property
    def num_reasoning_tokens(self) -> int:
        """Tokens of the reasoning, without its marks."""
        return 0 if self._reader is None else self._reader.num_reasoning_tokens(self._offsets)

    def read(self, piece: OutputChunk) -> AnswerDelta:
        """Return what became certain with `piece` and is new to the client."""
        if self._reader is None:
            return AnswerDelta(piece.text)
        if self.counts_reasoning:
            self._offsets += (*piece.told_offsets, *piece.text_offsets)
        if piece.told_text:
            self._shown(self._reader.add(piece.told_text))
        found = self._shown(self._reader.add(piece.text))
        if piece.finish_reason is None:
            return found
        rest = self._shown(self._reader.flush())
        self.has_reasoned |= self._reader.is_reasoning
        is_known = bool(piece.told_text) and not piece.token_ids
        return found if is_known else found + rest

    def _shown(self, found: AnswerDelta) -> AnswerDelta:
        """Return what the client may have of it, and count it."""
        self.has_reasoned |= bool(found.reasoning)
        if not self._options.includes_reasoning:
            found = replace(found, reasoning="")
        calls = self._options.calls
        if calls is not None and not calls.allows_many:  # the first one is kept, as in vLLM
            found = replace(found, calls=found.calls[: max(1 - self.num_calls, 0)])
        self.num_calls += len(found.calls)
        return found

    def ends_with_calls(self, piece: OutputChunk) -> bool:
        """Return whether the answer has ended in order to call functions.

        A call of a function that the client named does not count, as in vLLM.
        """
        calls = self._options.calls
        is_over = piece.finish_reason is FinishReason.STOP
        return is_over and self.num_calls > 0 and (calls is None or calls.name is None)
