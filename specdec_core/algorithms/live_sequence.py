"""Requests of the padded algorithms from arrival to last event. This module uses no model."""

from __future__ import annotations

from collections import deque
from dataclasses import InitVar, dataclass, field

from specdec_core.config import SpeculationConfig
from specdec_core.grammar import GrammarCompiler
from specdec_core.logprobs import TokenLogprobs
from specdec_core.messages import RowResult
from specdec_core.request import FinishReason, Request, RequestStats, TokenEvent, cut_at_stop
from specdec_core.sampling.sampler import NO_CHOICE
from specdec_core.sampling.token_logprobs import PromptShare
from specdec_core.sampling_params import SamplingRules
from specdec_core.speculation.acceptance import AcceptanceHistory
from specdec_core.speculation.drafter import Drafter
from specdec_core.speculation.registry import draft_limit


@dataclass(eq=False, slots=True)
class LiveSequence:
    """A request and the tokens committed to it. Sequences compare by identity, not by their
    fields."""

    request: Request
    arrived_at: float
    grammars: InitVar[GrammarCompiler | None] = None
    admitted_at: float | None = None
    rules: SamplingRules = field(init=False)
    ids: list[int] = field(init=False)
    history: AcceptanceHistory = field(default_factory=AcceptanceHistory)
    sequence_id: int = 0
    drafter: Drafter | None = None
    """Local drafter that has begun with it. The sequence is its Row."""
    draft_state: object = None
    """See drafter.Row."""
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    """Log-probabilities of the prompt, until the event of the first token reports them."""
    finish_reason: FinishReason | None = None

    def __post_init__(self, grammars: GrammarCompiler | None) -> None:
        self.rules = self.request.rules.compiled(grammars)
        self.ids = [*self.request.prompt_token_ids, *self.request.emitted_token_ids]

    @property
    def num_emitted(self) -> int:
        return len(self.ids) - len(self.request.prompt_token_ids)

    @property
    def slot(self) -> int | None:
        """None: drafters read no KV cache here (see drafter.Row)."""
        return None

    @property
    def budget(self) -> int:
        """Tokens that may still be emitted."""
        return self.request.params.max_tokens - self.num_emitted

    @property
    def prompt_share(self) -> PromptShare:
        """The share of the pass that feeds all IDs but the last, which are then the prompt's."""
        num_top = self.request.params.num_prompt_logprobs
        if num_top is None or self.num_emitted:
            return PromptShare(0, (), 0, 0)
        return PromptShare(len(self.ids) - 1, self.ids[1:], num_top, 0)

    def num_draft_tokens(self, config: SpeculationConfig) -> int:
        """Return K of the next round. It depends on this row alone, not on the other rows of the
        batch."""
        return max(min(draft_limit(config, self.request), self.budget - 1), 0)

    def commit(self, num_drafted: int, result: RowResult) -> TokenEvent:
        """Append the tokens of a round, up to the first stop ID or the budget."""
        if result.tokens == (NO_CHOICE,):
            return self.end(FinishReason.ERROR, self.rules.failure or "no id may be chosen")
        stop_ids = self.request.stop_ids
        tokens, self.finish_reason = cut_at_stop(result.tokens, stop_ids, self.budget)
        self.history.record(num_drafted, min(result.num_accepted, len(tokens)))
        event = self._event(tokens, result.logprobs[: len(tokens)])
        self.ids += tokens
        self.prompt_logprobs = ()
        return event

    def end(self, reason: FinishReason, error: str | None = None) -> TokenEvent:
        """Return the last event of a request that ends between rounds."""
        self.finish_reason = reason
        return self._event((), (), error)

    def _event(
        self,
        tokens: tuple[int, ...],
        logprobs: tuple[TokenLogprobs, ...],
        error: str | None = None,
    ) -> TokenEvent:
        return TokenEvent(
            request_id=self.request.request_id,
            index=self.num_emitted,
            token_ids=tokens,
            logprobs=logprobs,
            prompt_logprobs=self.prompt_logprobs if tokens else (),
            finish_reason=self.finish_reason,
            stats=self._stats() if self.finish_reason else None,
            error=error,
        )

    def _stats(self) -> RequestStats:
        admitted_at = self.arrived_at if self.admitted_at is None else self.admitted_at
        return RequestStats(
            num_rounds=self.history.num_rounds,
            num_drafted=self.history.num_drafted,
            num_accepted=self.history.num_accepted,
            steps=tuple(self.history.steps),
            queue_s=admitted_at - self.arrived_at,
        )


class RequestQueue:
    """Waiting requests, admitted requests and last events to report, in order of arrival."""

    def __init__(self, max_live_tokens: int, grammars: GrammarCompiler | None = None) -> None:
        """`max_live_tokens` limits the final length of all admitted requests, padding included."""
        self._grammars = grammars
        self.admitted: list[LiveSequence] = []
        self._max_live_tokens = max_live_tokens
        self._waiting: deque[LiveSequence] = deque()
        self._ended: list[TokenEvent] = []
        self._num_added = 0

    @property
    def has_work(self) -> bool:
        return bool(self._waiting or self.admitted or self._ended)

    def add(self, request: Request, now: float) -> None:
        """Queue a request. If its emitted tokens already end it, it ends immediately."""
        sequence = LiveSequence(request, now, self._grammars, sequence_id=self._num_added)
        self._num_added += 1
        emitted, stop_ids = request.emitted_token_ids, request.stop_ids
        tokens, reason = cut_at_stop(emitted, stop_ids, request.params.max_tokens)
        if reason is None:
            self._waiting.append(sequence)
        else:
            del sequence.ids[len(request.prompt_token_ids) + len(tokens) :]
            self._ended.append(sequence.end(reason))

    def abort(self, request_id: str) -> bool:
        """End a request in any state; return False when it is unknown."""
        for sequence in (*self._waiting, *self.admitted):
            if sequence.request.request_id == request_id:
                self._ended.append(sequence.end(FinishReason.ABORT))
                self._waiting = deque(s for s in self._waiting if s is not sequence)
                self.drop_finished()
                return True
        return False

    def admit(self, most: int, now: float) -> None:
        """Admit in order of arrival while fewer than `most` are live and all final lengths fit in
        one rectangle. The first is always admitted."""
        while self._waiting and len(self.admitted) < most and self._has_room():
            sequence = self._waiting.popleft()
            sequence.admitted_at = now
            self.admitted.append(sequence)

    def drop_finished(self) -> None:
        for sequence in self.admitted:
            if sequence.finish_reason and sequence.drafter and sequence.drafter.learns:
                sequence.drafter.end(sequence)
        self.admitted = [sequence for sequence in self.admitted if not sequence.finish_reason]

    def take_ended(self) -> list[TokenEvent]:
        ended, self._ended = self._ended, []
        return ended

    def _has_room(self) -> bool:
        lengths = [s.request.max_len for s in (*self.admitted, self._waiting[0])]
        return not self.admitted or len(lengths) * max(lengths) <= self._max_live_tokens
