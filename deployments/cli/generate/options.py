"""The flags of `specdec generate` as one record, and the engine's configuration from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deployments.cli.generate.load_options import LoadOptions
from deployments.demo.drafts import Drafting, choose_drafting
from specdec_core.config import (
    MAX_CPU_ROWS,
    WINDOW_PER_ROW,
    KPolicyName,
    NgramConfig,
    OverlapMode,
    PoolConfig,
    SpecMethod,
    SpeculationConfig,
)
from specdec_core.errors import InvalidRequestError
from specdec_core.sampling_params import SamplingParams

_SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "min_tokens",
    "max_tokens",
    "seed",
    "ignore_eos",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateOptions(LoadOptions):
    """The command's flags; cli/main.py says what each means."""

    model: str
    algorithm: str
    input: Path
    output: Path
    stats: Path | None
    spec_method: SpecMethod | None
    spec_model: str | None
    spec_tokens: int | None
    """Maximum K. If None, it depends on algorithm, policy and device."""
    spec_policy: KPolicyName
    spec_min_confidence: float
    overlap: OverlapMode
    prompt_lookup_max: int | None
    prompt_lookup_min: int | None
    max_num_seqs: int | None
    """Maximum rows of a batch. If None, the number of rows that still gain throughput."""
    batch_size: int | None
    """Old name of max_num_seqs."""
    window: int | None
    sort_by_length: bool
    max_tokens: int
    limit: int | None
    sample: int | None
    turns: str
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    min_tokens: int
    logprobs: int | None
    seed: int
    ignore_eos: bool
    raw_prompt: bool

    def __post_init__(self) -> None:
        """Report mistakes before a model is loaded."""
        self.sampling_params()
        self.pool_config(num_requests=0)
        self.load_config()
        if self.limit is not None and self.sample is not None:
            raise InvalidRequestError("--limit and --sample exclude each other")
        if self.turns == "all" and self.raw_prompt:
            raise InvalidRequestError("--turns all needs the chat template: leave --raw-prompt out")
        for file in (self.output, self.stats):
            if file is not None and not file.parent.is_dir():
                raise InvalidRequestError(f"{file}: there is no folder {file.parent}")
        if self.method.uses_draft_model and not self.draft:
            raise InvalidRequestError(f"--spec-method {self.method} needs --spec-model")
        if self.spec_model and not self.method.uses_draft_model:
            raise InvalidRequestError(f"--spec-method {self.method} uses no --spec-model")

    @property
    def method(self) -> SpecMethod:
        return self._drafting.method

    @property
    def draft(self) -> str | None:
        """The draft model that the engine loads. None if it decodes without a draft model."""
        return self._drafting.draft

    @property
    def max_draft_tokens(self) -> int:
        if self.spec_tokens is not None:
            return self.spec_tokens
        return self.default_draft_tokens(self.algorithm, self.spec_policy)

    @property
    def _drafting(self) -> Drafting:
        return choose_drafting(self.model, self.spec_method, self.spec_model)

    def sampling_params(self) -> SamplingParams:
        named = {name: getattr(self, name) for name in _SAMPLING}
        return SamplingParams(num_logprobs=self.logprobs, **named)

    def pool_config(self, num_requests: int, rows_that_gain: int = MAX_CPU_ROWS) -> PoolConfig:
        auto = min(rows_that_gain, self.window or rows_that_gain)
        rows = self.max_num_seqs or self.batch_size or auto
        try:
            return PoolConfig(
                max_group_size=rows,
                window=self.window or WINDOW_PER_ROW * rows,
                max_queued=num_requests,
                overlap=self.overlap,
                speculation=SpeculationConfig(
                    method=self.method,
                    num_draft_tokens=self.max_draft_tokens,
                    k_policy=self.spec_policy,
                    min_confidence=self.spec_min_confidence,
                    ngram=NgramConfig.suiting(
                        self.spec_policy, self.prompt_lookup_max, self.prompt_lookup_min
                    ),
                ),
            )
        except ValueError as error:
            raise InvalidRequestError(str(error)) from error
