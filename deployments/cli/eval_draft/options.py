"""The flags of `specdec eval-draft` as one record."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deployments.config.loading import LoadOptions
from specdec_core.config import (
    KPolicyName,
    PoolConfig,
    SpecMethod,
    SpeculationConfig,
    uses_draft_model,
)
from specdec_core.errors import InvalidRequestError
from specdec_core.sampling_params import SamplingParams

_WINDOW_PER_ROW = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalDraftOptions(LoadOptions):
    """The command's flags; command.py says what each means."""

    target: str
    draft: str | None
    input: Path
    json: Path | None
    plot: Path | None
    spec_method: str | None
    spec_tokens: tuple[int, ...]
    spec_min_confidence: float
    batch_size: int
    limit: int | None
    sample: int | None
    raw_prompt: bool
    max_tokens: int
    temperature: float
    seed: int

    def __post_init__(self) -> None:
        """Report mistakes before a model is loaded."""
        self.sampling_params()
        self.load_config()
        if uses_draft_model(self.method) and self.draft is None:
            raise InvalidRequestError(f"--spec-method {self.method} needs --draft")
        if self.draft is not None and not uses_draft_model(self.method):
            raise InvalidRequestError(f"--spec-method {self.method} uses no --draft")
        if not self.spec_tokens:
            raise InvalidRequestError("--spec-tokens: at least one K is needed")
        for num_draft_tokens in self.spec_tokens:
            self.pool_config(num_draft_tokens, 0)

    @property
    def method(self) -> str:
        if self.spec_method is not None:
            return self.spec_method
        return SpecMethod.NGRAM if self.draft is None else SpecMethod.DRAFT_MODEL

    def sampling_params(self) -> SamplingParams:
        return SamplingParams(
            temperature=self.temperature, seed=self.seed, max_tokens=self.max_tokens
        )

    def pool_config(self, num_draft_tokens: int, num_requests: int) -> PoolConfig:
        try:
            return PoolConfig(
                max_group_size=self.batch_size,
                window=_WINDOW_PER_ROW * self.batch_size,
                max_queued=num_requests,
                speculation=SpeculationConfig(
                    method=self.method,
                    num_draft_tokens=num_draft_tokens,
                    k_policy=KPolicyName.FIXED,  # measures each K, even if it does not pay
                    min_confidence=self.spec_min_confidence,
                ),
            )
        except ValueError as error:
            raise InvalidRequestError(str(error)) from error
