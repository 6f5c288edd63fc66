"""The visible output of one generation: text, where it is cut, and what is said of each token.

Ids and log-probabilities are handed out as rounds commit them. Text may lag behind: a character is
never split, and what may be the beginning of a stop string is held back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from deployments.text.detokenizer import answer_detokenizer
from deployments.text.stop_strings import StopStrings
from deployments.text.tokenizer import TextModel
from specdec_core.logprobs import TokenLogprobs
from specdec_core.request import FinishReason, RequestStats, TokenEvent
from specdec_core.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputChunk:
    """What is new since the last piece; the last one has a finish reason."""

    index: int
    token_ids: tuple[int, ...]
    text: str
    told_text: str = ""
    """What the client had before it resumed: it stands before `text` and is not told again."""
    text_offsets: tuple[int, ...]
    """Characters that were certain before each token, held back or cut off though they may be."""
    told_offsets: tuple[int, ...] = ()
    """The same of the tokens that the client had before it resumed."""
    logprobs: tuple[TokenLogprobs, ...] = ()
    """One per token when the request asked for them, else empty."""
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    """With the first token: of every prompt token but the first, when the request asked for them.
    """
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    """The stop id or stop string that ended the output."""
    stats: RequestStats | None = None


def joined(pieces: Sequence[OutputChunk]) -> OutputChunk:
    """The whole output as one piece."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """What of the tokens becomes text."""

    shows_special_tokens: bool = False
    hidden_tokens: Mapping[int, str] | None = None
    """Special tokens that are left out of the text. None: all of them."""
    includes_stop: bool = False
    """The stop string, or the text of the id, that ended the output is part of it."""
    hides_output: bool = False
    """Nothing is told of the tokens: the caller asked for the prompt alone."""


class Output:
    """Turns one request's token events into pieces."""

    def __init__(
        self,
        text: TextModel,
        params: SamplingParams,
        stop: Sequence[str],
        view: OutputOptions = OutputOptions(),
        prompt_token_ids: Sequence[int] = (),
    ) -> None:
        """The output continues the text of `prompt_token_ids`."""
        hidden = {} if view.shows_special_tokens else view.hidden_tokens
        self._detokenizer = answer_detokenizer(text, prompt_token_ids, hidden)
        self._hidden = text.hidden_tokens if hidden is None else hidden
        self._stops = StopStrings(stop)
        self._view = view
        self._params = params
        self._num_chars = 0

    def take(self, event: TokenEvent) -> OutputChunk:
        """Token by token, so that where the output is cut never depends on what a round brought."""
        if self._view.hides_output:
            return _without_tokens(event)
        shown, offsets = "", []
        for count, token_id in enumerate(event.token_ids, start=1):
            offsets.append(self._num_chars)
            if self._view.includes_stop or not _is_stop_id(event, count):
                is_early = event.index + count <= self._params.min_tokens
                shown += self._add(self._detokenizer.add(token_id), is_early=is_early)
                if token_id in self._hidden:
                    special = self._hidden[token_id]
                    shown += self._stops.add(special, is_exempt=is_early, is_hidden=True)
            if self._stops.found is not None:
                break
        else:
            if event.finish_reason is not None:
                shown += self._add(self._detokenizer.flush(), is_early=False)
                shown += self._stops.flush()
        is_cut = self._stops.found is not None
        if self._view.includes_stop:
            shown += self._stops.found or ""
        return OutputChunk(
            index=event.index,
            token_ids=event.token_ids[: len(offsets)],
            text=shown,
            text_offsets=tuple(offsets),
            logprobs=event.logprobs[: len(offsets)],
            prompt_logprobs=event.prompt_logprobs,
            finish_reason=FinishReason.STOP if is_cut else event.finish_reason,
            stop_reason=self._stops.found if is_cut else self._stop_id(event),
            stats=event.stats,
        )

    def _add(self, text: str, *, is_early: bool) -> str:
        """Before min_tokens a stop string ends nothing, just as no stop id would."""
        self._num_chars += len(text)
        return self._stops.add(text, is_exempt=is_early)

    def _stop_id(self, event: TokenEvent) -> int | None:
        if event.finish_reason is not FinishReason.STOP or not event.token_ids:
            return None
        return event.token_ids[-1] if event.token_ids[-1] in self._params.stop_token_ids else None


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


def _is_stop_id(event: TokenEvent, count: int) -> bool:
    """The id that ended the output is emitted, its text is not shown."""
    return event.finish_reason is FinishReason.STOP and count == len(event.token_ids)
