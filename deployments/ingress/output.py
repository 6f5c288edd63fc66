"""The visible output of one generation: its text, where it is cut, and the data of each token.

Token IDs and log-probabilities are returned as rounds commit them. Text may lag behind. A character
is never split, and a possible beginning of a stop string is held back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from deployments.text.detokenizer import StopStrings, answer_detokenizer
from deployments.text.tokenizer import TextModel
from specdec_core.logprobs import TokenLogprobs
from specdec_core.request import FinishReason, RequestStats, TokenEvent
from specdec_core.sampling_params import SamplingParams


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


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """Options that decide which tokens become text."""

    shows_special_tokens: bool = False
    hidden_tokens: Mapping[int, str] | None = None
    """Special tokens that are left out of the text. None: all special tokens."""
    includes_stop: bool = False
    """The text includes the stop string, or the text of the stop token ID, that ended the
    output."""
    hides_output: bool = False
    """No token is returned, because the caller asked for the prompt alone."""


class Output:
    """Turns the token events of one request into chunks."""

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
        """Return the chunk of an event.

        Text is added token by token, so the cut never depends on how many tokens a round brought.
        """
        if self._view.hides_output:
            return _without_tokens(event)
        shown, offsets = "", []
        # The text of an ID that ends the output is not shown.
        is_ended = event.finish_reason is FinishReason.STOP and not self._view.includes_stop
        num_shown = len(event.token_ids) - is_ended
        for count, token_id in enumerate(event.token_ids, start=1):
            offsets.append(self._num_chars)
            if count <= num_shown:
                is_early = event.index + count <= self._params.min_tokens
                shown += self._add(self._detokenizer.add(token_id), is_early=is_early)
                if token_id in self._hidden:
                    special = self._hidden[token_id]
                    shown += self._stops.add(special, is_exempt=is_early, is_hidden=True)
            if self._stops.stop_string is not None:
                break
        else:
            if event.finish_reason is not None:
                shown += self._add(self._detokenizer.flush(), is_early=False)
                shown += self._stops.flush()
        is_cut = self._stops.stop_string is not None
        if self._view.includes_stop:
            shown += self._stops.stop_string or ""
        return OutputChunk(
            index=event.index,
            token_ids=event.token_ids[: len(offsets)],
            text=shown,
            text_offsets=tuple(offsets),
            logprobs=event.logprobs[: len(offsets)],
            prompt_logprobs=event.prompt_logprobs,
            finish_reason=FinishReason.STOP if is_cut else event.finish_reason,
            stop_reason=self._stops.stop_string if is_cut else self._stop_id(event),
            stats=event.stats,
        )

    def _add(self, text: str, *, is_early: bool) -> str:
        """Add text. Before min_tokens a stop string ends nothing, just as no stop token ID
        would."""
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
