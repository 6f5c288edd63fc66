"""The flags of `specdec generate`, and the engine's configuration from them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from deployments.cli.generate.prompts import PromptOptions
from deployments.cli.sampling import sampling_section
from deployments.config.flags import OUTPUT_FILE, REQUIRED, flag, section
from deployments.config.loading import LoadOptions, model_argument
from deployments.config.scheduler import SchedulerOptions
from deployments.config.speculation import SpeculationOptions
from deployments.demo.drafts import Drafting, choose_drafting
from specdec_core.config import DRAFT_MODEL_METHODS, MAX_CPU_ROWS, SchedulerConfig
from specdec_core.errors import InvalidRequestError
from specdec_core.sampling_params import SamplingParams


def _warn_of_old_name(value: int | None) -> int | None:
    if value is not None:
        print("warning: this option is now called --max-num-seqs", file=sys.stderr)
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateOptions:
    """Flags of the command."""

    model: str = model_argument()
    prompts: PromptOptions = section(PromptOptions)
    output: Path = flag(
        REQUIRED, "File for the answers as JSON lines, in input order.", **OUTPUT_FILE
    )
    stats: Path | None = flag(None, "File for the totals of the run, as JSON.", **OUTPUT_FILE)
    algorithm: str = flag(
        "exspec",
        "`exspec` speculates. `autoregressive` decodes without speculation. `eqspec` and "
        "`exspec-padded` are the paper's algorithms on a left-padded cache, for comparison. "
        "All give the same tokens.",
        choices=("exspec", "autoregressive", "eqspec", "exspec-padded"),
    )
    limits: SchedulerOptions = section(SchedulerOptions, ("max_num_seqs", "window"))
    batch_size: int | None = flag(None, "", min=1, hidden=True, callback=_warn_of_old_name)
    """Old name of max_num_seqs."""
    sort_by_length: bool = flag(False, "Start with the shortest prompts.")
    turns: str = flag(
        "first",
        "Turns of each line that are decoded. With `all`, each answer becomes context of the "
        "next turn.",
        choices=("first", "all"),
    )
    sampling: SamplingParams = sampling_section()
    speculation: SpeculationOptions = section(SpeculationOptions)
    loading: LoadOptions = section(LoadOptions)

    def __post_init__(self) -> None:
        """Report mistakes before a model is loaded."""
        self.loading.load_config()
        self.scheduler_config(num_requests=0)
        if self.turns == "all" and self.prompts.raw_prompt:
            raise InvalidRequestError("--turns all needs the chat template: leave --raw-prompt out")
        method = self.drafting.method
        if method in DRAFT_MODEL_METHODS and not self.drafting.draft:
            raise InvalidRequestError(f"--spec-method {method} needs --spec-model")
        if self.speculation.spec_model and method not in DRAFT_MODEL_METHODS:
            raise InvalidRequestError(f"--spec-method {method} uses no --spec-model")

    @property
    def drafting(self) -> Drafting:
        return choose_drafting(
            self.model, self.speculation.spec_method, self.speculation.spec_model
        )

    @property
    def max_draft_tokens(self) -> int:
        """Maximum K. Without a flag, it depends on algorithm, policy and device."""
        if self.speculation.spec_tokens is not None:
            return self.speculation.spec_tokens
        return self.loading.default_draft_tokens(self.algorithm, self.speculation.spec_policy)

    def scheduler_config(
        self, num_requests: int, rows_that_gain: int = MAX_CPU_ROWS
    ) -> SchedulerConfig:
        window = self.limits.window
        auto = min(rows_that_gain, window or rows_that_gain)
        return self.speculation.scheduler_config(
            self.drafting.method,
            self.max_draft_tokens,
            rows=self.limits.max_num_seqs or self.batch_size or auto,
            window=window,
            max_queued=num_requests,
        )
