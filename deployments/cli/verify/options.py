"""The flags of `specdec verify`, and the configurations from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from deployments.cli.generate.prompts import PromptOptions
from deployments.cli.sampling import sampling_section
from deployments.cli.verify.cells import Cells, Grid, Point
from deployments.config.flags import OUTPUT_FILE, flag, section
from deployments.config.loading import LoadOptions, model_argument
from deployments.config.scheduler import SchedulerOptions
from deployments.config.speculation import SpeculationOptions
from specdec_core.config import DRAFT_MODEL_METHODS, KPolicyName, SchedulerConfig
from specdec_core.errors import InvalidRequestError
from specdec_core.sampling_params import SamplingParams

_PANEL = "Cells"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """Flags of the command."""

    model: str = model_argument()
    prompts: PromptOptions = section(PromptOptions)
    json: Path | None = flag(None, "File for all results, as JSON.", **OUTPUT_FILE)
    grid: Grid = section(Grid)
    cells: Cells = flag(
        Cells.RANDOM,
        "`random` runs each prompt in one cell drawn for it, and some prompts in every cell. "
        "`all` runs every prompt in every cell.",
        panel=_PANEL,
    )
    cell_seed: int = flag(0, "Seed that draws the cells.", panel=_PANEL)
    grid_sample: int = flag(
        4,
        "Number of prompts that run in every cell. Other prompts fill the rest of a batch.",
        min=0,
        panel=_PANEL,
    )
    compare_fast: bool = flag(
        False, "Run every cell in fast numerics too, and show the figures of both.", panel=_PANEL
    )
    limits: SchedulerOptions = section(SchedulerOptions, ("window",))
    sampling: SamplingParams = sampling_section(
        "top_p", "top_k", "min_p", "seed", "max_tokens", "ignore_eos"
    )
    logprobs: int | None = flag(
        None,
        "Compare log-probabilities too: of the tokens, and of the N most probable ones.",
        min=0,
        max=20,
        panel="Sampling",
    )
    spec_model: str = flag(
        "self:1",
        "Draft model. `self:N` is the target without N of its layers. It is often wrong, and as "
        "slow as the target. `self` is always right.",
        metavar="PATH_OR_ID",
        panel="Speculation",
    )
    # An audit must draft, even if that does not pay.
    speculation: SpeculationOptions = section(
        SpeculationOptions,
        ("prompt_lookup_max", "prompt_lookup_min"),
        spec_policy=KPolicyName.FIXED,
    )
    loading: LoadOptions = section(
        LoadOptions, without=("enable_prefix_caching", "enforce_eager", "gpu_memory_utilization")
    )

    def __post_init__(self) -> None:
        """Report mistakes before a model is loaded."""
        from deployments.cli.verify.draft import num_left_out

        for temperature in self.grid.temperatures:
            self.sampling_params(temperature)
        for point in self.points:
            self.scheduler_config(point, 0)
        if not self.points:
            raise InvalidRequestError(
                "there is nothing to compare, because plain decoding at batch size 1 is "
                "the reference: add --batch-sizes or --algorithms"
            )
        self.loading.load_config()
        num_left_out(self.spec_model)

    @property
    def points(self) -> list[Point]:
        return [p for algorithm in self.grid.algorithms for p in self.grid.points(algorithm)]

    @property
    def uses_draft_model(self) -> bool:
        return any(point.method in DRAFT_MODEL_METHODS for point in self.points)

    def sampling_params(self, temperature: float) -> SamplingParams:
        return replace(self.sampling, temperature=temperature, num_logprobs=self.logprobs)

    def scheduler_config(self, point: Point, num_requests: int) -> SchedulerConfig:
        return self.speculation.scheduler_config(
            point.method,
            point.num_draft_tokens,
            rows=point.batch_size,
            window=self.limits.window,
            max_queued=num_requests,
        )
