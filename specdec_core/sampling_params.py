"""Sampling parameters of a request: one frozen record, checked once."""

from __future__ import annotations

import math
from dataclasses import dataclass

from specdec_core.errors import InvalidRequestError, check_range
from specdec_core.grammar import GrammarSpec

MAX_SEED = 2**63 - 1
MAX_TOP_K = 2**31 - 1
MAX_BIAS = 100.0
MAX_LOGPROBS = 20
LEAST_REPETITION, MOST_REPETITION = 0.01, 100.0
"""Limits of the repetition penalty. Beyond them a logit may become infinite, or all of them 0, in
float32."""

_RANGES: dict[str, tuple[float, float, str]] = {
    "temperature": (0.0, 100.0, "in 0..100"),
    "top_k": (0, MAX_TOP_K, f"in 0 (off)..{MAX_TOP_K}"),
    "top_p": (math.ulp(0.0), 1.0, "in (0, 1]"),
    "min_p": (0.0, 1.0, "in 0..1"),
    "seed": (0, MAX_SEED, f"in 0..{MAX_SEED}"),
    "max_tokens": (1, math.inf, "at least 1"),
    "presence_penalty": (-2.0, 2.0, "in -2..2"),
    "frequency_penalty": (-2.0, 2.0, "in -2..2"),
    "repetition_penalty": (
        LEAST_REPETITION,
        MOST_REPETITION,
        f"in {LEAST_REPETITION:g}..{MOST_REPETITION:g}",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Rules for sampling the tokens of one request, and for its end."""

    temperature: float = 1.0
    """0 is greedy: the limit of T -> 0, where the noise is dropped."""
    top_k: int = 0
    """Keep the k most probable IDs; 0 keeps all."""
    top_p: float = 1.0
    """Keep the smallest set of most probable IDs whose mass reaches p."""
    min_p: float = 0.0
    """Keep ids at least min_p times as probable as the most probable one."""
    seed: int = 0
    """Seed of the coupled noise. The edge draws one for requests without a seed."""
    presence_penalty: float = 0.0
    """Subtracted from the logits of IDs that were emitted already; -2..2, as in OpenAI's API."""
    frequency_penalty: float = 0.0
    """Subtracted once per time that an ID was emitted; -2..2."""
    repetition_penalty: float = 1.0
    """Divides positive and multiplies negative logits of ids in the prompt or the output."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(ID, bias) pairs, added to the logits."""
    min_tokens: int = 0
    """Minimum emitted tokens before an ID that ends the request may be chosen."""
    allowed_token_ids: tuple[int, ...] = ()
    """Only these IDs may be chosen; empty allows all."""
    bad_words: tuple[tuple[int, ...], ...] = ()
    """Token sequences that must not appear in the output. The last ID of each is banned wherever
    the IDs before it have just been emitted."""
    grammar: GrammarSpec | None = None
    """Grammar of the output, applied at every position. The model's end IDs are allowed only where
    the output may end."""
    num_logprobs: int | None = None
    """Number of most probable IDs to report with each token, in addition to its own
    log-probability. None reports none. The values are log_softmax of the raw logits."""
    num_prompt_logprobs: int | None = None
    """Number of most probable IDs to report with every prompt token but the first, which has no
    predecessor."""
    max_tokens: int = 16
    """Maximum tokens to emit."""
    stop_token_ids: tuple[int, ...] = ()
    """IDs that end the request; the ID itself is emitted. The model's own end IDs are added."""
    ignore_eos: bool = False
    """Do not stop at the model's own end ids."""

    def __post_init__(self) -> None:
        for name, (low, high, wording) in _RANGES.items():
            check_range(name, getattr(self, name), low, high, wording)
        limit = self.max_tokens
        check_range("min_tokens", self.min_tokens, 0, limit, f"in 0..max_tokens={limit}")
        for name in ("logprobs", "prompt_logprobs"):
            count = getattr(self, f"num_{name}")
            if count is not None:
                check_range(name, count, 0, MAX_LOGPROBS, f"in 0..{MAX_LOGPROBS}")
        self._check_bias()
        for name in ("stop_token_ids", "allowed_token_ids"):
            wrong = next((i for i in getattr(self, name) if i < 0), None)
            if wrong is not None:
                raise InvalidRequestError(f"{name} must not be negative, got {wrong}", param=name)
        if not all(word and min(word) >= 0 for word in self.bad_words):
            raise InvalidRequestError(
                "bad_words must be non-empty lists of non-negative ids", param="bad_words"
            )
        if self.grammar is not None and (self.ignore_eos or self.min_tokens):
            raise InvalidRequestError(
                "structured output ends where its grammar does: "
                "leave ignore_eos and min_tokens out",
                param="ignore_eos" if self.ignore_eos else "min_tokens",
            )

    def _check_bias(self) -> None:
        for token_id, bias in self.logit_bias:
            if token_id < 0 or not -MAX_BIAS <= bias <= MAX_BIAS:
                raise InvalidRequestError(
                    f"logit_bias must map ids to -{MAX_BIAS}..{MAX_BIAS}, got {token_id}: {bias}",
                    param="logit_bias",
                )
        biased_ids = [token_id for token_id, _ in self.logit_bias]
        if len(set(biased_ids)) < len(biased_ids):
            raise InvalidRequestError(
                f"logit_bias names an id twice: {biased_ids}", param="logit_bias"
            )

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0
