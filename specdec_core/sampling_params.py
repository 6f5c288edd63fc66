"""What a request asks of the sampler: one frozen record, checked once."""

from __future__ import annotations

import math
from dataclasses import dataclass

from specdec_core.errors import InvalidRequestError

MAX_SEED = 2**63 - 1


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
    max_tokens: int = 16
    """Most tokens to emit."""
    stop_token_ids: tuple[int, ...] = ()
    """Ids that end the request; the id itself is emitted. The model's own end ids come on top."""
    ignore_eos: bool = False
    """Do not stop at the model's own end ids."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and 0.0 <= self.temperature <= 100.0):
            raise InvalidRequestError(f"temperature must be in 0..100, got {self.temperature}")
        if self.top_k < 0:
            raise InvalidRequestError(f"top_k must be 0 (off) or positive, got {self.top_k}")
        if not 0.0 < self.top_p <= 1.0:
            raise InvalidRequestError(f"top_p must be in (0, 1], got {self.top_p}")
        if not 0.0 <= self.min_p <= 1.0:
            raise InvalidRequestError(f"min_p must be in 0..1, got {self.min_p}")
        if not 0 <= self.seed <= MAX_SEED:
            raise InvalidRequestError(f"seed must be in 0..{MAX_SEED}, got {self.seed}")
        if self.max_tokens < 1:
            raise InvalidRequestError(f"max_tokens must be at least 1, got {self.max_tokens}")
        if any(token_id < 0 for token_id in self.stop_token_ids):
            raise InvalidRequestError(f"stop_token_ids must not be negative: {self.stop_token_ids}")

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0
