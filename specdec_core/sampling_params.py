"""What a request asks of the sampler: one frozen record, checked once."""

from __future__ import annotations

import math
from dataclasses import dataclass

from specdec_core.errors import InvalidRequestError
from specdec_core.grammar import GrammarSpec

MAX_SEED = 2**63 - 1
MAX_TOP_K = 2**31 - 1
MAX_BIAS = 100.0
MAX_LOGPROBS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How tokens of one request are chosen, and where the request ends."""

    temperature: float = 1.0
    """0 is greedy: the limit of T -> 0, where the noise is dropped."""
    top_k: int = 0
    """Keep the k most probable ids; 0 keeps all."""
    top_p: float = 1.0
    """Keep the smallest set of most probable ids whose mass reaches p."""
    min_p: float = 0.0
    """Keep ids at least min_p times as probable as the most probable one."""
    seed: int = 0
    """Seed of the coupled noise. The edge draws one for requests that name none."""
    presence_penalty: float = 0.0
    """Subtracted from the logits of ids that were emitted already; -2..2, as in OpenAI's API."""
    frequency_penalty: float = 0.0
    """Subtracted once per time that an id was emitted; -2..2."""
    repetition_penalty: float = 1.0
    """Divides positive and multiplies negative logits of ids in the prompt or the output."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(id, bias) pairs, added to the logits."""
    min_tokens: int = 0
    """No id that would end the request may be chosen before so many were emitted."""
    allowed_token_ids: tuple[int, ...] = ()
    """Only these may be chosen; empty allows all."""
    bad_words: tuple[tuple[int, ...], ...] = ()
    """Token sequences that must not appear in the output: the last id of each is banned wherever
    the ids before it have just been emitted."""
    grammar: GrammarSpec | None = None
    """What the output must spell, at every position; the model's end ids only where it may end."""
    num_logprobs: int | None = None
    """Log-probabilities to report with each token: its own and those of the so many most probable
    ids; None reports none. They are log_softmax of the raw logits."""
    num_prompt_logprobs: int | None = None
    """The same of every prompt token but the first, which nothing stands before."""
    max_tokens: int = 16
    """Most tokens to emit."""
    stop_token_ids: tuple[int, ...] = ()
    """Ids that end the request; the id itself is emitted. The model's own end ids come on top."""
    ignore_eos: bool = False
    """Do not stop at the model's own end ids."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and 0.0 <= self.temperature <= 100.0):
            raise InvalidRequestError(f"temperature must be in 0..100, got {self.temperature}")
        if not 0 <= self.top_k <= MAX_TOP_K:
            raise InvalidRequestError(f"top_k must be in 0 (off)..{MAX_TOP_K}, got {self.top_k}")
        if not 0.0 < self.top_p <= 1.0:
            raise InvalidRequestError(f"top_p must be in (0, 1], got {self.top_p}")
        if not 0.0 <= self.min_p <= 1.0:
            raise InvalidRequestError(f"min_p must be in 0..1, got {self.min_p}")
        if not 0 <= self.seed <= MAX_SEED:
            raise InvalidRequestError(f"seed must be in 0..{MAX_SEED}, got {self.seed}")
        if self.max_tokens < 1:
            raise InvalidRequestError(f"max_tokens must be at least 1, got {self.max_tokens}")
        self._check_processors()
        if any(token_id < 0 for token_id in self.stop_token_ids):
            raise InvalidRequestError(f"stop_token_ids must not be negative: {self.stop_token_ids}")

    def _check_processors(self) -> None:
        for name in ("presence_penalty", "frequency_penalty"):
            value = getattr(self, name)
            if not -2.0 <= value <= 2.0:
                raise InvalidRequestError(f"{name} must be in -2..2, got {value}")
        if not (math.isfinite(self.repetition_penalty) and self.repetition_penalty > 0.0):
            raise InvalidRequestError(
                f"repetition_penalty must be positive, got {self.repetition_penalty}"
            )
        for token_id, bias in self.logit_bias:
            if token_id < 0 or not -MAX_BIAS <= bias <= MAX_BIAS:
                raise InvalidRequestError(
                    f"logit_bias must map ids to -{MAX_BIAS}..{MAX_BIAS}, got {token_id}: {bias}"
                )
        biased_ids = [token_id for token_id, _ in self.logit_bias]
        if len(set(biased_ids)) < len(biased_ids):
            raise InvalidRequestError(f"logit_bias names an id twice: {biased_ids}")
        if not 0 <= self.min_tokens <= self.max_tokens:
            raise InvalidRequestError(
                f"min_tokens must be in 0..max_tokens={self.max_tokens}, got {self.min_tokens}"
            )
        if any(token_id < 0 for token_id in self.allowed_token_ids):
            raise InvalidRequestError("allowed_token_ids must not be negative")
        if not all(word and min(word) >= 0 for word in self.bad_words):
            raise InvalidRequestError("bad_words must be non-empty lists of non-negative ids")
        if self.grammar is not None and (self.ignore_eos or self.min_tokens):
            raise InvalidRequestError(
                "structured output ends where its grammar does: leave ignore_eos and min_tokens out"
            )
        for name in ("logprobs", "prompt_logprobs"):
            count = getattr(self, f"num_{name}")
            if count is not None and not 0 <= count <= MAX_LOGPROBS:
                raise InvalidRequestError(f"{name} must be in 0..{MAX_LOGPROBS}, got {count}")

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0
