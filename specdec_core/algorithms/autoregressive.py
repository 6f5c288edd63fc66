"""Autoregressive decoding: one token per sequence and pass. It defines the right answer.

It shares only the model interface and the coupled choice with the speculative algorithms. It has no
scheduler, no leases and no rollback, so that it can judge them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from specdec_core.algorithms.protocol import AlgorithmStats
from specdec_core.grammar import GrammarCompiler
from specdec_core.logprobs import TokenLogprobs
from specdec_core.model import CachedModel, score
from specdec_core.request import FinishReason, Request, RequestStats, TokenEvent, cut_at_stop
from specdec_core.sampling.sampler import NO_CHOICE, choose
from specdec_core.sampling.token_logprobs import PromptShare, measure_logprobs, take_prompts
from specdec_core.sampling_params import SampleRow, SamplingRules


@dataclass(eq=False, slots=True)
class _Running:
    """An admitted request: its slot and its IDs."""

    request: Request
    slot: int
    rules: SamplingRules
    ids: list[int] = field(default_factory=list)
    num_rounds: int = 0

    @property
    def num_emitted(self) -> int:
        return len(self.ids) - len(self.request.prompt_token_ids)

    @property
    def prompt_share(self) -> PromptShare:
        """The share of the first token's pass, which feeds the whole prompt."""
        num_top = self.request.params.num_prompt_logprobs
        if num_top is None or self.num_emitted:
            return PromptShare(0, (), 0, 1)
        return PromptShare(len(self.ids) - 1, self.ids[1:], num_top, 1)


class _Choice(NamedTuple):
    token: int
    logprobs: tuple[TokenLogprobs, ...]
    prompt_logprobs: tuple[TokenLogprobs, ...]


class Autoregressive:
    """Continuous batching of at most `batch_size` requests, first come, first served."""

    def __init__(
        self, model: CachedModel, *, batch_size: int, grammars: GrammarCompiler | None = None
    ) -> None:
        self._model = model
        self._grammars = grammars
        self._batch_size = batch_size
        self._waiting: deque[Request] = deque()
        self._running: list[_Running] = []
        self._ended: list[TokenEvent] = []
        self._num_passes = 0
        self._num_tokens = 0
        self._verify_s = 0.0

    @property
    def has_work(self) -> bool:
        return bool(self._waiting or self._running or self._ended)

    @property
    def stats(self) -> AlgorithmStats:
        return AlgorithmStats(
            num_rounds=self._num_passes,
            num_committed=self._num_tokens,
            seconds={"verify": self._verify_s},
        )

    def add(self, request: Request) -> None:
        tokens, reason = cut_at_stop(
            request.emitted_token_ids, request.stop_ids, request.params.max_tokens
        )
        if reason is None:
            self._waiting.append(request)
        else:
            self._ended.append(_last_event(request, len(tokens), reason))

    def abort(self, request_id: str) -> bool:
        for request in self._waiting:
            if request.request_id == request_id:
                self._waiting.remove(request)
                num_emitted = len(request.emitted_token_ids)
                self._ended.append(_last_event(request, num_emitted, FinishReason.ABORT))
                return True
        for running in self._running:
            if running.request.request_id == request_id:
                self._ended.append(self._end(running, FinishReason.ABORT))
                return True
        return False

    def step(self) -> list[TokenEvent]:
        """Admit requests, feed every running request its pending tokens, choose one token each."""
        self._admit()
        events, self._ended = self._ended, []
        if self._running:
            started = time.perf_counter()
            choices = self._decode(self._running)
            self._verify_s += time.perf_counter() - started
            pairs = zip(list(self._running), choices, strict=True)
            events += [self._commit(running, choice) for running, choice in pairs]
        return events

    def _admit(self) -> None:
        """Admit requests while all running ones can reach their end in the cache. With none
        running, one is always admitted."""
        if not self._waiting:
            return
        num_free = self._model.num_blocks - sum([self._blocks_of(r.request) for r in self._running])
        while self._waiting and len(self._running) < self._batch_size:
            num_free -= self._blocks_of(self._waiting[0])
            if num_free < 0 and self._running:
                break
            request = self._waiting.popleft()
            ids = [*request.prompt_token_ids, *request.emitted_token_ids]
            rules = request.rules.compiled(self._grammars)
            self._running.append(_Running(request, self._model.allocate(), rules, ids))

    def _blocks_of(self, request: Request) -> int:
        return self._model.kv_cache_spec.blocks_for(request.max_len)

    def _decode(self, running: Sequence[_Running]) -> list[_Choice]:
        shares = [r.prompt_share for r in running]
        fed = (
            (r.slot, r.ids[self._model.cached_len(r.slot) :], share.num_rows + 1)
            for r, share in zip(running, shares, strict=True)
        )
        prompts, logits = take_prompts(score(self._model, fed), shares, self._model.vocab_size)
        rows = [SampleRow(r.rules, len(r.ids), r.ids) for r in running]
        self._num_passes += 1
        tokens = choose(logits, rows, self._model.vocab_size)
        logprobs = measure_logprobs(logits, rows, tokens, self._model.vocab_size)
        return [
            _Choice(token, () if own is None else (own,), prompt)
            for token, own, prompt in zip(tokens, logprobs, prompts, strict=True)
        ]

    def _commit(self, running: _Running, choice: _Choice) -> TokenEvent:
        request = running.request
        if choice.token == NO_CHOICE:
            why = running.rules.failure or "no id may be chosen"
            return self._end(running, FinishReason.ERROR, why)
        budget = request.params.max_tokens - running.num_emitted
        tokens, reason = cut_at_stop((choice.token,), request.stop_ids, budget)
        running.num_rounds += 1
        self._num_tokens += len(tokens)
        event = TokenEvent(
            request_id=request.request_id,
            index=running.num_emitted,
            token_ids=tokens,
            finish_reason=reason,
            stats=None if reason is None else RequestStats(num_rounds=running.num_rounds),
            logprobs=choice.logprobs,
            prompt_logprobs=choice.prompt_logprobs,
        )
        running.ids += tokens
        if reason is not None:
            self._leave(running)
        return event

    def _end(self, running: _Running, reason: FinishReason, error: str = "") -> TokenEvent:
        self._leave(running)
        return _last_event(running.request, running.num_emitted, reason, running.num_rounds, error)

    def _leave(self, running: _Running) -> None:
        self._model.free(running.slot)
        self._running.remove(running)


def _last_event(
    request: Request, index: int, reason: FinishReason, num_rounds: int = 0, error: str = ""
) -> TokenEvent:
    """Return the last event of a request that commits no more tokens."""
    return TokenEvent(
        request_id=request.request_id,
        index=index,
        token_ids=(),
        finish_reason=reason,
        stats=RequestStats(num_rounds=num_rounds),
        error=error or None,
    )
