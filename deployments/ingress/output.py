"""The answer to one request: its text, where it is cut, and what is read of it.

Token IDs and log-probabilities are returned as rounds commit them. Text may lag behind. A character
is never split, and a possible beginning of a stop string is held back. An answer to a chat has
content, reasoning and calls, in either protocol. Its format is the model's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

from deployments.ingress.generation_request import (
    AnswerOptions,
    GenerationRequest,
    OutputOptions,
    Reading,
)
from deployments.ingress.request_limits import last_ids
from deployments.text.answers.asking import CallsAsked, asked_grammar
from deployments.text.answers.mark_text import MarkTokens, mark_tokens
from deployments.text.answers.reading import AnswerDelta, AnswerReader, Answers, prompt_end
from deployments.text.detokenizer import StopStrings, answer_detokenizer
from deployments.text.tokenizer import TextModel
from specdec_core.errors import InvalidRequestError
from specdec_core.grammar import GrammarSpec
from specdec_core.logprobs import TokenLogprobs
from specdec_core.request import FinishReason, RequestStats, TokenEvent
from specdec_core.sampling_params import SamplingParams

_SHOWS_TEXT = OutputOptions()
_READS_NOTHING = AnswerOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputChunk:
    """Everything new since the last chunk. The last chunk has a finish reason."""

    index: int
    token_ids: tuple[int, ...]
    text: str
    told_text: str = ""
    """Text that the client had before it resumed. It precedes `text` and is not sent again."""
    text_offsets: tuple[int, ...]
    """Number of certain characters before each token, even if they are held back or cut off."""
    told_offsets: tuple[int, ...] = ()
    """Same as `text_offsets`, for the tokens that the client had before it resumed."""
    logprobs: tuple[TokenLogprobs, ...] = ()
    """One entry per token if the request asked for them, otherwise empty."""
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    """One entry per prompt token but the first, if the request asked for them.

    They come with the first token.
    """
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    """The stop token ID or stop string that ended the output."""
    stats: RequestStats | None = None


def joined(pieces: Sequence[OutputChunk]) -> OutputChunk:
    """Return the whole output as one chunk."""
    return replace(
        pieces[-1],
        index=pieces[0].index,
        told_text=pieces[0].told_text,
        told_offsets=pieces[0].told_offsets,
        token_ids=tuple(i for piece in pieces for i in piece.token_ids),
        text="".join(piece.text for piece in pieces),
        text_offsets=tuple(offset for piece in pieces for offset in piece.text_offsets),
        logprobs=tuple(entry for piece in pieces for entry in piece.logprobs),
        prompt_logprobs=pieces[0].prompt_logprobs,
    )


class Output:
    """Turns the token events of one request into chunks."""

    def __init__(
        self,
        text: TextModel,
        params: SamplingParams,
        stop: Sequence[str],
        view: OutputOptions = _SHOWS_TEXT,
        prompt_token_ids: Sequence[int] = (),
    ) -> None:
        """The output continues the text of `prompt_token_ids`."""
        hidden = {} if view.shows_special_tokens else view.hidden_tokens
        self._detokenizer = answer_detokenizer(text, prompt_token_ids, hidden)
        self._hidden = text.hidden_tokens if hidden is None else hidden
        self._stops = StopStrings(stop) if stop else None
        self._view = view
        self._params = params
        self._num_chars = 0

    def take(self, event: TokenEvent) -> OutputChunk:
        """Return the chunk of an event. Text is added token by token, so the cut never depends on
        how many tokens a round brought."""
        if self._view.hides_output:
            return _without_tokens(event)
        is_stopped = event.finish_reason is FinishReason.STOP and event.token_ids
        end_id = event.token_ids[-1] if is_stopped else None
        # The text of an ID that ends the output is not shown.
        hides_end = is_stopped and not self._view.includes_stop
        shown_ids = event.token_ids[:-1] if hides_end else event.token_ids
        texts = [self._detokenizer.add(token_id) for token_id in shown_ids]
        offsets = tuple(accumulate(map(len, texts), initial=self._num_chars))
        self._num_chars = offsets[-1]
        rest = self._detokenizer.flush() if event.finish_reason is not None else ""
        chunk = OutputChunk(
            index=event.index,
            token_ids=event.token_ids,
            text="".join(texts) + rest,
            text_offsets=offsets[: len(event.token_ids)],
            logprobs=event.logprobs,
            prompt_logprobs=event.prompt_logprobs,
            finish_reason=event.finish_reason,
            stop_reason=end_id if end_id in self._params.stop_token_ids else None,
            stats=event.stats,
        )
        return chunk if self._stops is None else self._cut(chunk, texts, rest, self._stops)

    def _cut(
        self, chunk: OutputChunk, texts: Sequence[str], rest: str, stops: StopStrings
    ) -> OutputChunk:
        """Cut a chunk at the first stop string, and hold back what may be the beginning of one.

        `texts` are those of its first tokens, `rest` follows the last one.
        """
        shown, num_tokens = "", len(chunk.token_ids)
        for count, (token_id, text) in enumerate(zip(chunk.token_ids, texts, strict=False), 1):
            # Before min_tokens a stop string ends nothing, just as no stop token ID would.
            is_early = chunk.index + count <= self._params.min_tokens
            shown += stops.add(text, is_exempt=is_early)
            if token_id in self._hidden:
                shown += stops.add(self._hidden[token_id], is_exempt=is_early, is_hidden=True)
            if stops.stop_string is not None:
                num_tokens = count
                break
        if chunk.finish_reason is not None:
            shown += stops.add(rest) + stops.flush()
        if stops.stop_string is None:
            return chunk if shown == chunk.text else replace(chunk, text=shown)
        return replace(
            chunk,
            text=shown + (stops.stop_string if self._view.includes_stop else ""),
            token_ids=chunk.token_ids[:num_tokens],
            text_offsets=chunk.text_offsets[:num_tokens],
            logprobs=chunk.logprobs[:num_tokens],
            finish_reason=FinishReason.STOP,
            stop_reason=stops.stop_string,
        )


def _without_tokens(event: TokenEvent) -> OutputChunk:
    is_whole = event.finish_reason in (FinishReason.STOP, FinishReason.LENGTH)
    return OutputChunk(
        index=event.index,
        token_ids=(),
        text="",
        text_offsets=(),
        prompt_logprobs=event.prompt_logprobs,
        finish_reason=FinishReason.LENGTH if is_whole else event.finish_reason,
        stats=event.stats,
    )


class ChatReading:
    """Reads the answers of one model by its format."""

    def __init__(self, text: TextModel) -> None:
        self._text = text
        self._answers = text.answers
        shown = text.answers.shown_tokens(text.hidden_tokens) if text.answers else frozenset()
        self._hidden = {i: one for i, one in text.hidden_tokens.items() if i not in shown}

    def prepared(
        self, ask: GenerationRequest, options: AnswerOptions, prompt_token_ids: Sequence[int]
    ) -> GenerationRequest:
        """Return `ask` with the reading of its answers and the grammar that they must follow."""
        answers = self._answers
        has_calls = answers is not None and answers.has_calls
        if options.calls is not None and options.needs_call and not has_calls:
            raise _unknown_format(options.calls)
        if answers is None or not (answers.has_reasoning or (options.calls and has_calls)):
            return ask  # the text of an answer is its content
        return self._with_reading(ask, options, answers, prompt_token_ids)

    def _with_reading(
        self,
        ask: GenerationRequest,
        options: AnswerOptions,
        answers: Answers,
        prompt_token_ids: Sequence[int],
    ) -> GenerationRequest:
        end = ""
        if options.begins_in_prompt:
            kept = last_ids(prompt_token_ids, ask.truncate_prompt_tokens)
            end = prompt_end(answers, self._text.decode_all, kept)
        reading = Reading(
            answers=answers,
            prompt_end=end,
            options=options,
            is_constrained=ask.sampling.get("grammar") is not None,
        )
        return replace(
            ask,
            reading=reading,
            view=replace(ask.view, hidden_tokens=self._hidden),
            sampling={**ask.sampling, "grammar": self._grammar(ask, reading)},
        )

    def _grammar(self, ask: GenerationRequest, reading: Reading) -> GrammarSpec | None:
        """Return the grammar of the whole answer, with its reasoning and the marks of its
        format."""
        options, content = reading.options, ask.sampling.get("grammar")
        if content is None and not options.needs_call:
            return None
        if content is not None and options.needs_call:
            raise InvalidRequestError(
                f"{content.param} and tool_choice exclude each other", param=content.param
            )
        begun = reading.reader().begun
        return asked_grammar(
            reading.answers.format, begun, options.calls, content, self._mark_tokens
        )

    @cached_property
    def _mark_tokens(self) -> MarkTokens:
        return mark_tokens(self._text)


def _unknown_format(calls: CallsAsked) -> InvalidRequestError:
    asked = "required" if calls.name is None else repr(calls.name)[:80]
    return InvalidRequestError(
        f"tool_choice={asked} requires a tool call, but the format of this "
        "model's tool calls is not known. Start the server with "
        "--tool-call-parser, or send tool_choice=auto",
        param="tool_choice",
        code="unsupported_value",
    )


class ReadAnswer:
    """Everything read of one answer. Call `read` with its chunks in order, once for each."""

    def __init__(self, reading: Reading | None) -> None:
        self.is_plain = reading is None
        """The text is the content."""
        self._reader = None if reading is None else reading.reader()
        self._options = _READS_NOTHING if reading is None else reading.options
        self._offsets: list[int] = []
        """Where the text of each token begins."""
        self.counts_reasoning = reading is not None and reading.answers.has_reasoning
        self.num_calls = 0
        self.has_reasoned = False
        """The answer has reasoning, which may be left out."""

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
        return AnswerDelta(piece.text) if self._reader is None else self._read(piece, self._reader)

    def _read(self, piece: OutputChunk, reader: AnswerReader) -> AnswerDelta:
        if self.counts_reasoning:
            self._offsets += (*piece.told_offsets, *piece.text_offsets)
        if piece.told_text:
            self._shown(reader.add(piece.told_text))
        found = self._shown(reader.add(piece.text))
        if piece.finish_reason is None:
            return found
        rest = self._shown(reader.flush())
        self.has_reasoned |= reader.is_reasoning
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
        """Return whether the answer has ended in order to call functions, other than one that the
        client named, as in vLLM."""
        calls = self._options.calls
        is_over = piece.finish_reason is FinishReason.STOP
        return is_over and self.num_calls > 0 and (calls is None or calls.name is None)
