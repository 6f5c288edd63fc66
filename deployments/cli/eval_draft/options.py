"""The flags of `specdec eval-draft`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deployments.cli.generate.prompts import PromptOptions
from deployments.cli.sampling import sampling_section
from deployments.config.flags import OUTPUT_FILE, flag, section
from deployments.config.loading import DEMO_MODEL, LoadOptions, target_flag
from deployments.config.speculation import SpeculationOptions
from specdec_core.config import DRAFT_MODEL_METHODS, KPolicyName, SchedulerConfig, SpecMethod
from specdec_core.errors import InvalidRequestError
from specdec_core.sampling_params import SamplingParams


def _numbers(text: str) -> tuple[int, ...]:
    """Return the numbers in a text such as "1,4" or "1-8"."""
    try:
        return tuple(dict.fromkeys(k for part in text.split(",") for k in _range(part)))
    except ValueError as error:
        raise ValueError(f"{text!r} is not a list of numbers that are at least 1") from error


def _range(part: str) -> range:
    first, _, last = part.partition("-")
    numbers = range(int(first), int(last or first) + 1)
    if not numbers or numbers[0] < 1:
        raise ValueError(part)
    return numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalDraftOptions:
    """Flags of the command."""

    prompts: PromptOptions = section(PromptOptions)
    target: str = target_flag(DEMO_MODEL)
    draft: str | None = flag(
        None, "Draft model. Default: none; prompt lookup drafts the tokens.", metavar="PATH_OR_ID"
    )
    json: Path | None = flag(None, "File for all figures, as JSON.", **OUTPUT_FILE)
    plot: Path | None = flag(
        None, "File for a plot of speed-up and acceptance by K, as PNG.", **OUTPUT_FILE
    )
    spec_tokens: tuple[int, ...] = flag(
        "1-8", "Drafted tokens per sequence and round (K), such as 1,4 or 1-8.", parse=_numbers
    )
    batch_size: int = flag(1, "Maximum sequences per target pass (the batch).", min=1)
    sampling: SamplingParams = sampling_section("temperature", "seed", "max_tokens")
    # Measures each K, even if it does not pay.
    speculation: SpeculationOptions = section(
        SpeculationOptions, ("spec_method", "spec_min_confidence"), spec_policy=KPolicyName.FIXED
    )
    # A run would find prompts that another has computed.
    loading: LoadOptions = section(
        LoadOptions,
        without=("enable_prefix_caching", "enforce_eager", "gpu_memory_utilization"),
        enable_prefix_caching=False,
    )

    def __post_init__(self) -> None:
        """Report mistakes before a model is loaded."""
        self.loading.load_config()
        if self.method in DRAFT_MODEL_METHODS and self.draft is None:
            raise InvalidRequestError(f"--spec-method {self.method} needs --draft")
        if self.draft is not None and self.method not in DRAFT_MODEL_METHODS:
            raise InvalidRequestError(f"--spec-method {self.method} uses no --draft")
        for num_draft_tokens in self.spec_tokens:
            self.scheduler_config(num_draft_tokens, 0)

    @property
    def method(self) -> str:
        default = SpecMethod.NGRAM if self.draft is None else SpecMethod.DRAFT_MODEL
        return self.speculation.spec_method or default

    def scheduler_config(self, num_draft_tokens: int, num_requests: int) -> SchedulerConfig:
        return self.speculation.scheduler_config(
            self.method,
            num_draft_tokens,
            rows=self.batch_size,
            max_queued=num_requests,
        )
